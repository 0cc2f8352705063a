"""Programs that differ from a right one in one place, of which most are wrong: mutation, as in the testing of tests.

One token is another: a comparison, an operator, a function, a whole number that is off by one, a condition negated.
Such small mistakes stand in for those that people make (DeMillo, Lipton and Sayward, "Hints on test data
selection", 1978). Whether a mutant is wrong is for whoever runs it to find out. Pure; nothing is run or compiled here.
"""

from __future__ import annotations

import hashlib
import io
import token
import tokenize
from collections.abc import Iterator


MAX_DIGITS = 18
"""Whole numbers with more digits stay as they are."""

_OTHER: dict[str, tuple[str, ...]] = {
    "<": ("<=", ">"),
    "<=": ("<", ">="),
    ">": (">=", "<"),
    ">=": (">", "<="),
    "==": ("!=",),
    "!=": ("==",),
    "+": ("-",),
    "-": ("+",),
    "*": ("+",),
    "/": ("//",),
    "//": ("%",),
    "%": ("//",),
    "+=": ("-=",),
    "-=": ("+=",),
    "*=": ("+=",),
    "&": ("|",),
    "|": ("&",),
    "and": ("or",),
    "or": ("and",),
    "not": ("",),
    "if": ("if not",),
    "elif": ("elif not",),
    "True": ("False",),
    "False": ("True",),
    "min": ("max",),
    "max": ("min",),
    "any": ("all",),
    "all": ("any",),
    "abs": ("",),
    "sorted": ("list",),
    "reversed": ("list",),
}
_FSTRING_START = getattr(token, "FSTRING_START", None)  # from Python 3.12 on; before, an f-string is one token
_FSTRING_END = getattr(token, "FSTRING_END", None)


def mutants(program: str) -> tuple[str, ...]:
    """The program with one token changed, each way once, in an order that mixes the places.

    The same on every machine and in every version of Python. What is inside of strings stays as it is. Some mutants
    are no Python, some do what the program does. A text that is no Python has none.
    """
    try:
        tokens = [*tokenize.generate_tokens(io.StringIO(program).readline)]
    except (tokenize.TokenError, SyntaxError):
        return ()
    lines = program.splitlines(keepends=True)
    found = [
        "".join([*lines[: row - 1], lines[row - 1][:start], other, lines[row - 1][end:], *lines[row:]])
        for row, start, end, others in _places(tokens)
        for other in others
    ]
    return tuple(sorted(dict.fromkeys(found), key=_digest))


def _places(tokens: list[tokenize.TokenInfo]) -> Iterator[tuple[int, int, int, tuple[str, ...]]]:
    """Line from 1, first column and end of each token that can be changed, and what else could stand there."""
    depth = 0
    for each in tokens:
        depth += (each.type == _FSTRING_START) - (each.type == _FSTRING_END)
        others = () if depth else _others(each)
        if others:
            yield each.start[0], each.start[1], each.end[1], others


def _others(each: tokenize.TokenInfo) -> tuple[str, ...]:
    if each.type == token.NUMBER and each.string.isdecimal() and len(each.string) <= MAX_DIGITS:
        number = int(each.string)
        return (str(number + 1), str(number - 1)) if number else ("1",)
    return _OTHER.get(each.string, ()) if each.type in (token.OP, token.NAME) else ()


def _digest(program: str) -> bytes:
    return hashlib.sha256(program.encode("utf-8", "surrogatepass")).digest()
