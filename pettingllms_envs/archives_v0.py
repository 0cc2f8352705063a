"""Answer questions whose facts lie in two archives: a team can, and who reads one provably cannot."""

from pettingllms_envs.assembly import DESIGNED, assemble
from pettingllms_envs.environments.archives.librarians import WORKFLOWS
from pettingllms_envs.environments.archives.rules import Archives


raw_env, env, parallel_env = assemble(Archives, __name__, (*WORKFLOWS, DESIGNED))
