"""Answer problems of mathematics: of this package, or with `data` of any data set with problems and answers."""

from pettingllms_envs.assembly import DESIGNED, assemble
from pettingllms_envs.environments.mathematics import WORKFLOWS
from pettingllms_envs.environments.mathematics.math import Math


raw_env, env, parallel_env = assemble(Math, __name__, (*WORKFLOWS, DESIGNED))
