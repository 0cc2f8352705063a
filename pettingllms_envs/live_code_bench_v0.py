"""Write a program for a problem of this package in the manner of LiveCodeBench, or with `data` of its own.

A coder and a tester play, or a coder alone.
"""

from pettingllms_envs.assembly import assemble
from pettingllms_envs.environments.coding import WORKFLOWS
from pettingllms_envs.environments.coding.live_code_bench import LiveCodeBench


raw_env, env, parallel_env = assemble(LiveCodeBench, __name__, WORKFLOWS)
