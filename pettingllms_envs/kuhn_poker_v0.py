"""Poker with a card each and one round of betting, for two or three players, each of whom plays for itself."""

from pettingllms_envs.assembly import assemble
from pettingllms_envs.environments.kuhn_poker.rules import KuhnPoker
from pettingllms_envs.teams.match import Match


raw_env, env, parallel_env = assemble(KuhnPoker, __name__, (Match,))
