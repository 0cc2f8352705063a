r"""Reads a reply whatever its form: strictly first, and where that finds nothing, without marks, fences and thoughts.

Models write the same answer as `Moves: R R`, `**Moves:** R R`, `- Moves : R R`, in a block of code, after thoughts or
before an end token. That is their form and not their ability. `with_reading` makes a task whose `parse` reads so.
"""

from __future__ import annotations

import copy
from contextvars import ContextVar
from functools import cache
from typing import Any, TypeVar, cast

from pettingllms_envs.core import Unreadable


STRICTLY, LENIENTLY, UNREADABLE = "strictly", "leniently", "unreadable"
LONGEST = 250_000
"""Characters of the longest reply that is read again without its marks, which takes a tenth of a second."""
_LAST_OF_MARKS = "*_`>]"
"""An end token, and a mark around a value, end with one of them."""

T = TypeVar("T")

Notes = list[tuple[str, str]]
"""Texts, and how each was read as a move: `"strictly"`, `"leniently"` (without its marks) or `"unreadable: why"`."""
NOTES: ContextVar[Notes | None] = ContextVar("readings", default=None)
"""Where each reading of a task of `with_reading` is added; None: nowhere."""


def last_reading(notes: Notes, reply: str) -> str | None:
    """How the reply, or a part of it, was read last; None if it was not."""
    for text, reading in reversed(notes):
        if text in reply:
            return reading
    return None


def with_reading(task: T, *, strict: bool) -> T:
    """The task, with a `parse` that notes how it read, and reads leniently unless `strict`.

    It is of a subclass of the task's class, under the same name, so whatever else is asked of the task stays.
    """
    if not isinstance(strict, bool):
        raise ValueError(f"strict_format is {strict!r}; expected one of True, False.")
    made = copy.copy(task)
    object.__setattr__(made, "__class__", _reading_class(cast("Any", type(task)), strict))
    return made


@cache
def _reading_class(kind: Any, strict: bool) -> type[Any]:
    """A subclass whose `parse` notes its readings; it can be pickled, since it is made again."""
    read = kind.parse

    def parse(self: Any, reply: str) -> Any:
        found = read(self, reply)
        reading = STRICTLY
        if isinstance(found, Unreadable):
            words = reply.replace(" ", "")  # of letters and digits alone there is no other form
            is_plain = not words or (words.isalnum() and "final" not in words.lower())
            if not (strict or (is_plain and reply == reply.strip()) or len(reply) > LONGEST):
                from pettingllms_envs.replies.marks import read_again  # only those pay for it whose replies have marks

                found = read_again(read.__get__(self), reply, found)
            reading = f"{UNREADABLE}: {found.reason}" if isinstance(found, Unreadable) else LENIENTLY
        elif not (strict or (type(found) is str and found[-1:] not in _LAST_OF_MARKS)):
            from pettingllms_envs.replies.marks import unmarked_value

            found = unmarked_value(found)
        notes = NOTES.get()
        if notes is not None:
            notes.append((reply, reading))
        return found

    def reduce(self: Any, protocol: Any) -> Any:
        _, arguments, *state = cast("tuple[Any, ...]", object.__reduce_ex__(self, 2))
        return _new, (kind, strict, *arguments[1:]), *state  # for its class is in no module

    fields = {"__slots__": (), "parse": parse, "__reduce_ex__": reduce, "__doc__": kind.__doc__}
    names = {"__module__": kind.__module__, "__qualname__": kind.__qualname__}
    return type(kind.__name__, (kind,), {**fields, **names})


def _new(kind: Any, strict: bool, *args: Any) -> Any:
    made = _reading_class(kind, strict)
    return made.__new__(made, *args)
