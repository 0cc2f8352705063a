"""Answer problems of AIME: a whole number from 0 to 999 each.

The task and its settings: `pettingllms_envs.tasks.aime.Aime`; all other arguments:
`pettingllms_envs.assembly.assemble`.
"""

from pettingllms_envs.assembly import assemble
from pettingllms_envs.tasks.aime import Aime
from pettingllms_envs.workflows.single_reasoner import SingleReasoner
from pettingllms_envs.workflows.tool_reasoner import ToolReasoner


raw_env, env, parallel_env = assemble(Aime, __name__, (ToolReasoner, SingleReasoner))
