"""Evaluation that a skeptic would accept: any agents on any environment, every episode on record, honest numbers.

    from pettingllms_envs import evaluation

    rows = evaluation.read(Path("outputs/my_run"))            # docs/records.md has the fields
    evaluation.wilson(83, 200), evaluation.pass_at(4, 16, 3)

The commands `pettingllms bench`, `compare`, `crossplay` and `replay` are its usual door. From the inside out:
`statistics.py` and `metrics.py` (pure: rows to numbers), `agent_pools.py` (which agents reply), `runner.py` (many
episodes at once), `bench.py` (all of it together), `compare.py`, `crossplay.py`, and `tables.py` (what a terminal
shows). The agents themselves are in `pettingllms_envs.agents`; one episode, its row and its files in
`pettingllms_envs.episodes`, whose `files` is `evaluation.record` here.
"""

from pettingllms_envs.agents.base import Agent, AgentFailed, AgentRefused, Reply, Request, Scripted
from pettingllms_envs.episodes import files as record
from pettingllms_envs.episodes.episode import Instance, RunLimits, episode
from pettingllms_envs.episodes.files import read, read_header
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
    "mcnemar",
    "pass_at",
    "read",
    "read_header",
    "record",
    "run",
    "wilson",
]
