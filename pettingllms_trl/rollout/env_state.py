"""The state of an environment, from which several replies are played: saved and put back, or copied.

An environment with `snapshot()` and `restore()` is put back, and with it what the wrappers around it hold. Any other
environment is copied as a whole.
"""

from __future__ import annotations

import copy
import gc
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from logging import Logger
from types import BuiltinFunctionType, FunctionType, ModuleType
from typing import Any, NamedTuple

from gymnasium.utils import EzPickle
from pettingzoo import AECEnv


LINK = "env"
"""The attribute under which PettingZoo's wrappers hold what they wrap."""
PLAIN = frozenset({bool, bytes, float, int, str, type(None)})
"""Types whose values need no copying."""
SHARED = (type, ModuleType, FunctionType, BuiltinFunctionType, Logger)
"""Types whose values a deep copy has in common with the original."""


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
            wrappers = _deep_copy(wrappers, layers)
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
    return SavedState(snapshot, _deep_copy(attributes, known), stand_ins)


def copy_env(env: AECEnv) -> AECEnv:
    """A copy of an environment in the state that it is in.

    It is a deep copy, but for objects that are a [`~gymnasium.utils.EzPickle`], at any depth: those are copied
    attribute by attribute, where `copy.deepcopy` would call their constructor and so begin a new game. A class that
    defines how it is copied, by `__deepcopy__`, `__reduce__` or a `__getstate__` of its own, is copied that way.

    Raises:
        Exception: Of an attribute that cannot be copied.
    """
    twin: AECEnv = _deep_copy(env, {})
    return twin


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


def _deep_copy(value: Any, known: Mapping[int, Any]) -> Any:
    """A deep copy in which the objects with the ids in `known` are replaced by its values."""
    return copy.deepcopy(value, _Memo(known, _with_restarting_copies(value, known)))


class _Memo(dict[int, Any]):
    """What `copy.deepcopy` has copied so far, by id; it copies an `EzPickle` object when that is first asked for."""

    def __init__(self, known: Mapping[int, Any], restarting: Mapping[int, Any]) -> None:
        super().__init__(known)
        self._restarting = restarting

    def get(self, key: int, default: Any = None) -> Any:
        """The copy of the object with that id."""
        if key in self._restarting and key not in self:
            original = self._restarting[key]
            kind: Any = type(original)
            twin = self[key] = kind.__new__(kind)
            vars(twin).update(copy.deepcopy(vars(original), self))
        return super().get(key, default)


def _with_restarting_copies(value: Any, known: Iterable[int]) -> dict[int, Any]:
    """By id, all objects in a value that `copy.deepcopy` would make anew instead of copying them.

    Args:
        value: Anything.
        known: Ids of objects at which to stop.
    """
    found: dict[int, Any] = {}
    seen = set(known)
    latest = {id(value): value}
    while latest:
        seen.update(latest)
        found.update((key, each) for key, each in latest.items() if _restarts(type(each)))
        latest = {
            id(each): each
            for each in gc.get_referents(*latest.values())
            if gc.is_tracked(each) and id(each) not in seen and not issubclass(type(each), SHARED)
        }
    return found


def _restarts(kind: type) -> bool:
    """Whether a copy of such an object would be made by its constructor."""
    return (
        issubclass(kind, EzPickle)
        and kind.__getstate__ is EzPickle.__getstate__
        and kind.__reduce__ is object.__reduce__
        and kind.__reduce_ex__ is object.__reduce_ex__
        and not hasattr(kind, "__deepcopy__")
    )
