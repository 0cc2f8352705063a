"""Remember readings that pass once in notes of a few digits: two note takers can, and one provably cannot."""

from pettingllms_envs.assembly import assemble
from pettingllms_envs.environments.note_taking.note_takers import FullView, LoneNoteTaker, NoteTakers, SilentNoteTakers
from pettingllms_envs.environments.note_taking.rules import NoteTaking


raw_env, env, parallel_env = assemble(NoteTaking, __name__, (NoteTakers, SilentNoteTakers, LoneNoteTaker, FullView))
