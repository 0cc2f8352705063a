"""Answer problems of mathematics: of this package, or with `data` of any data set with problems and answers.

The task and its settings: `pettingllms_envs.environments.mathematics.math.Math`; all other arguments:
`pettingllms_envs.assembly.assemble`.
"""

from pettingllms_envs.assembly import assemble
from pettingllms_envs.environments.mathematics.math import Math
from pettingllms_envs.environments.mathematics.single_reasoner import SingleReasoner
from pettingllms_envs.environments.mathematics.tool_reasoner import ToolReasoner
from pettingllms_envs.teams.debate import Debate
from pettingllms_envs.teams.designed import Designed
from pettingllms_envs.teams.ensemble import Ensemble
from pettingllms_envs.teams.self_verification import SelfVerification


WORKFLOWS = (ToolReasoner, SingleReasoner, Ensemble, Debate, SelfVerification, Designed)

raw_env, env, parallel_env = assemble(Math, __name__, WORKFLOWS)
