"""Write a program for a problem of this package in the manner of LiveCodeBench, or with `data` of its own.

A coder and a tester play, or a coder alone.

The task and its settings: `pettingllms_envs.environments.coding.live_code_bench.LiveCodeBench`; all other arguments:
`pettingllms_envs.assembly.assemble`.
"""

from pettingllms_envs.assembly import assemble
from pettingllms_envs.environments.coding.coder_tester import CoderTester
from pettingllms_envs.environments.coding.live_code_bench import LiveCodeBench
from pettingllms_envs.environments.coding.lone_coder import SelfRefine, SingleCoder


raw_env, env, parallel_env = assemble(LiveCodeBench, __name__, (CoderTester, SingleCoder, SelfRefine))
