r"""The numbers that need no algebra: integers, decimals, periods, fractions, mixed numbers, powers, `a \times 10^b`.

Exact and pure: a text is one rational number, or it is not for this file.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from fractions import Fraction


MAX_DIGITS = 1000
"""Longer numbers, and powers that would be, are not read. (Python itself refuses 4301 digits.)"""

_DECIMAL = r"(?:\d+(?:\.\d*)?|\.\d+)"
_SIGN = re.compile(r"[+-]*")
_PLAIN = re.compile(rf"{_DECIMAL}")
_FRACTION = re.compile(rf"(\d*)\\frac\{{([+-]?{_DECIMAL})\}}\{{([+-]?{_DECIMAL})\}}")
_RATIO = re.compile(rf"({_DECIMAL})/({_DECIMAL})")
_SCIENTIFIC = re.compile(rf"(?:({_DECIMAL})(?:\\times|\\cdot|\*))?10\^(?:(\d)|\{{([+-]?\d+)\}})")
_FLOAT = re.compile(rf"({_DECIMAL})[eE]([+-]?\d{{1,5}})")
_PERIOD = re.compile(r"(\d+)\.(\d*)\\(?:(?:overline|bar)(?:\{(\d+)\}|(\d))|dot(?:\{(\d)\}|(\d)))")
_POWER = re.compile(r"(\d+)\^(?:(\d)|\{(\d+)\})")
_THOUSANDS = re.compile(r"[+-]?\d{1,3}(?:,\d{3})+(?:\.\d+)?")
_SPACED = re.compile(r"(?<![\d.])\d{1,3}(?:\s+\d{3})+(?!\d|\s+\d)|\.\d{3}(?:\s+\d{3})*\s+\d{1,3}(?!\d|\s+\d)")
_GAP = re.compile(r"(?<=\d)\s+")
_APART = re.compile(r"(?:^|(?<=[^A-Za-z\d^_.\s]))\s*\d+(?:\.\d+)?(?:\s+\d+(?:\.\d+)?)+")
APART = "\N{OPEN BOX}"
"""Stands for a space between digits that do not make one number."""
_BASE = re.compile(r"(?<![A-Za-z\d\\^])(?:\d+|[0-9A-F]{2,}(?=_\{))_\{?(?:\\text\{)?(\w+)")
_WORDS = ("two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve")
_JOINED = re.compile(r"(?<=\d)\{,\}(?=\d{3}(?!\d))")


@dataclass(frozen=True, slots=True)
class Number:
    """A rational number, and whether it is written with decimals, so that it may be a rounding."""

    value: Fraction
    rounded: bool


def read(text: str) -> Number | None:
    """The number that a text in the one spelling (`spelling.tight`) says, None if it takes more to tell."""
    sign = _SIGN.match(text)
    assert sign is not None
    negative = sign.group().count("-") % 2 == 1
    body = text[sign.end() :]
    while body.startswith("{") and body.endswith("}") and body.count("{") == 1:
        body = body[1:-1]
    number = _read_unsigned(body)
    return Number(-number.value, number.rounded) if number and negative else number


def without_thousands(text: str) -> str:
    """`1,000` as `1000`, if it is the whole text."""
    return text.replace(",", "") if _THOUSANDS.fullmatch(text) else text


def joined(text: str) -> str:
    """`1{,}000` as `1000`, wherever it stands."""
    return _JOINED.sub("", text)


def spaced(text: str) -> str:
    """`12 000` as `12000`, and `1 2` with a sign that no number has, for TeX and math-verify take it for `12`."""
    text = _SPACED.sub(lambda match: "".join(match[0].split()), text)
    return _APART.sub(lambda match: _GAP.sub(APART, match[0]), text)


def bases(text: str) -> list[str]:
    r"""The bases of its numbers in order: `["2"]` of `1011_2` and `1011_{\text{two}}`."""
    found = [base.lower() for base in _BASE.findall(text)]
    return [str(_WORDS.index(base) + 2) if base in _WORDS else base for base in found]


def equal(one: Number, other: Number, tolerance: float | None = None) -> bool:
    """Whether two numbers are the same, or within the tolerance, absolutely.

    Without one, a number written with decimals may stand for what it rounds: it may be off by 5e-7, and by 1e-5 of the
    larger of the two. (math-verify rounds both to six places, which takes 0.0000001 for 0.)
    """
    distance = abs(one.value - other.value)
    if tolerance is not None:
        return distance <= Fraction(tolerance) * SLACK
    if distance == 0 or not (one.rounded or other.rounded):
        return distance == 0
    return distance <= ROUNDING and distance <= RELATIVE * max(abs(one.value), abs(other.value))


SLACK = Fraction(101, 100)
"""OlympiadBench's own judge lets a number be off by 1.01 times the tolerance."""
ROUNDING = Fraction(1, 2_000_000)
RELATIVE = Fraction(1, 100_000)


def _read_unsigned(body: str) -> Number | None:
    if len(body) > 2 * MAX_DIGITS:
        return None
    if _PLAIN.fullmatch(body):
        return Number(Fraction(body), _has_decimals(body))
    if match := _FRACTION.fullmatch(body):
        return _fraction(*match.groups())
    if match := _RATIO.fullmatch(body):
        return _fraction("", *match.groups())
    if match := _SCIENTIFIC.fullmatch(body):
        factor, digit, exponent = match.groups()
        power = _power(10, int(digit or exponent))
        return None if power is None else Number(power * Fraction(factor or "1"), False)
    if match := _FLOAT.fullmatch(body):
        power = _power(10, int(match[2]))
        return None if power is None else Number(power * Fraction(match[1]), True)
    if match := _PERIOD.fullmatch(body):
        whole, before, *periods = match.groups()
        return Number(_periodic(whole, before, next(filter(None, periods))), False)
    if match := _POWER.fullmatch(body):
        base, digit, exponent = match.groups()
        power = _power(int(base), int(digit or exponent))
        return None if power is None else Number(power, False)
    return None


def _fraction(whole: str, numerator: str, denominator: str) -> Number | None:
    """`whole` before it makes it a mixed number, if it is a proper fraction of natural numbers."""
    if not Fraction(denominator):
        return None
    value = Fraction(numerator) / Fraction(denominator)
    if whole and not (numerator.isdigit() and denominator.isdigit() and value < 1):
        return None
    return Number(value + int(whole or "0"), _has_decimals(numerator) or _has_decimals(denominator))


def _periodic(whole: str, before: str, period: str) -> Fraction:
    """A decimal number of which the period is repeated for ever."""
    return Fraction(f"{whole}.{before}") + Fraction(int(period), (10 ** len(period) - 1) * 10 ** len(before))


def _power(base: int, exponent: int) -> Fraction | None:
    if abs(exponent) * max(1, base.bit_length()) > 3 * MAX_DIGITS or (base == 0 and exponent <= 0):
        return None
    return Fraction(base) ** exponent


def _has_decimals(body: str) -> bool:
    return "." in body and bool(body.partition(".")[2].strip("0"))


_TOWER = re.compile(r"\^\{[^{}A-Za-z\\]*\^\{[^{}A-Za-z\\]*\^")
_HUGE_EXPONENT = re.compile(r"\^\{?\(?-?\d{6,}")
_HUGE_FACTORIAL = re.compile(r"\d{5}\)?\}?!|!\)*!")
_HUGE_BINOMIAL = re.compile(r"\\binom\{\d{6,}\}")
_HUGE_NUMBER = re.compile(rf"\d{{{MAX_DIGITS},}}")


def too_large(text: str) -> bool:
    """Whether nobody should try to compute it: a tower of powers, a factorial of a large number."""
    return any(
        pattern.search(text) for pattern in (_TOWER, _HUGE_EXPONENT, _HUGE_FACTORIAL, _HUGE_BINOMIAL, _HUGE_NUMBER)
    )
