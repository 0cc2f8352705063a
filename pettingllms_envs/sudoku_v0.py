"""Fill the grid so that every row, column and box has each digit once, the clues kept.

The task and its settings: `pettingllms_envs.tasks.sudoku.Sudoku`; all other arguments:
`pettingllms_envs.assembly.assemble`.
"""

from pettingllms_envs.assembly import assemble
from pettingllms_envs.tasks.sudoku import Sudoku


raw_env, env, parallel_env = assemble(Sudoku, __name__)
