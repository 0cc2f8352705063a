"""States as text, for digests: `repr`, but with whole arrays, of which `repr` shows only some elements.

A state is what later prompts, payments and ends depend on. Two replies that mean the same move lead to one state, so a
state leaves out of its `repr` what only the outcome reports: `Reported` figures of a named tuple, fields with
`repr=False` of a dataclass.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from typing import Any, Self


ARRAY = "array("
"""Occurs in the `repr` of every value with an array."""


class Reported(tuple[tuple[str, Any], ...]):
    """Figures that only the outcome of an episode reports, by name: a part of its snapshots, but not of its states.

    >>> Reported(messages=1, chars=12).plus(messages=1)
    Reported
    >>> dict(Reported(messages=1, chars=12).plus(messages=1))
    {'messages': 2, 'chars': 12}
    """

    __slots__ = ()

    def __new__(cls, figures: Iterable[tuple[str, Any]] = (), /, **named: bool | int | float | str) -> Self:
        return super().__new__(cls, {**dict(figures), **named}.items())

    def plus(self, **more: float) -> Self:
        """The figures with these added to them."""
        return type(self)((name, value + more[name] if name in more else value) for name, value in self)

    def __repr__(self) -> str:
        return "Reported"


def with_task(play: Any, task: Any) -> Any:
    """A workflow's state with another task state in it."""
    if dataclasses.is_dataclass(play) and not isinstance(play, type):
        return dataclasses.replace(play, task=task)
    if "task" not in play._fields:  # a workflow around another, such as `ToolCalls`
        return play._replace(play=with_task(play.play, task))
    return play._replace(task=task)
