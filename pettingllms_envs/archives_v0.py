"""Answer questions whose facts lie in two archives: agents who tell each other can, and who reads one provably cannot.

Settings: `environments.archives.rules.Archives`, `librarians`; of every environment: `assembly.assemble`.
"""

from pettingllms_envs.assembly import DESIGNED, assemble
from pettingllms_envs.environments.archives.librarians import WORKFLOWS
from pettingllms_envs.environments.archives.rules import Archives


raw_env, env, parallel_env = assemble(Archives, __name__, (*WORKFLOWS, DESIGNED))
