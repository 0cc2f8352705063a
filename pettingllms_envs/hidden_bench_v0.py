"""Choose as a group whose members know different facts, on tasks of this package in the manner of HiddenBench: a test.

With `data` HiddenBench itself. The task and its settings: `pettingllms_envs.tasks.hidden_bench.HiddenBench`; the
workflows: `pettingllms_envs.teams.discussion`; all other arguments: `pettingllms_envs.assembly.assemble`.
"""

from pettingllms_envs.assembly import assemble
from pettingllms_envs.tasks.hidden_bench import HiddenBench
from pettingllms_envs.teams.discussion import FullProfile, GroupDiscussion, SilentDiscussion


raw_env, env, parallel_env = assemble(HiddenBench, __name__, (GroupDiscussion, SilentDiscussion, FullProfile))
