"""Push every box onto a goal, a list of moves at a time."""

from pettingllms_envs.assembly import DESCRIBER_SOLVER, GAMES, assemble
from pettingllms_envs.environments.sokoban.rules import Sokoban


raw_env, env, parallel_env = assemble(Sokoban, __name__, (*GAMES, DESCRIBER_SOLVER))
