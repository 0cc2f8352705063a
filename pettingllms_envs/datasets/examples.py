"""Finds the tests that a problem's statement shows: those whose input and output occur in it, one after the other.

Sets such as APPS do not mark them. Tests that a statement shows are public, and are put first.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import TypeVar

from pettingllms_envs.sandbox.values import CallTest, StdinTest


_Test = TypeVar("_Test", bound=StdinTest | CallTest)

_CALL = re.compile(
    r"input\s*:(?P<args>.*?)output\s*:(?P<value>.*?)(?=explanation|example|constraints|input\s*:|note|$)", re.I | re.S
)
_INPUT, _OUTPUT = (
    rf"[^\S\n]*[-*#=]*[^\S\n]*(?:sample |example )?{word}(?: ?\#?\d+)?[^\S\n]*[-*#=:]*[^\S\n]*\n"
    for word in ("input", "output")
)
_STDIN = re.compile(
    rf"^{_INPUT}(?P<stdin>(?:(?!{_INPUT})[^\n]*\n)*?)"
    rf"{_OUTPUT}(?P<stdout>.*?)"
    r"(?=\n\s*\n|^[^\S\n]*[-*#=]*[^\S\n]*(?:sample |example )?(?:input|note|explanation)|\Z)",
    re.I | re.S | re.M,
)
_NAME = re.compile(r"\b[a-z_]\w*=", re.I)
_LONGEST = 2000
"""Longest input, in characters, that is searched for in statements."""

_READ = 20_000
"""Characters of a statement that are searched for examples; the search is quadratic at worst."""


def public_first(tests: Sequence[_Test], statement: str) -> tuple[tuple[_Test, ...], int]:
    """The tests, with those that the statement shows first, and the number of those."""
    read = statement[:_READ]
    shown = _stdin(read) if tests and isinstance(tests[0], StdinTest) else _calls(read)
    ordered = sorted(tests, key=lambda test: _key(test) not in shown)  # stable
    return tuple(ordered), sum(_key(test) in shown for test in tests)


def _key(test: StdinTest | CallTest) -> tuple[str, str]:
    if isinstance(test, CallTest):
        return _bare(json.dumps(list(test.args))[1:-1]), _bare(json.dumps(test.expected))
    stdin, expected = str(test.stdin), str(test.expected)
    return (" ".join(stdin.split()), " ".join(expected.split())) if len(stdin) <= _LONGEST else ("", "")


def _stdin(statement: str) -> set[tuple[str, str]]:
    """The examples between headings that say input and output, words joined by one space."""
    found = _STDIN.finditer(statement)
    return {(" ".join(each["stdin"].split()), " ".join(each["stdout"].split())) for each in found} - {("", "")}


def _calls(statement: str) -> set[tuple[str, str]]:
    """The examples of the form `Input: nums = [1, 2], k = 3 Output: 4`, without names and white space."""
    return {(_bare(_NAME.sub("", _bare(each["args"]))), _bare(each["value"])) for each in _CALL.finditer(statement)}


def _bare(written: str) -> str:
    return re.sub(r"[\s`*]+", "", written).replace("'", '"').rstrip(".,;")
