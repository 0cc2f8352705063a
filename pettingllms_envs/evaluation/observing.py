"""What an environment shows of itself: prompts, states, parts of rewards, answers; a stranger's what it has."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from pettingllms_envs.evaluation.agents import Message


CARRIED = ("system", "text", "followup")
"""What an observation may have. A `followup` is the text once more, for an agent that remembers its earlier turns."""


def prompt_of(observation: Any, *, agent: str) -> dict[str, str]:
    """An observation as `{"system": ..., "text": ...}`: a `str`, or a mapping with a text and perhaps a system prompt.

    Lone surrogates, which a reply or a data set may have brought in, and which no server and no tokenizer takes, are
    U+FFFD in it.

    Raises:
        TypeError: It is neither, or has something else besides, such as an image, which no model would be shown.
    """
    if isinstance(observation, str):
        return {"system": "", "text": _encodable(observation)}
    if isinstance(observation, Mapping) and isinstance(observation.get("text"), str):
        _check_carried(observation, agent)
        return {"system": _encodable(observation.get("system") or ""), "text": _encodable(observation["text"])}
    raise TypeError(
        f"agent {agent!r} observes a {type(observation).__name__}; expected text: a str, or a dict with a str under "
        "'text' and perhaps one under 'system'. Wrap the environment so that observe() returns what a model can read."
    )


def _check_carried(observation: Mapping[str, Any], agent: str) -> None:
    """Raise TypeError for a part of an observation that no prompt carries."""
    for key, value in observation.items():
        if key not in CARRIED or not isinstance(value, str | None):
            raise TypeError(
                f"agent {agent!r} observes {key!r}, a {type(value).__name__}; expected text under "
                f"{', '.join(map(repr, CARRIED))} and nothing else, since models are shown texts only. Wrap the "
                "environment so that observe() puts it into the text, or leaves it out."
            )


def messages_of(prompt: Mapping[str, str]) -> tuple[Message, ...]:
    """The prompt as chat messages; an empty system prompt is none."""
    lead = ({"role": "system", "content": prompt["system"]},) if prompt["system"] else ()
    return (*lead, {"role": "user", "content": prompt["text"]})


def state_hash(env: Any) -> str | None:
    """The environment's own hash of its state, where it has one."""
    found = getattr(env.unwrapped, "state_hash", None)
    return None if found is None else str(found())


def parts_of(env: Any) -> dict[str, dict[str, float]] | None:
    """The named parts of the last step's reward by scope, where the environment's snapshots have them."""
    snapshot = getattr(env.unwrapped, "snapshot", None)
    parts = None if snapshot is None else getattr(snapshot(), "parts", None)
    if parts is None:
        return None
    return {scope: {name: float(value) for name, value in named.items()} for scope, named in parts.items()}


def problem_of(env: Any) -> str | None:
    """The id of the data set's problem that is played, where the task's state says: `state.problem.id`."""
    found = getattr(getattr(_task_state(env), "problem", None), "id", None)
    return None if found is None else str(found)


def answer_of(env: Any, outcome: Mapping[str, Any] | None) -> str | None:
    """The answer so far, to be counted for a majority: the outcome's, or `state.answer` of the task."""
    found = (outcome or {}).get("answer", getattr(_task_state(env), "answer", None))
    return None if found is None else str(found)


def _encodable(text: str) -> str:
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return text


def _task_state(env: Any) -> Any:
    snapshot = getattr(env.unwrapped, "snapshot", None)
    return None if snapshot is None else getattr(getattr(snapshot(), "play", None), "task", None)


def plain(value: Any) -> bool | int | float | str | None:
    """A figure of an outcome as plain data; NaN and what is no figure become None, or words."""
    if value is None or isinstance(value, bool | str):
        return value
    if hasattr(value, "item"):
        value = value.item()
    if isinstance(value, int):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    return str(value)
