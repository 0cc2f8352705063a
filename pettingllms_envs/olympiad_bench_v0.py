"""Answer problems of this package in the manner of OlympiadBench, or with `data` its own.

Answers are numbers, expressions, tuples and intervals.
"""

from pettingllms_envs.assembly import assemble
from pettingllms_envs.environments.mathematics import WORKFLOWS
from pettingllms_envs.environments.mathematics.olympiad_bench import OlympiadBench


raw_env, env, parallel_env = assemble(OlympiadBench, __name__, WORKFLOWS)
