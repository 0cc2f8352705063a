"""Choose as a group whose members know different facts, on tasks of this package in the manner of HiddenBench: a test.

With `data` HiddenBench itself.
"""

from pettingllms_envs.assembly import assemble
from pettingllms_envs.environments.hidden_bench.discussion import FullProfile, GroupDiscussion, SilentDiscussion
from pettingllms_envs.environments.hidden_bench.rules import HiddenBench


raw_env, env, parallel_env = assemble(HiddenBench, __name__, (GroupDiscussion, SilentDiscussion, FullProfile))
