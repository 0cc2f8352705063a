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

_MARK = re.compile(r"(?P<input>input\s*:)|(?P<output>output\s*:)|explanation|example|constraints|note", re.I)
_INPUT, _OUTPUT = (
    re.compile(rf"[-*#=]*\s*(?:sample |example )?{word}(?: ?#?\d+)?\s*[-*#=:]*", re.I) for word in ("input", "output")
)
_NEXT = re.compile(r"[-*#=]*\s*(?:sample |example )?(?:input|note|explanation)", re.I)
_MARKS = re.compile(r"[\s`*]+")
_NAME = re.compile(r"\b[a-z_]\w*=", re.I)
_LONGEST = 2000
"""Longest input, in characters, that is searched for in statements."""

_READ = 20_000
"""Characters of a statement that are searched for examples."""


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
    """The examples between lines that say input and output, words joined by one space.

    An output ends with a blank line, or before a line that says input, note or explanation.
    """
    found: set[tuple[str, str]] = set()
    stdin: list[str] | None = None  # the lines since one that says input
    stdout: list[str] | None = None  # and since one that says output
    for line in [*statement.split("\n"), "", ""]:
        bare = line.strip()
        if stdin is not None and stdout is not None:
            if not (_NEXT.match(bare) or (not bare and stdout)):
                stdout.append(bare)
                continue
            found.add((" ".join(" ".join(stdin).split()), " ".join(" ".join(stdout).split())))
            stdin = stdout = None
        if _INPUT.fullmatch(bare):
            stdin = []
        elif stdin is not None and _OUTPUT.fullmatch(bare):
            stdout = []
        elif stdin is not None:
            stdin.append(bare)
    return found - {("", "")}


def _calls(statement: str) -> set[tuple[str, str]]:
    """The examples of the form `Input: nums = [1, 2], k = 3 Output: 4`, without names and white space."""
    found: set[tuple[str, str]] = set()
    given = args = None  # where the last input begins, and what it was, once its output has begun
    begun = 0
    for mark in [*_MARK.finditer(statement), None]:
        if given is not None and mark is not None and mark["output"]:
            args, given, begun = statement[given : mark.start()], None, mark.end()
            continue
        if args is not None and not (mark is not None and mark["output"]):
            value = statement[begun : mark.start() if mark is not None else len(statement)]
            found.add((_bare(_NAME.sub("", _bare(args))), _bare(value)))
            args = None
        if mark is not None and mark["input"] and given is None:
            given = mark.end()
    return found


def _bare(written: str) -> str:
    return _MARKS.sub("", written).replace("'", '"').rstrip(".,;")
