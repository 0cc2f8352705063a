"""Find a law of two halves by experiments at two benches: a team can, and who sees one bench provably cannot."""

from pettingllms_envs.assembly import assemble
from pettingllms_envs.environments.laws.bench_teams import WORKFLOWS
from pettingllms_envs.environments.laws.benches import Benches


raw_env, env, parallel_env = assemble(Benches, __name__, WORKFLOWS)
