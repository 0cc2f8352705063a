"""Checks single values of a study file; the errors name where they are. Needs no torch."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any


_NAME = re.compile(r"[\w.+-]+")


def mapping(where: str, given: Any) -> Mapping[str, Any]:
    """The value, which is a mapping."""
    if not isinstance(given, Mapping):
        raise ValueError(f"{where} is {given!r}; expected a mapping, one `name: value` a line.")
    return given


def check_known(where: str, given: Mapping[str, Any], known: set[str]) -> None:
    """Raise `ValueError` for a name that is not known."""
    for name in given:
        if name not in known:
            raise ValueError(f"{where} has {name!r}; expected some of {', '.join(sorted(known))}.")


def name_of(where: str, given: Any) -> str:
    """A name that can be a folder's."""
    if not isinstance(given, str) or not _NAME.fullmatch(given) or given in (".", ".."):
        raise ValueError(
            f"{where} has the name {given!r}; expected letters, digits, and any of _ . + -, such as at_grpo."
        )
    return given


def seeds_of(where: str, given: Any) -> tuple[int, ...]:
    """Seeds: at least one, all different."""
    is_list = isinstance(given, list) and given and all(isinstance(n, int) and n >= 0 for n in given)
    if not is_list or len(set(given)) < len(given):
        raise ValueError(f"{where} is {given!r}; expected a list of different integers, such as [1, 2, 3].")
    return tuple(given)


def positive(where: str, given: Any, *, least: int = 1) -> int:
    """An integer of at least `least`."""
    if not isinstance(given, int) or isinstance(given, bool) or given < least:
        raise ValueError(f"{where} is {given!r}; expected an integer of {least} or more.")
    return given


def flag(where: str, given: Any, meaning: str) -> bool:
    """True or false, where true stands for what `meaning` says."""
    if not isinstance(given, bool):
        raise ValueError(f"{where} is {given!r}; expected true, or false. Write true for {meaning}.")
    return given
