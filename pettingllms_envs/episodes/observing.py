"""Reads what an environment exposes: states, reward parts, problems, answers; of a third-party one, what it has."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any


def state_hash(env: Any) -> str | None:
    """The environment's own hash of its state, or None."""
    found = getattr(env.unwrapped, "state_hash", None)
    return None if found is None else str(found())


def parts_of(env: Any) -> dict[str, dict[str, float]] | None:
    """The named parts of the last step's reward by scope, if the environment's snapshots have them."""
    snapshot = getattr(env.unwrapped, "snapshot", None)
    parts = None if snapshot is None else getattr(snapshot(), "parts", None)
    if parts is None:
        return None
    return {scope: {name: float(value) for name, value in named.items()} for scope, named in parts.items()}


def problem_of(env: Any) -> str | None:
    """The id of the data set's problem, if the task's state has one: `state.problem.id`."""
    found = getattr(getattr(_task_state(env), "problem", None), "id", None)
    return None if found is None else str(found)


def answer_of(env: Any, outcome: Mapping[str, Any] | None) -> str | None:
    """The answer so far, to be counted for a majority: the outcome's, or `state.answer` of the task."""
    found = (outcome or {}).get("answer", getattr(_task_state(env), "answer", None))
    return None if found is None else str(found)


def _task_state(env: Any) -> Any:
    snapshot = getattr(env.unwrapped, "snapshot", None)
    return None if snapshot is None else getattr(getattr(snapshot(), "play", None), "task", None)


def plain(value: Any) -> bool | int | float | str | None:
    """A value of an outcome as plain data: NaN becomes None, other objects become text."""
    if value is None or isinstance(value, bool | str):
        return value
    if hasattr(value, "item"):
        value = value.item()
    if isinstance(value, int):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    return str(value)
