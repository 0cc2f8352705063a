"""Find the law of an apparatus by experiments, whose worth is exact in bits."""

from pettingllms_envs.assembly import assemble
from pettingllms_envs.environments.laws.rules import Laws
from pettingllms_envs.environments.laws.teams import WORKFLOWS


raw_env, env, parallel_env = assemble(Laws, __name__, WORKFLOWS)
