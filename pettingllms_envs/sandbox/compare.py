"""Compares what a program printed or returned with what was expected. Pure; it never calls an object's own `__eq__`.

The bytes come from an untrusted program and may be malicious: deep nesting, huge numbers, NaN, invalid UTF-8. Whatever
they are, the result is True or False.
"""

from __future__ import annotations

import json
import math
import re
from decimal import Decimal
from typing import Any, NoReturn

from pettingllms_envs.sandbox.values import ToleranceKind


MAX_DIGITS = 4300  # reading an integer takes time that grows with the square of its length
_EXACT = 2**53
_ROUNDING = 2**-50
"""Relative rounding error of reading two decimal numbers as floats and subtracting them."""
_WHOLE = re.compile(rb"[+-]?\d+", re.ASCII)
_DECIMAL = re.compile(rb"[+-]?(\d{1,400}(\.\d{0,400})?|\.\d{1,400})([eE][+-]?\d{1,4})?", re.ASCII)


def same_tokens(
    printed: bytes,
    expected: bytes,
    tolerance: float | None = None,
    kind: ToleranceKind = "either",
    ignore_case: bool | frozenset[str] = False,
) -> bool:
    """Whether both have the same words, split at ASCII white space.

    Args:
        tolerance: How far numbers may differ, unless both are written as whole numbers. None: not at all.
        ignore_case: Whether ASCII letters may be of any case: in all words, or in these, given in lower case.
    """
    ours, theirs = printed.split(), expected.split()
    if len(ours) != len(theirs):
        return False
    if ours == theirs:
        return True
    if ignore_case:
        free = None if ignore_case is True else {word.encode("utf-8", "surrogatepass") for word in ignore_case}
        ours, theirs = [_cased(word, free) for word in ours], [_cased(word, free) for word in theirs]
    if tolerance is None:
        return ours == theirs
    return all(
        one == other or _close_words(one, other, tolerance, kind) for one, other in zip(ours, theirs, strict=True)
    )


def _cased(word: bytes, free: set[bytes] | None) -> bytes:
    """A word in lower case, if letters of any case are allowed in it (in all words where `free` is None)."""
    lower = word.lower()
    return lower if free is None or lower in free else word


def _close_words(printed: bytes, expected: bytes, tolerance: float, kind: ToleranceKind) -> bool:
    if not (_DECIMAL.fullmatch(printed) and _DECIMAL.fullmatch(expected)):
        return False
    if _WHOLE.fullmatch(expected):
        whole = int(expected)
        return int(printed) == whole if _WHOLE.fullmatch(printed) else _close_to_whole(printed, whole, tolerance, kind)
    return _close_numbers(float(printed), float(expected), tolerance, kind)


def _close_to_whole(number: bytes | float, whole: int, tolerance: float, kind: ToleranceKind) -> bool:
    """Whether a number with decimals is close to a whole one and rounds to it: 1000000006.0 is not 1000000007."""
    if abs(whole) >= _EXACT:  # where neighbouring integers are the same float
        return Decimal(number if isinstance(number, float) else number.decode()) == whole
    near = float(number)
    return abs(near - whole) < 0.5 and _close_numbers(near, whole, tolerance, kind)


def _close_numbers(number: float, expected: float, tolerance: float, kind: ToleranceKind) -> bool:
    if not (math.isfinite(number) and math.isfinite(expected)):
        return False
    scale = {"absolute": 1.0, "relative": abs(expected), "either": max(1.0, abs(expected))}[kind]
    return abs(number - expected) <= tolerance * scale + _ROUNDING * abs(expected)


def read_value(written: bytes) -> Any:
    """The value of a JSON document.

    Raises:
        ValueError: It is not JSON, has NaN, an infinity or an enormous number, or is nested too deeply.
    """
    try:
        return json.loads(written.decode(), parse_constant=_refuse, parse_int=_integer, parse_float=_float)
    except RecursionError as error:
        raise ValueError("nested too deeply") from error


def _refuse(name: str) -> NoReturn:
    raise ValueError(f"{name} is no number")


def _integer(digits: str) -> int:
    if len(digits) > MAX_DIGITS:
        raise ValueError(f"an integer of {len(digits)} digits; expected at most {MAX_DIGITS}")
    return int(digits)


def _float(digits: str) -> float:
    number = float(digits)
    if not math.isfinite(number):
        raise ValueError("a number beyond all floats")
    return number


def same_values(value: Any, expected: Any, tolerance: float | None = None, kind: ToleranceKind = "either") -> bool:
    """Whether a value read from JSON is the expected one.

    Numbers are compared by value, so 2 is 2.0 and True is 1, as in LiveCodeBench's grader. A tolerance (see
    `same_tokens`) never applies to two integers. Tuples are lists, as JSON has it, and keys are strings. What is not
    None, bool, int, float, str, list, tuple or dict is different from all.
    """
    left = [(value, expected)]  # not by recursion: what JSON can nest is deeper
    while left:
        value, expected = left.pop()
        if type(value) in (list, tuple) and type(expected) in (list, tuple):
            if len(value) != len(expected):
                return False
            left += zip(value, expected, strict=True)
        elif type(value) is dict and type(expected) is dict:
            # Keys as JSON has them: `true`, `null` and `1.5` as text.
            named = {key if isinstance(key, str) else json.dumps(key): item for key, item in expected.items()}
            if value.keys() != named.keys():
                return False
            left += [(value[key], named[key]) for key in named]
        elif not _same_leaves(value, expected, tolerance, kind):
            return False
    return True


def _same_leaves(value: Any, expected: Any, tolerance: float | None, kind: ToleranceKind) -> bool:
    if type(value) in (bool, int, float) and type(expected) in (bool, int, float):
        if value == expected:
            return True
        if tolerance is None or bool in (type(value), type(expected)):
            return False
        return _close_reals(value, expected, tolerance, kind)
    if value is None or expected is None:
        return value is expected
    return type(value) is str and type(expected) is str and value == expected


def _close_reals(value: float, expected: float, tolerance: float, kind: ToleranceKind) -> bool:
    if isinstance(expected, int):
        return isinstance(value, float) and _close_to_whole(value, expected, tolerance, kind)
    try:
        return _close_numbers(float(value), expected, tolerance, kind)
    except OverflowError:
        return False


def same_result(written: bytes, expected: Any, tolerance: float | None = None, kind: ToleranceKind = "either") -> bool:
    """Whether the JSON that a program wrote is the expected value."""
    try:
        return same_values(read_value(written), expected, tolerance, kind)
    except ValueError:
        return False
