"""Writes a design that is on record as Python source: what `scaffold/design_v0.py.txt` leaves open.

The record may be somebody else's. Its design is read and not run, and jobs become string literals.
"""

from __future__ import annotations

import dataclasses
import re
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pettingllms_envs
from pettingllms_envs.core import Unreadable
from pettingllms_envs.episodes import files
from pettingllms_envs.episodes.observing import workflow_of
from pettingllms_envs.teams.design_team import DesignTeam
from pettingllms_envs.teams.designed import Designed
from pettingllms_envs.teams.designs import Design, read_design


CARRIED = ("view", "role_tools")
"""Settings that change prompts, and belong neither to the task nor to the team."""

_PIECE = re.compile(r".{1,88}(?:\s|$)|.{1,88}", re.S)


def design_source(run: Path, number: int) -> Mapping[str, str]:
    """The texts of the placeholders by name, for a run's episode, which is counted from 1 as on the run's page."""
    header, rows = files.read_header(run), files.read(run)
    if not 1 <= number <= len(rows):
        raise ValueError(f"--episode is {number}, and {run} has {len(rows)}; expected one of them, from 1.")
    name, settings = files.remade(header, rows[number - 1])
    env = pettingllms_envs.make(name, **settings)
    workflow, where = workflow_of(env), f"episode {number} of {run}"
    if not isinstance(workflow, Designed):
        raise ValueError(f"{where} is one of {name}, in which nobody designs; expected workflow=designed.")
    if foreign := [key for key in CARRIED if env.metadata["settings"].get(key)]:
        raise ValueError(f"{where} was played with {foreign[0]}; expected it without, for the team would not have it.")
    design = read_design(rows[number - 1]["steps"][0]["reply"], workflow.limits)
    if isinstance(design, Unreadable):
        raise ValueError(f"{where} has no design: {design.reason}; expected one. Name another episode.")
    task = type(workflow.task)
    named = getattr(sys.modules[task.__module__], task.__qualname__, None)  # the task is of a subclass
    if named is None or not issubclass(task, named):
        raise ValueError(f"{where} is on the task {task.__qualname__!r}; expected a class that a module has.")
    return {
        "TASK_MODULE": task.__module__,
        "TASK_CLASS": task.__qualname__,
        "TASK_SETTINGS": _settings(workflow.task, task),
        "TEAM_SETTINGS": _settings(workflow, DesignTeam),
        "DESIGN_MEMBERS": _members(design),
        "DESIGN_ROUNDS": str(design.rounds),
    }


def _settings(made: Any, kind: type[Any]) -> str:
    """The settings of a task or workflow that differ from their defaults, as fields of a dataclass."""
    fields = [each for each in dataclasses.fields(kind) if each.init and each.repr and each.name != "task"]
    changed = [each for each in fields if getattr(made, each.name) != each.default]
    lines = [f"    {each.name}: {each.type} = {_literal(getattr(made, each.name))}" for each in changed]
    return "\n".join(["\n", *lines]) if lines else ""


def _members(design: Design) -> str:
    lines: list[str] = []
    for job, reads, tools in design.members:
        pieces = [f"    {_literal(piece)}" for piece in _PIECE.findall(job)]
        pieces[-1] += ","
        lines += ["Member(", *pieces, f"    reads={reads!r},", f"    tools={_literal(tools)},", "),"]
    return "\n".join(f"            {line}" for line in lines)


def _literal(value: Any) -> str:
    """Python source of a value, with double quotes where nothing in it has to be escaped for them."""
    source = repr(value)
    return source if '"' in source or "\\'" in source else source.replace("'", '"')
