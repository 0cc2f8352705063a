"""The commands `pettingllms train` and `pettingllms sft`, one file each as in `trl.scripts`, and their arguments.

Each has a function `prepare(argv)`, which validates the arguments before any model is trained, and returns a function
that does the work.
"""
