"""Walk to the goal on a grid with blocked cells, a list of moves at a time."""

from pettingllms_envs.assembly import DESCRIBER_SOLVER, DESIGNED, GAMES, assemble
from pettingllms_envs.environments.plan_path.rules import PlanPath


raw_env, env, parallel_env = assemble(PlanPath, __name__, (*GAMES, DESCRIBER_SOLVER, DESIGNED))
