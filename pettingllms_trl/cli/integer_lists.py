"""Parses fields that are lists of integers, such as ranges of seeds: `0 100`, or a JSON list, on the command line."""

from __future__ import annotations

import json
from collections.abc import Sequence
from contextlib import suppress
from typing import Any, get_type_hints


def names_of_lists(kinds: Sequence[type]) -> list[str]:
    """Names of the dataclasses' fields that are lists of integers."""
    types = (list[int], list[int] | None)
    return [name for kind in kinds for name, hint in get_type_hints(kind).items() if hint in types]


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


def check_integers(name: str, given: Any, where: str) -> None:
    """Raise `ValueError` if a field of a YAML file is neither a list of integers nor empty."""
    if given is not None and not _is_integers(given):
        raise ValueError(
            f"{where} has {name}: {given!r}; expected a list of integers. Write {name}: [{', '.join(_example(name))}]."
        )


def _is_integers(given: Any) -> bool:
    return isinstance(given, list) and all(type(each) is int for each in given)


def _example(name: str) -> Sequence[str]:
    return ("0", "1000") if name.endswith("seeds") else ("1", "2")
