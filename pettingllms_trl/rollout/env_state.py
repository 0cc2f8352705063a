"""Saves, restores, copies and compares the state of an environment, so that several replies can be played from it.

An environment with `snapshot()` and `restore()` is restored, together with the attributes of the wrappers around it.
Any other environment is copied as a whole. `view_of` reads what is observable of a state, to check that this was
exact.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache, partial
from typing import Any, NamedTuple

from gymnasium.utils.env_checker import data_equivalence
from pettingzoo import AECEnv

from pettingllms_envs.copying import deep_copy


View = Mapping[str, Any]
"""The observable parts of an environment's state, by name."""


def view_of(env: AECEnv) -> View:
    """The observable state of an environment, without what differs when it is read twice."""
    first, second = look(env), look(env)
    return {name: value for name, value in first.items() if data_equivalence(second.get(name), value, exact=True)}


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
    for agent in agents if isinstance(agents, list) else []:
        view[f"observation of {agent!r}"] = read(partial(env.observe, agent))
    if hasattr(type(env.unwrapped), "state_hash"):
        view["state_hash()"] = read(env.unwrapped.state_hash)
    return view


def read(reader: Callable[[], Any]) -> Any:
    """A copy of what is read, or the error that reading it raised, so that errors are compared, too."""
    try:
        return copy.deepcopy(reader())
    except Exception as error:  # noqa: BLE001  # the environment is not ours
        return told(error)


def is_other(view: View, first: View) -> bool:
    """Whether two views differ in a name that both have."""
    return any(not data_equivalence(view[name], first[name], exact=True) for name in view.keys() & first.keys())


def told(error: Exception) -> str:
    """An error as one line."""
    return f"{type(error).__name__}: {error}"


def short(value: Any) -> str:
    """A value's `repr`, truncated."""
    said = repr(value)
    return said if len(said) <= 200 else f"{said[:200]}..."


LINK = "env"
"""The attribute under which PettingZoo's wrappers hold what they wrap."""
PLAIN = frozenset({bool, bytes, float, int, str, type(None)})
"""Types whose values need no copying."""


class SavedState(NamedTuple):
    """A state to which an environment, or another one made the same way and reset, can be restored repeatedly.

    Args:
        snapshot: What the environment's `snapshot()` returned.
        wrappers: Attributes of the wrappers around that environment, the outermost wrapper first.
        stand_ins: Placeholders for the wrappers and the environment itself where the attributes refer to them. Empty
            if all attributes are plain values, which need no copying.
    """

    snapshot: Any
    wrappers: Sequence[Mapping[str, Any]] = ()
    stand_ins: Sequence[object] = ()

    def restore(self, env: AECEnv) -> None:
        """Put an environment into this state."""
        wrappers: Sequence[Mapping[str, Any]] = self.wrappers
        if self.stand_ins:
            layers = dict(zip(map(id, self.stand_ins), _layers(env), strict=True))
            wrappers = deep_copy(wrappers, layers)
        layer = env
        for attributes in wrappers:
            own = vars(layer)
            inner = own[LINK]
            own.clear()
            own.update(attributes)
            own[LINK] = layer = inner
        layer.restore(self.snapshot)


def save_state(env: AECEnv) -> SavedState | None:
    """Save the state of an environment; `None` if it can only be copied.

    A wrapper's attributes are deep-copied, unless the wrapper has its own `snapshot()` and `restore()`, which then
    cover all that it wraps. With a wrapper that defines `__deepcopy__`, the whole environment is copied.

    Raises:
        Exception: From the environment, or from an attribute of a wrapper that cannot be copied.
    """
    kind: Any = type(env)
    if _is_restorable(kind):
        return SavedState(env.snapshot())
    layers = _layers(env)
    if not layers:
        return None
    *wrappers, restorable = layers
    snapshot = restorable.snapshot()
    attributes, is_plain = [], True
    for wrapper in wrappers:
        own = vars(wrapper).copy()
        del own[LINK]
        attributes.append(own)
        is_plain = is_plain and PLAIN.issuperset(map(type, own.values()))
    if is_plain:
        return SavedState(snapshot, attributes)
    stand_ins = [object() for _ in layers]
    known = dict(zip(map(id, layers), stand_ins, strict=True))
    return SavedState(snapshot, deep_copy(attributes, known), stand_ins)


def _layers(env: AECEnv) -> list[Any]:
    """The wrappers around the environment that can be restored, the outermost first, and that environment.

    Empty if there is no such environment, or if a wrapper defines how it is copied. Methods are looked up in classes,
    since a wrapper's `__getattr__` gives it those of what it wraps.
    """
    layers: list[Any] = [env]
    innermost: Any = env.unwrapped
    kind: Any = type(env)
    while not _is_restorable(kind):
        wrapper = layers[-1]
        if wrapper is innermost or LINK not in vars(wrapper) or hasattr(kind, "__deepcopy__"):
            return []
        layers.append(vars(wrapper)[LINK])
        kind = type(layers[-1])
    return layers


@lru_cache(maxsize=128)  # called for every candidate
def _is_restorable(kind: Any) -> bool:
    return hasattr(kind, "snapshot") and hasattr(kind, "restore")
