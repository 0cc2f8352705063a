"""Write a program for a problem of this package in the manner of CodeContests, or with `data` of its own.

A coder and a tester play, or a coder alone.
"""

from pettingllms_envs.assembly import assemble
from pettingllms_envs.environments.coding import WORKFLOWS
from pettingllms_envs.environments.coding.code_contests import CodeContests


raw_env, env, parallel_env = assemble(CodeContests, __name__, WORKFLOWS)
