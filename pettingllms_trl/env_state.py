"""The state of an environment, from which several replies are played: saved and put back, or copied.

An environment with `snapshot()` and `restore()` is put back, and with it what the wrappers around it hold. Any other
environment is copied as a whole.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

from pettingzoo import AECEnv

from pettingllms_envs.copying import deep_copy


LINK = "env"
"""The attribute under which PettingZoo's wrappers hold what they wrap."""
PLAIN = frozenset({bool, bytes, float, int, str, type(None)})
"""Types whose values need no copying."""


class SavedState(NamedTuple):
    """A state to which an environment can be put back as often as needed, or another one made alike, once reset.

    Args:
        snapshot: What the environment's `snapshot()` returned.
        wrappers: Attributes of the wrappers around that environment, the outermost wrapper first.
        stand_ins: Stand for the wrappers and the environment itself where the attributes refer to them. Empty where
            all attributes are plain values, which need no copying.
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
    """The state that an environment is in; `None` where it can only be copied.

    A wrapper's attributes are deep-copied. A wrapper with a `snapshot()` and `restore()` of its own is asked for them
    instead; they then account for all that it wraps. With a wrapper that defines `__deepcopy__`, all is copied.

    Raises:
        Exception: The environment's, or that of an attribute of a wrapper that cannot be copied.
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

    Nothing where there is no such environment, or a wrapper that defines how it is copied. Methods are looked for in
    classes: a wrapper has, by `__getattr__`, those of what it wraps.
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


@lru_cache(maxsize=128)  # asked for every candidate
def _is_restorable(kind: Any) -> bool:
    return hasattr(kind, "snapshot") and hasattr(kind, "restore")
