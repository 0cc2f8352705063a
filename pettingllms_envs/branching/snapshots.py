"""Saves and restores the state of an environment with `snapshot()` and `restore()`, and of the wrappers around it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

from pettingzoo import AECEnv

from pettingllms_envs.branching.replay import ReplayPoint
from pettingllms_envs.copying import deep_copy


LINK = "env"
"""The attribute under which PettingZoo's wrappers hold what they wrap."""
PLAIN = frozenset({bool, bytes, float, int, str, type(None)})
"""Types whose values need no copying."""


class SavedState(NamedTuple):
    """A state to which an environment, or another one made the same way and reset, can be restored repeatedly.

    Args:
        wrappers: Attributes of the wrappers around that environment, the outermost wrapper first.
        stand_ins: Placeholders for the wrappers and the environment itself where the attributes refer to them. Empty
            if all attributes are plain values, which need no copying.
    """

    snapshot: Any
    wrappers: Sequence[Mapping[str, Any]] = ()
    stand_ins: Sequence[object] = ()

    @classmethod
    def of(cls, env: AECEnv) -> SavedState:
        """Save the state of an environment that has `snapshot()` and `restore()`, or is in wrappers around one.

        A wrapper's attributes are deep-copied, unless its own `snapshot()` and `restore()` cover all inside it.

        Raises:
            Exception: From the environment, or from an attribute of a wrapper that cannot be copied.
        """
        kind: Any = type(env)
        if _is_restorable(kind):
            return cls(env.snapshot())
        layers = layers_of(env)
        assert layers, f"{env} has no snapshot() and restore()"
        *wrappers, restorable = layers
        snapshot = restorable.snapshot()
        attributes, is_plain = [], True
        for wrapper in wrappers:
            own = vars(wrapper).copy()
            del own[LINK]
            attributes.append(own)
            is_plain = is_plain and PLAIN.issuperset(map(type, own.values()))
        if is_plain:
            return cls(snapshot, attributes)
        stand_ins = [object() for _ in layers]
        known = dict(zip(map(id, layers), stand_ins, strict=True))
        return cls(snapshot, deep_copy(attributes, known), stand_ins)

    @property
    def is_replayed(self) -> bool:
        """Whether the state is returned to by playing the same actions again."""
        return isinstance(self.snapshot, ReplayPoint)

    def restore(self, env: AECEnv, on_call: Callable[[], object] = lambda: None) -> None:
        """Put an environment into this state.

        Args:
            on_call: Called after each call of an environment that is replayed.

        Raises:
            ReplayError: An environment that is replayed is in another state.
        """
        wrappers: Sequence[Mapping[str, Any]] = self.wrappers
        if self.stand_ins:
            layers = dict(zip(map(id, self.stand_ins), layers_of(env), strict=True))
            wrappers = deep_copy(wrappers, layers)
        layer: Any = env
        for attributes in wrappers:
            own = vars(layer)
            inner = own[LINK]
            own.clear()
            own.update(attributes)
            own[LINK] = layer = inner
        if self.is_replayed:
            layer.restore(self.snapshot, on_call)
        else:
            layer.restore(self.snapshot)


def has_snapshots(env: AECEnv) -> bool:
    """Whether an environment has `snapshot()` and `restore()`, whatever is around it."""
    innermost: Any = type(env.unwrapped)
    return bool(layers_of(env)) or _is_restorable(innermost)


def layers_of(env: AECEnv) -> list[Any]:
    """The wrappers around the environment that can be restored, the outermost first, and that environment.

    Empty if there is no such environment, or if a wrapper defines how it is copied. Methods are looked up in classes,
    since a wrapper's `__getattr__` gives it those of what it wraps.
    """
    layers: list[Any] = [env]
    kind: Any = type(env)
    if _is_restorable(kind):  # the commonest case, at each turn
        return layers
    innermost: Any = env.unwrapped
    while not _is_restorable(kind):
        wrapper = layers[-1]
        if wrapper is innermost or LINK not in vars(wrapper) or hasattr(kind, "__deepcopy__"):
            return []
        layers.append(vars(wrapper)[LINK])
        kind = type(layers[-1])
    return layers


@lru_cache(maxsize=128)  # called for every candidate
def _is_restorable(kind: Any) -> bool:
    return all(callable(getattr(kind, name, None)) for name in ("snapshot", "restore"))
