"""Teams: who acts in which order, what each role sees, how its reply is used and scored. One file each.

These are the workflows of more than one environment, and what workflows are made of. One that only a certain
environment has lies in its folder, `pettingllms_envs.environments`.
"""
