"""A user and the assistant of a shop, a library or a telephone company, who need each other's facts and tools."""

from pettingllms_envs.assembly import assemble
from pettingllms_envs.environments.service.rules import Service
from pettingllms_envs.environments.service.talks import WORKFLOWS


raw_env, env, parallel_env = assemble(Service, __name__, WORKFLOWS)
