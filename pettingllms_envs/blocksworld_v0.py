"""Rebuild towers of blocks, a list of moves at a time."""

from pettingllms_envs.assembly import DESCRIBER_SOLVER, GAMES, assemble
from pettingllms_envs.environments.blocksworld.rules import Blocksworld


raw_env, env, parallel_env = assemble(Blocksworld, __name__, (*GAMES, DESCRIBER_SOLVER))
