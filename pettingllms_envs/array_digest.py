"""States with arrays as text, for digests: `repr` shows only some elements of an array."""

from __future__ import annotations

import dataclasses
import hashlib
import operator
import sys
from collections.abc import Mapping
from typing import Any

import numpy as np

from pettingllms_envs.state_digest import ARRAY


def written(value: Any) -> str:
    """Everything that there is to say about a value made of numbers, texts, bytes, arrays, tuples and mappings.

    Without arrays it is `repr(value)`, byte for byte.

    Raises:
        TypeError: An array can be written to, so that a snapshot would not keep it, holds objects, or is masked.
    """
    text = repr(value)
    if ARRAY not in text:
        return text
    with np.printoptions(
        threshold=sys.maxsize, floatmode="unique"
    ):  # of arrays inside objects that are not looked into
        return repr(_with_digests(value))


class _Digest:
    """Stands for an array in a `repr`."""

    def __init__(self, array: np.ndarray[Any, Any]) -> None:
        if type(array) is not np.ndarray or array.flags.writeable or array.dtype.hasobject:
            given = "holds objects" if array.dtype.hasobject else "can be written to"
            if type(array) is not np.ndarray:
                given = f"is a {type(array).__name__}"
            raise TypeError(
                f"an array of shape {array.shape} in a state {given}; expected a read-only array of numbers. Call "
                "array.setflags(write=False)."
            )
        content = hashlib.sha256(np.ascontiguousarray(array).tobytes()).hexdigest()
        self._text = f"array({array.dtype.str}, {array.shape}, {content})"

    def __repr__(self) -> str:
        return self._text


def _with_digests(value: Any) -> Any:
    """The value with its arrays replaced; equal to it, and the very same object, if there are none."""
    if isinstance(value, np.ndarray):
        return _Digest(value)
    if isinstance(value, Mapping):
        found = {_with_digests(key): _with_digests(each) for key, each in value.items()}
        return value if all(map(operator.is_, found.values(), value.values())) else found
    if isinstance(value, list | tuple):
        items = [_with_digests(each) for each in value]
        if all(map(operator.is_, items, value)):
            return value
        make = getattr(type(value), "_make", type(value))  # of a named tuple
        return make(items)
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        fields = [field.name for field in dataclasses.fields(value) if field.repr]
        items = [_with_digests(getattr(value, name)) for name in fields]
        if all(each is getattr(value, name) for name, each in zip(fields, items, strict=True)):
            return value
        return (type(value).__qualname__, *zip(fields, items, strict=True))
    return value
