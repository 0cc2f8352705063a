"""Walk to the goal on a grid with blocked cells, a list of moves at a time.

The task and its settings: `pettingllms_envs.environments.plan_path.rules.PlanPath`; all other arguments:
`pettingllms_envs.assembly.assemble`.
"""

from pettingllms_envs.assembly import GAMES, assemble
from pettingllms_envs.environments.plan_path.rules import PlanPath
from pettingllms_envs.teams.describer_solver import DescriberSolver
from pettingllms_envs.teams.designed import Designed


raw_env, env, parallel_env = assemble(PlanPath, __name__, (*GAMES, DescriberSolver, Designed))
