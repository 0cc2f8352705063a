"""Converts an environment's settings to plain JSON data and back, so that a run can be reproduced from its files.

JSON has lists and no tuples. `restored` turns lists into tuples if the annotation of a field says so, and
`check_survives` raises for a value that would still be read back as something else.
"""

from __future__ import annotations

import collections.abc
import dataclasses
import json
import math
import types
import typing
from collections.abc import Mapping
from typing import Any


STRICT_FORMAT = "strict_format"
"""The setting of how replies are read, see `pettingllms_envs.assembly`."""

SIMULATOR_BUILD = "simulator_build"
"""The setting of a task with a simulator: the version that an episode was played with, and is replayed with."""

_AS_TUPLE = (tuple, collections.abc.Sequence)


def to_json(settings: Mapping[str, Any]) -> dict[str, Any]:
    """The settings as plain JSON data: tuples become lists; `ValueError` if JSON cannot represent a value."""
    return {name: _plain(name, value) for name, value in settings.items()}


def restored(settings: Mapping[str, Any], *kinds: Any) -> dict[str, Any]:
    """The settings, as read from JSON, with tuples for lists where the field in these dataclasses is annotated so."""
    known = {name: hint for kind in kinds for name, hint in _hints(kind, settings).items()}
    return {name: _restored(value, known.get(name)) for name, value in settings.items()}


def check_survives(settings: Mapping[str, Any], *kinds: Any) -> None:
    """Raise ValueError unless the settings of these dataclasses are the same after a round trip through JSON."""
    again = restored(json.loads(json.dumps(to_json(settings))), *kinds)
    for name, value in settings.items():
        if repr(again[name]) != repr(value):
            raise ValueError(
                f"the setting {name} is {value!r}, and would come back from a file as {again[name]!r}; expected one "
                "that JSON keeps. Annotate the field as a tuple, or give a list."
            )


def in_files(kind: Any, name: str) -> bool:
    """Whether a field is a setting that files contain: not one excluded from the `repr`, such as an executor."""
    fields = dataclasses.fields(kind) if dataclasses.is_dataclass(kind) else ()
    return all(field.repr for field in fields if field.name == name)


def _plain(name: str, value: Any) -> Any:
    if isinstance(value, list | tuple):
        return [_plain(name, each) for each in value]
    if isinstance(value, Mapping) and all(isinstance(key, str) for key in value):
        return {key: _plain(name, each) for key, each in value.items()}
    if value is None or isinstance(value, str | int) or (isinstance(value, float) and math.isfinite(value)):
        return value
    raise ValueError(
        f"the setting {name} has {value!r}, a {type(value).__name__}; expected what JSON holds: texts, finite "
        "numbers, booleans, None, and lists, tuples and mappings of them. Give it as one of those, or let "
        "it be the default of the field."
    )


def _hints(kind: Any, settings: Mapping[str, Any]) -> Mapping[str, Any]:
    """The types of the fields whose value is a list or a mapping."""
    if not dataclasses.is_dataclass(kind):
        return {}
    fields = [f for f in dataclasses.fields(kind) if isinstance(settings.get(f.name), list | tuple | Mapping)]
    if not fields:
        return {}
    try:
        hints = typing.get_type_hints(kind)
    except NameError:  # a name that its module imports for type checkers only
        return {field.name: type(field.default) for field in fields}
    return {field.name: hints[field.name] for field in fields}


def _restored(value: Any, hint: Any) -> Any:
    """A value with tuples where its type has them."""
    is_union = typing.get_origin(hint) in (typing.Union, types.UnionType)
    for kind in typing.get_args(hint) if is_union else (hint,):
        origin, inner = typing.get_origin(kind) or kind, typing.get_args(kind)
        if origin in _AS_TUPLE and isinstance(value, list | tuple):
            each = inner if origin is tuple and inner[1:] != (...,) else inner[:1] * len(value)
            return tuple(map(_restored, value, each)) if len(each) == len(value) else tuple(value)
        if origin is list and isinstance(value, list):
            return [_restored(one, inner[0] if inner else None) for one in value]
        if origin in (dict, collections.abc.Mapping) and isinstance(value, Mapping):
            return {key: _restored(one, inner[1] if inner else None) for key, one in value.items()}
    return value
