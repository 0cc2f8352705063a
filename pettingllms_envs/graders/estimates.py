r"""Tells apart, without algebra, expressions that are far from equal: their values at a few points, in floating point.

It can only say "different": most wrong answers need no more. Two expressions that are equal for all numbers are equal
at these, whatever a letter stands for; a letter before parentheses, which may be a function, is taken for a factor,
which is one function among others. What could be read in two ways, such as `1/2x` or `ab`, is not read.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass


_TOKEN = re.compile(r"[0-9]+(?:\.[0-9]+)?|\.[0-9]+|\\[a-zA-Z]+|.", re.DOTALL)
_POINTS = (0.6180339, 0.7548776)
"""Each spreads the letters' values over the interval from 0.4 to 1.9: positive, for roots, and small, for powers."""
_AMBIGUOUS = "eEiIdO"
_GREEK = tuple(
    rf"\{name}"
    for name in ("alpha", "beta", "gamma", "delta", "theta", "lambda", "mu", "phi", "omega", "rho", "sigma", "tau")
)
_CANCELLED = 1e-6
_FAR = 1e-3
_MAX_EXPONENT = 1000.0


def differ(gold: str, answer: str, tolerance: float | None = None) -> bool:
    """Whether two texts in the one spelling are surely of values further apart than allowed; False says nothing."""
    if len(gold) == len(answer) == 1:  # the letters of a choice, which may be small or large
        return False
    for point in _POINTS:
        one, other = _estimate(gold, point), _estimate(answer, point)
        if one is None or other is None:
            return False
        if abs(one - other) > max(_FAR * max(abs(one), abs(other)), 2 * (tolerance or 0.0)):
            return True
    return False


def _is_digit(character: str) -> bool:
    return "0" <= character <= "9"  # `isdigit` holds for "\N{SUPERSCRIPT ONE}", which is no number to `float`


class _Unclear(Exception):
    """What is written is not read here, or its value is not known well enough."""


def _estimate(text: str, point: float) -> float | None:
    reader = _Reader(_TOKEN.findall(text), point)
    try:
        value = reader.sum()
        return value if reader.at == len(reader.tokens) and math.isfinite(value) else None
    except (_Unclear, ZeroDivisionError, OverflowError):
        return None


@dataclass(slots=True)
class _Reader:
    """Reads a sum from left to right; each method reads one kind of expression, and leaves `at` behind it."""

    tokens: list[str]
    point: float
    at: int = 0

    def peek(self) -> str:
        return self.tokens[self.at] if self.at < len(self.tokens) else ""

    def take(self, wanted: str = "") -> str:
        token = self.peek()
        if not token or (wanted and token != wanted):
            raise _Unclear
        self.at += 1
        return token

    def sum(self) -> float:
        """Terms with their signs. If they cancel, too few digits of the value are left."""
        total, largest, first = 0.0, 0.0, True
        while first or self.peek() in ("+", "-"):
            sign = -1.0 if self.peek() == "-" else 1.0
            self.at += self.peek() in ("+", "-")
            term = self.product()
            total, largest, first = total + sign * term, max(largest, abs(term)), False
        if abs(total) < _CANCELLED * largest:
            raise _Unclear
        return total

    def product(self) -> float:
        value, divided, joined, number = 1.0, False, False, False
        while True:
            token = self.peek()
            if number and (token == r"\frac" or _is_digit(token[:1])):
                raise _Unclear  # a mixed number, perhaps
            number = _is_digit(token[:1])
            value *= self.power()
            token = self.peek()
            if token in ("/", "*", r"\cdot", r"\times"):
                self.take()
                number = False
                if token == "/":
                    if joined or divided:
                        raise _Unclear
                    divided = True
                    value /= self.power()
                    if self._begins():
                        raise _Unclear
                    if self.peek() not in ("*", r"\cdot", r"\times"):
                        return value
                    self.take()
            elif self._begins():
                joined = True
            else:
                return value
            if joined and divided:
                raise _Unclear

    def _begins(self) -> bool:
        token = self.peek()
        return (
            token in ("(", "{")
            or _is_digit(token[:1])
            or token[:1].isalpha()
            or token in (r"\frac", r"\sqrt", r"\pi", *_GREEK)
        )

    def power(self) -> float:
        base = self.atom()
        if self.peek() == "!":
            raise _Unclear
        if self.peek() != "^":
            return base
        self.take()
        exponent = self.group() if self.peek() == "{" else self.atom(digit=True)
        value = base**exponent if abs(exponent) <= _MAX_EXPONENT and (base or exponent > 0) else math.nan
        if isinstance(value, complex) or not math.isfinite(value) or self.peek() in ("^", "!"):
            raise _Unclear
        return value

    def group(self, opening: str = "{", closing: str = "}") -> float:
        self.take(opening)
        value = self.sum()
        self.take(closing)
        return value

    def atom(self, *, digit: bool = False) -> float:
        token = self.peek()
        if token in ("(", "{"):
            return self.group(token, ")" if token == "(" else "}")
        self.take()
        if _is_digit(token[:1]) or token[:1] == ".":
            if not token.strip(".") or (digit and len(token) > 1):
                raise _Unclear
            return float(token)
        if token == r"\pi":
            return math.pi
        if token == r"\frac":
            return self.group() / self.group()
        if token == r"\sqrt":
            degree = self.group("[", "]") if self.peek() == "[" else 2.0
            value = self.group()
            if value < 0:
                raise _Unclear
            return math.pow(value, 1 / degree)
        if token.isalpha() and self.peek().isalpha():
            raise _Unclear  # a word, perhaps
        if (len(token) == 1 and token.isascii() and token.isalpha() and token not in _AMBIGUOUS) or token in _GREEK:
            if self.peek() in ("_", "'"):
                raise _Unclear
            number = 60 + _GREEK.index(token) if token in _GREEK else ord(token) - ord("A") + 1
            return 0.4 + 1.5 * (number * self.point % 1.0)
        raise _Unclear
