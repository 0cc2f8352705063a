"""The state of an environment, from which several replies are played: saved and put back, or copied.

An environment with `snapshot()` and `restore()` is put back, and with it what the wrappers around it hold. Any other
environment is copied as a whole.
"""

from __future__ import annotations

import copy
import gc
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from logging import Logger
from types import BuiltinFunctionType, FunctionType, ModuleType
from typing import Any

from gymnasium.utils import EzPickle
from pettingzoo import AECEnv


LINK = "env"
"""The attribute under which PettingZoo's wrappers hold what they wrap."""
PLAIN = frozenset({bool, bytes, float, int, str, type(None)})
"""Types whose values need no copying."""
SHARED = (type, ModuleType, FunctionType, BuiltinFunctionType, Logger)
"""Types whose values a deep copy has in common with the original."""


@dataclass(frozen=True, slots=True)
class SavedState:
    """A state to which an environment can be put back as often as needed; or another one that was made alike and reset.

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
        wrappers, restorable = _layers(env)
        restorable.restore(self.snapshot)
        kept = self.wrappers
        if self.stand_ins:
            layers = dict(zip(map(id, self.stand_ins), [*wrappers, restorable], strict=True))
            kept = _deep_copy(kept, layers)
        for wrapper, attributes in zip(wrappers, kept, strict=True):
            own = vars(wrapper)
            link = {} if LINK in attributes else {LINK: own[LINK]}
            own.clear()
            own.update(attributes, **link)


def save_state(env: AECEnv) -> SavedState | None:
    """The state that an environment is in; `None` where it can only be copied.

    A wrapper's attributes are deep-copied. A wrapper with a `snapshot()` and `restore()` of its own is asked for them
    instead; they then account for all that it wraps.

    Raises:
        Exception: The environment's, or that of an attribute of a wrapper that cannot be copied.
    """
    wrappers, restorable = _layers(env)
    if restorable is None:
        return None
    snapshot = restorable.snapshot()
    if not wrappers:
        return SavedState(snapshot)
    inner = [*wrappers[1:], restorable]
    attributes = [
        {name: value for name, value in vars(wrapper).items() if name != LINK or value is not next_one}
        for wrapper, next_one in zip(wrappers, inner, strict=True)
    ]
    if all(type(value) in PLAIN for own in attributes for value in own.values()):
        return SavedState(snapshot, attributes)
    layers = [*wrappers, restorable]
    stand_ins = [object() for _ in layers]
    kept = _deep_copy(attributes, dict(zip(map(id, layers), stand_ins, strict=True)))
    return SavedState(snapshot, kept, stand_ins)


def copy_env(env: AECEnv) -> AECEnv:
    """A copy of an environment in the state that it is in.

    It is a deep copy, but for objects that are a [`~gymnasium.utils.EzPickle`], at any depth: those are copied
    attribute by attribute, where `copy.deepcopy` would call their constructor and so begin a new game. What a class says
    about its copies itself, by `__deepcopy__`, `__reduce__` or a `__getstate__` of its own, holds.

    Raises:
        Exception: Of an attribute that cannot be copied.
    """
    twin: AECEnv = _deep_copy(env, {})
    return twin


def _layers(env: AECEnv) -> tuple[list[Any], Any]:
    """The wrappers around the environment that can be restored, the outermost first, and that environment or `None`.

    Methods are looked for in classes, since a wrapper has those of what it wraps, too.
    """
    wrappers: list[Any] = []
    layer, innermost = env, env.unwrapped
    while not (hasattr(type(layer), "snapshot") and hasattr(type(layer), "restore")):
        if layer is innermost:
            return [], None
        wrappers.append(layer)
        layer = vars(layer).get(LINK, innermost)
    return wrappers, layer


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
            twin = self[key] = type(original).__new__(type(original))
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
