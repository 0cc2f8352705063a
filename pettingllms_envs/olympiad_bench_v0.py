"""Answer problems of this package in the manner of OlympiadBench, or with `data` its own.

Answers are numbers, expressions, tuples and intervals.

The task and its settings: `pettingllms_envs.environments.mathematics.olympiad_bench`; all other arguments:
`pettingllms_envs.assembly.assemble`.
"""

from pettingllms_envs.assembly import assemble
from pettingllms_envs.environments.mathematics.olympiad_bench import OlympiadBench
from pettingllms_envs.environments.mathematics.single_reasoner import SingleReasoner
from pettingllms_envs.environments.mathematics.tool_reasoner import ToolReasoner
from pettingllms_envs.teams.debate import Debate
from pettingllms_envs.teams.ensemble import Ensemble
from pettingllms_envs.teams.self_verification import SelfVerification


WORKFLOWS = (ToolReasoner, SingleReasoner, Ensemble, Debate, SelfVerification)

raw_env, env, parallel_env = assemble(OlympiadBench, __name__, WORKFLOWS)
