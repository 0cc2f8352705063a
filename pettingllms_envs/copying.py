"""Copies an environment in the middle of an episode, if it has no `snapshot()` and `restore()`.

The conformance suite and the trainer use the same copies.
"""

from __future__ import annotations

import copy
import gc
from collections.abc import Iterable, Mapping
from logging import Logger
from types import BuiltinFunctionType, FunctionType, ModuleType
from typing import Any

from gymnasium.utils import EzPickle
from pettingzoo import AECEnv


SHARED = (type, ModuleType, FunctionType, BuiltinFunctionType, Logger)
"""Types whose values a deep copy has in common with the original."""


def copy_env(env: AECEnv[Any, Any, Any]) -> AECEnv[Any, Any, Any]:
    """A copy of an environment in its current state.

    It is a deep copy, except for [`~gymnasium.utils.EzPickle`] objects, at any depth: those are copied attribute by
    attribute, because `copy.deepcopy` would call their constructor and so start a new game. A class that defines how
    it is copied, by its own `__deepcopy__`, `__reduce__` or `__getstate__`, is copied that way.

    Raises:
        Exception: From an attribute that cannot be copied.
    """
    twin: AECEnv[Any, Any, Any] = deep_copy(env, {})
    return twin


def deep_copy(value: Any, known: Mapping[int, Any]) -> Any:
    """A deep copy in which the objects with the ids in `known` are replaced by its values."""
    return copy.deepcopy(value, _Memo(known, _with_restarting_copies(value, known)))


class _Memo(dict[int, Any]):
    """The memo of `copy.deepcopy`: copies by id. It copies an `EzPickle` object when that is first looked up."""

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
    """By id, all objects in a value that `copy.deepcopy` would re-create instead of copying, but for `known` ones."""
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
