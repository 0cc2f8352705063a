"""Write a program for a problem of this package in the manner of APPS, or with `data` of its own.

A coder and a tester play, or a coder alone.
"""

from pettingllms_envs.assembly import DESIGNED, assemble
from pettingllms_envs.environments.coding import WORKFLOWS
from pettingllms_envs.environments.coding.apps import Apps


raw_env, env, parallel_env = assemble(Apps, __name__, (*WORKFLOWS, DESIGNED))
