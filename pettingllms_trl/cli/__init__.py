"""What `pettingllms train` and `pettingllms sft` do, a file each as in `trl.scripts`, and their arguments.

A script offers `prepare(argv)`, which refuses what is wrong before any model is trained, and returns the work itself.
"""
