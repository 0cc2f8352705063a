"""Reads what is observable of an environment's state, to compare it with the state that a branch should start in."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any

from gymnasium.utils.env_checker import data_equivalence
from pettingzoo import AECEnv


CONTEXT = 40
"""Characters that are shown on either side of a difference."""

View = Mapping[str, Any]
"""The observable parts of an environment's state, by name."""


def view_of(env: AECEnv) -> View:
    """The observable state of an environment, without what differs when it is read twice."""
    first, second = look(env), look(env)
    return {name: value for name, value in first.items() if is_same(second.get(name), value)}


def look(env: AECEnv) -> View:
    """All that is observable of an environment's state."""
    agents = read(lambda: list(env.agents))
    view: dict[str, Any] = {
        "agents": agents,
        "agent_selection": read(lambda: env.agent_selection),
        "rewards": read(lambda: {agent: float(reward) for agent, reward in env.rewards.items()}),
        "terminations": read(lambda: {agent: bool(done) for agent, done in env.terminations.items()}),
        "truncations": read(lambda: {agent: bool(done) for agent, done in env.truncations.items()}),
    }
    inner: Any = env.unwrapped
    observe = inner.comparable if hasattr(inner, "comparable") else env.observe
    for agent in agents if isinstance(agents, list) else []:
        view[f"observation of {agent!r}"] = read(partial(observe, agent))
    if hasattr(inner, "state_hash"):
        view["state_hash()"] = read(inner.state_hash)
    return view


def read(reader: Callable[[], Any]) -> Any:
    """A copy of what is read, or the error that reading it raised, so that errors are compared, too."""
    try:
        return copy.deepcopy(reader())
    except Exception as error:  # noqa: BLE001  # the environment is not ours
        return told(error)


def differences(expected: View, found: View) -> Iterator[str]:
    """Names of the expected parts that are not as expected."""
    return (name for name, value in expected.items() if not is_same(found.get(name), value))


def described(name: str, expected: View, found: View) -> str:
    """A difference in words; of two long texts it is marked."""
    one, other = expected[name], found.get(name)
    if isinstance(one, str) and isinstance(other, str) and max(len(one), len(other)) > 2 * CONTEXT:
        one, other = marked(one, other)
    return f"{name}: expected {short(one)}, got {short(other)}"


def marked(one: str, other: str) -> tuple[str, str]:
    """Two texts around the place in which they differ, which is marked: `'at >>>12<<< o'`."""
    start = _num_common(one, other)
    end = _num_common(one[start:][::-1], other[start:][::-1])
    return _marked(one, start, len(one) - end), _marked(other, start, len(other) - end)


def _num_common(one: str, other: str) -> int:
    """Characters with which both texts begin."""
    pairs = zip(one, other, strict=False)
    return next((number for number, (a, b) in enumerate(pairs) if a != b), min(len(one), len(other)))


def _marked(text: str, start: int, end: int) -> str:
    before, after = text[max(0, start - CONTEXT) : start], text[end : end + CONTEXT]
    middle = text[start:end]
    middle = middle if len(middle) <= CONTEXT else f"{middle[:CONTEXT]}..."
    return f"{'...' * (start > CONTEXT)}{before}>>>{middle}<<<{after}{'...' * (end + CONTEXT < len(text))}"


def is_same(one: Any, other: Any) -> bool:
    """Whether two values of plain data, or arrays, are equal."""
    return bool(data_equivalence(one, other, exact=True))


def is_other(view: View, first: View) -> bool:
    """Whether two views differ in a name that both have."""
    return any(not is_same(view[name], first[name]) for name in view.keys() & first.keys())


def told(error: Exception) -> str:
    """An error as one line."""
    return f"{type(error).__name__}: {error}"


def short(value: Any) -> str:
    """A value's `repr`, truncated."""
    said = repr(value)
    return said if len(said) <= 200 else f"{said[:200]}..."


def name_of(env: AECEnv) -> str:
    """The environment's name, for messages."""
    return str(env.metadata.get("name", type(env.unwrapped).__name__))
