"""Checks the types of fields, and parses lists of integers, such as ranges of seeds: `0 100`, or a JSON list, on the
command line."""

from __future__ import annotations

import json
from collections.abc import Sequence
from contextlib import suppress
from enum import Enum
from types import UnionType
from typing import Any, Union, get_args, get_origin


LISTS = (list[int], list[int] | None)
_WORDS = {bool: "true or false", int: "a whole number", float: "a number", str: "a text, in quotes"}


def checked(name: str, given: Any, hint: Any, where: str) -> Any:
    """A value of a file, as an integer if the field is one. Texts are converted as those of the command line are.

    Raises:
        ValueError: It is not of the field's type.
    """
    if hint in LISTS and given is not None and not _is_integers(given):
        raise ValueError(
            f"{where} has {name}: {given!r}; expected a list of integers. Write {name}: [{', '.join(_example(name))}]."
        )
    is_union = isinstance(hint, UnionType) or get_origin(hint) is Union
    kinds = [kind for kind in (get_args(hint) if is_union else [hint]) if kind is not type(None)]
    others = [kind for kind in kinds if not (isinstance(kind, type) and issubclass(kind, Enum))]
    if given is None or isinstance(given, str) or len(others) != 1 or others[0] not in _WORDS:
        return given
    (kind,) = others
    if kind is int and isinstance(given, float) and given.is_integer():
        return int(given)
    accepted = {float: (int, float), str: (int, float, bool) if others == kinds else ()}.get(kind, (kind,))
    if type(given) not in accepted:
        raise ValueError(f"{where} has {name}: {given!r}; expected {_WORDS[kind]}. Correct it.")
    return given


def with_lists_apart(argv: Sequence[str], lists: Sequence[str]) -> list[str]:
    """The arguments with JSON lists of integers, `--train_seeds "[0, 100]"`, for the fields `lists`, as argparse takes
    them."""
    parts: list[str] = []
    place = 0
    while place < len(argv):
        option, equals, value = argv[place].partition("=")
        place += 1
        name = option.removeprefix("--").replace("-", "_")
        if not option.startswith("--") or name not in lists:
            parts.append(argv[place - 1])
            continue
        values = [value] if equals else []
        while place < len(argv) and not argv[place].startswith("--"):
            values.append(argv[place])
            place += 1
        parts += [option, *map(str, _integers(name, " ".join(values)))]
    return parts


def _integers(name: str, text: str) -> list[int]:
    """`"0 100"` and `"[0, 100]"` are `[0, 100]`."""
    with suppress(ValueError):
        return [int(each) for each in text.split()]
    with suppress(json.JSONDecodeError):
        given = json.loads(text)
        if _is_integers(given):
            return list(given)
    numbers = _example(name)
    raise ValueError(
        f"--{name} is {text!r}; expected integers. Write --{name} {' '.join(numbers)}, or --{name} "
        f"'[{', '.join(numbers)}]'."
    )


def _is_integers(given: Any) -> bool:
    return isinstance(given, list) and all(type(each) is int for each in given)


def _example(name: str) -> Sequence[str]:
    return ("0", "1000") if name.endswith("seeds") else ("1", "2")
