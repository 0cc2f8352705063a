"""Find by interventions which quantities cause which."""

from pettingllms_envs.assembly import assemble
from pettingllms_envs.environments.laws.graphs import CausalGraphs
from pettingllms_envs.environments.laws.teams import WORKFLOWS


raw_env, env, parallel_env = assemble(CausalGraphs, __name__, WORKFLOWS)
