"""What can be seen of an environment's state, to compare it with another's."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from gymnasium.utils.env_checker import data_equivalence
from pettingzoo import AECEnv


View = Mapping[str, Any]
"""What can be seen of an environment's state, by name."""


def view_of(env: AECEnv) -> View:
    """What is to be seen of an environment's state, without what differs when it is looked at twice."""
    first, second = look(env), look(env)
    return {name: value for name, value in first.items() if data_equivalence(second.get(name), value, exact=True)}


def look(env: AECEnv) -> View:
    """All that is to be seen of an environment's state."""
    agents = read(lambda: list(env.agents))
    view: dict[str, Any] = {
        "agents": agents,
        "agent_selection": read(lambda: env.agent_selection),
        "rewards": read(lambda: {agent: float(reward) for agent, reward in env.rewards.items()}),
        "terminations": read(lambda: {agent: bool(done) for agent, done in env.terminations.items()}),
        "truncations": read(lambda: {agent: bool(done) for agent, done in env.truncations.items()}),
    }
    for agent in agents if isinstance(agents, list) else []:
        view[f"observation of {agent!r}"] = read(partial(env.observe, agent))
    if hasattr(type(env.unwrapped), "state_hash"):
        view["state_hash()"] = read(env.unwrapped.state_hash)
    return view


def read(reader: Callable[[], Any]) -> Any:
    """A copy of what is read; or what reading it raised, so that this is compared."""
    try:
        return copy.deepcopy(reader())
    except Exception as error:  # noqa: BLE001  # the environment is not ours
        return told(error)


def is_other(view: View, first: View) -> bool:
    """Whether two views differ in what both have."""
    return any(not data_equivalence(view[name], first[name], exact=True) for name in view.keys() & first.keys())


def told(error: Exception) -> str:
    """An error in a line."""
    return f"{type(error).__name__}: {error}"


def short(value: Any) -> str:
    """A value's `repr`, cut."""
    said = repr(value)
    return said if len(said) <= 200 else f"{said[:200]}..."
