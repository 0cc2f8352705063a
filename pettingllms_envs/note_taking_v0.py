"""Remember readings that pass once in notes of a few digits: two note takers can, and one provably cannot.

The task and its settings: `pettingllms_envs.tasks.note_taking.NoteTaking`; the workflows:
`pettingllms_envs.teams.note_takers`; all other arguments: `pettingllms_envs.assembly.assemble`.
"""

from pettingllms_envs.assembly import assemble
from pettingllms_envs.tasks.note_taking import NoteTaking
from pettingllms_envs.teams.note_takers import FullView, LoneNoteTaker, NoteTakers, SilentNoteTakers


raw_env, env, parallel_env = assemble(NoteTaking, __name__, (NoteTakers, SilentNoteTakers, LoneNoteTaker, FullView))
