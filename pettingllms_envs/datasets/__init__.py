"""Loads problems from data sets: rows of the Hub, or of a local file with the same columns.

    from pettingllms_envs.datasets import load

    load("own:apps", split="test").problems                    # the rows that this package ships
    load("my_problems.jsonl", layout="math", split="train")    # columns `problem` and `answer`
    load("codeparrot/apps@<commit>", split="train")            # of the Hub, at a commit

From the inside out: `problems.py` (problems), a file for each layout (`apps.py`, `aime.py`, ...: pure functions from a
row to a problem), `columns.py` and `hub_datasets.py` (their tables), `files.py`, `hub.py` and `prepared.py` (sources
of rows), `sources.py` (resolves what a user names), `loading.py` (`load`), `overlap.py` (common problems of two sets).
"""

from __future__ import annotations

from pettingllms_envs.datasets.columns import LAYOUTS, Layout, answer_columns
from pettingllms_envs.datasets.loading import Bad, Entry, Loaded, entries, load
from pettingllms_envs.datasets.problems import MathProblem, Problem
from pettingllms_envs.datasets.rows import BadRow, LeftOut
from pettingllms_envs.datasets.sources import Source, find_source


__all__ = [
    "LAYOUTS",
    "Bad",
    "BadRow",
    "Entry",
    "Layout",
    "LeftOut",
    "Loaded",
    "MathProblem",
    "Problem",
    "Source",
    "answer_columns",
    "entries",
    "find_source",
    "load",
]
