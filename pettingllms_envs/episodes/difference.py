"""Finds where two nested values of plain data differ: described, the first place; or all of them."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np


SHOWN = 80  # characters of a text in a report


def difference(expected: Any, got: Any, where: str = "") -> str | None:
    """A description of the first place in which two values of plain data differ; None if they are equal."""
    if type(expected) is type(got):
        if isinstance(expected, Mapping):
            if set(expected) != set(got):
                return f"{where} has the keys: expected {list(expected)}, got {list(got)}"
            found = (difference(expected[key], got[key], f"{where}[{key!r}]" if where else key) for key in expected)
            return next((each for each in found if each is not None), None)
        if isinstance(expected, list | tuple) and len(expected) == len(got):
            pairs = enumerate(zip(expected, got, strict=True))
            items = (difference(one, other, f"{where}[{i}]") for i, (one, other) in pairs)
            return next((each for each in items if each is not None), None)
        if isinstance(expected, np.ndarray):
            equal = expected.shape == got.shape and bool(np.all(expected == got))
        elif isinstance(expected, float):
            equal = expected == got or (math.isnan(expected) and math.isnan(got))
        else:
            equal = bool(expected == got)
        if equal:
            return None
        if isinstance(expected, str):
            at = next((i for i, (a, b) in enumerate(zip(expected, got, strict=False)) if a != b), None)
            at = min(len(expected), len(got)) if at is None else at
            start, end = max(at - SHOWN // 4, 0), at + SHOWN // 2
            return f"{where} from character {start}: expected {expected[start:end]!r}, got {got[start:end]!r}"
    return f"{where}: expected {short(expected)}, got {short(got)}"


def differing(one: Any, other: Any, name: str = "") -> Iterator[tuple[str, Any, Any]]:
    """Each place where two configurations differ, such as `"args.seed"`, and both values; None for a missing one."""
    if isinstance(one, Mapping) and isinstance(other, Mapping):
        for key in dict.fromkeys([*one, *other]):
            yield from differing(one.get(key), other.get(key), f"{name}.{key}" if name else str(key))
    elif one != other:
        yield name, one, other


def short(value: Any) -> str:
    """A value's `repr` for a report, truncated if it is long."""
    if isinstance(value, str) and len(value) > SHOWN:
        return f"{value[: SHOWN // 2]!r}... ({len(value):,} characters)"
    words = repr(value)
    return words if len(words) <= 2 * SHOWN else f"{words[: 2 * SHOWN]}..."
