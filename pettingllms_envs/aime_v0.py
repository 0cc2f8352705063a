"""Answer problems of this package in the manner of AIME, or with `year=2024` the exam's own: whole numbers to 999."""

from pettingllms_envs.assembly import assemble
from pettingllms_envs.environments.mathematics import WORKFLOWS
from pettingllms_envs.environments.mathematics.aime import Aime


raw_env, env, parallel_env = assemble(Aime, __name__, WORKFLOWS)
