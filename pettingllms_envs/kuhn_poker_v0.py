"""Poker with a card each and one round of betting, for two or three players, each of whom plays for itself.

The task and its settings: `pettingllms_envs.environments.kuhn_poker.rules.KuhnPoker`; all other arguments:
`pettingllms_envs.assembly.assemble`.
"""

from pettingllms_envs.assembly import assemble
from pettingllms_envs.environments.kuhn_poker.rules import KuhnPoker
from pettingllms_envs.teams.match import Match


raw_env, env, parallel_env = assemble(KuhnPoker, __name__, (Match,))
