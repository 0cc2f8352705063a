"""Move cubes on a table of which each of two arms reaches a part: a planner and two arms can, and no arm alone."""

from pettingllms_envs.assembly import assemble
from pettingllms_envs.environments.two_arms.rules import TwoArms
from pettingllms_envs.environments.two_arms.teams import WORKFLOWS


raw_env, env, parallel_env = assemble(TwoArms, __name__, WORKFLOWS)
