"""Fill the grid so that every row, column and box has each digit once, the clues kept."""

from pettingllms_envs.assembly import DESCRIBER_SOLVER, GAMES, assemble
from pettingllms_envs.environments.sudoku.rules import Sudoku


raw_env, env, parallel_env = assemble(Sudoku, __name__, (*GAMES, DESCRIBER_SOLVER))
