"""Push every box onto a goal, a list of moves at a time.

The task and its settings: `pettingllms_envs.environments.sokoban.rules.Sokoban`; all other arguments:
`pettingllms_envs.assembly.assemble`.
"""

from pettingllms_envs.assembly import GAMES, assemble
from pettingllms_envs.environments.sokoban.rules import Sokoban
from pettingllms_envs.teams.describer_solver import DescriberSolver


raw_env, env, parallel_env = assemble(Sokoban, __name__, (*GAMES, DescriberSolver))
