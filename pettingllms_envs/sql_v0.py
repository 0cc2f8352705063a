"""Answer questions about a database by one query, which is judged on many hidden databases.

With `data` and `databases` Spider, BIRD or SynSQL.
"""

from pettingllms_envs.assembly import assemble
from pettingllms_envs.environments.sql.rules import Sql
from pettingllms_envs.environments.sql.writers import WORKFLOWS


raw_env, env, parallel_env = assemble(Sql, __name__, WORKFLOWS)
