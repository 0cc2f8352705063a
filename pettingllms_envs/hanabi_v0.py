"""Hanabi for two to five players, each of whom sees all cards but its own."""

from pettingllms_envs.assembly import assemble
from pettingllms_envs.environments.hanabi.rules import Hanabi
from pettingllms_envs.teams.cooperative import AdHoc, CooperativeTeam


raw_env, env, parallel_env = assemble(Hanabi, __name__, (CooperativeTeam, AdHoc))
