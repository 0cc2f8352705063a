"""Answer questions whose facts lie in two databases: a team can, and who queries one provably cannot."""

from pettingllms_envs.assembly import assemble
from pettingllms_envs.environments.archives.librarians import WORKFLOWS
from pettingllms_envs.environments.archives.silos import Silos


raw_env, env, parallel_env = assemble(Silos, __name__, WORKFLOWS)
"""The workflows are those of `archives_v0`."""
