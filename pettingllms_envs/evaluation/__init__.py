"""Evaluates any agents on any environment, records every episode, and reports success rates with intervals.

    from pettingllms_envs import evaluation

    rows = evaluation.read(Path("outputs/my_run"))            # docs/records.md has the fields
    evaluation.frame("outputs/bench")                         # all runs for pandas
    evaluation.wilson(83, 200), evaluation.pass_at(4, 16, 3)

It is mostly used through the commands `pettingllms bench`, `compare` and `replay`. From the inside out:
`statistics.py` and `metrics.py` (pure: from rows to numbers), `agent_pools.py` (creates the agents), `runner.py`
(plays many episodes concurrently), `bench.py` (a whole benchmark), `compare.py`, and `tables.py` (terminal output).
The agents themselves are in `pettingllms_envs.agents`; episodes, their rows and files are in
`pettingllms_envs.episodes`, whose `files` is `evaluation.record` here.
"""

from pettingllms_envs.agents.base import Agent, AgentFailed, AgentRefused, Reply, Request, Scripted
from pettingllms_envs.episodes import files as record
from pettingllms_envs.episodes.episode import Instance, RunLimits, episode
from pettingllms_envs.episodes.files import read, read_header
from pettingllms_envs.evaluation.frames import frame
from pettingllms_envs.evaluation.runner import Folder, Plan, run
from pettingllms_envs.evaluation.statistics import bootstrap, mcnemar, pass_at, wilson


Asked, Rules = Request, RunLimits
"""Their earlier names."""

__all__ = [
    "Agent",
    "AgentFailed",
    "AgentRefused",
    "Asked",
    "Folder",
    "Instance",
    "Plan",
    "Reply",
    "Request",
    "Rules",
    "RunLimits",
    "Scripted",
    "bootstrap",
    "episode",
    "frame",
    "mcnemar",
    "pass_at",
    "read",
    "read_header",
    "record",
    "run",
    "wilson",
]
