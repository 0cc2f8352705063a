"""Move queens until none attacks another, where some are fixed."""

from pettingllms_envs.assembly import DESCRIBER_SOLVER, GAMES, assemble
from pettingllms_envs.environments.eight_queens.rules import EightQueens


raw_env, env, parallel_env = assemble(EightQueens, __name__, (*GAMES, DESCRIBER_SOLVER))
