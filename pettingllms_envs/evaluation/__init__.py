"""Evaluation that a skeptic would accept: any agents on any environment, every episode on record, honest numbers.

    from pettingllms_envs import evaluation

    rows = evaluation.read(Path("outputs/my_run"))            # docs/records.md has the fields
    evaluation.wilson(83, 200), evaluation.pass_at(4, 16, 3)

The commands `pettingllms bench`, `compare`, `crossplay` and `replay` are its usual door. From the inside out:
`statistics.py` and `metrics.py` (pure: rows to numbers), `agents.py`, `lineup.py`, `api.py` (who replies),
`observing.py` and `play.py` (an episode), `record.py` (the files), `runner.py` (many at once), `bench.py` (all of it
together), `compare.py`, `crossplay.py`, `replay.py`, and `tables.py` (what a terminal shows).
"""

from pettingllms_envs.evaluation.agents import Agent, AgentFailed, AgentRefused, Asked, Reply, Scripted
from pettingllms_envs.evaluation.play import Instance, Rules, episode
from pettingllms_envs.evaluation.record import read, read_header
from pettingllms_envs.evaluation.runner import Folder, Plan, run
from pettingllms_envs.evaluation.statistics import bootstrap, mcnemar, pass_at, wilson


__all__ = [
    "Agent",
    "AgentFailed",
    "AgentRefused",
    "Asked",
    "Folder",
    "Instance",
    "Plan",
    "Reply",
    "Rules",
    "Scripted",
    "bootstrap",
    "episode",
    "mcnemar",
    "pass_at",
    "read",
    "read_header",
    "run",
    "wilson",
]
