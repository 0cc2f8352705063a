"""Write a program for a problem of this package in the manner of APPS, or with `data` of its own.

A coder and a tester play, or a coder alone.

The task and its settings: `pettingllms_envs.environments.coding.apps.Apps`; all other arguments:
`pettingllms_envs.assembly.assemble`.
"""

from pettingllms_envs.assembly import assemble
from pettingllms_envs.environments.coding.apps import Apps
from pettingllms_envs.environments.coding.coder_tester import CoderTester
from pettingllms_envs.environments.coding.lone_coder import SelfRefine, SingleCoder
from pettingllms_envs.teams.designed import Designed


raw_env, env, parallel_env = assemble(Apps, __name__, (CoderTester, SingleCoder, SelfRefine, Designed))
