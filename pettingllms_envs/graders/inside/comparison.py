"""Asks math-verify whether two expressions are equal. Runs in the sandbox as its module `resident`: see `workers.py`.

math-verify compares values as floats and rounds them to six places. So its "equal" is believed only where values at 50
digits do not say otherwise, see `apart`.

It reads a JSON list of `[gold, answer, tolerance or null]` from standard input and prints a word for each:
`equal`, `different` or `unparsed`. What it imports and does at the bottom is done once, before any question.
"""

from __future__ import annotations

import gc
import json
import logging
import re
import sys
from collections.abc import Iterator
from functools import cache, partial
from typing import Any

from latex2sympy2_extended.latex2sympy2 import ConversionConfig, NormalizationConfig, _Latex2Sympy
from math_verify import LatexExtractionConfig, parse, parser, verify
from sympy import Basic, Expr, Float, Function, I, MatrixBase, S, Symbol, exp, expand, ordered, prime
from sympy.core.relational import Relational
from sympy.sets.handlers import functions  # noqa: F401  # lazily imported by sympy: too late where no file is opened


SLACK = 1.01  # as `numbers.SLACK`
ROUNDING, RELATIVE = 5e-7, 1e-5  # as in `numbers`
DIGITS = 50
# `units` would drop letters that may be variables, such as the m of 6m; those that are units are gone by now.
_SPELLING = NormalizationConfig(basic_latex=True, units=False, malformed_operators=True, nits=True, boxed="last")
_LATEX = [LatexExtractionConfig(False, boxed_match_priority=0, normalization_config=_SPELLING)]
# By default `R` and `r` would be one symbol; math-verify lets nobody say so.
parser.latex2sympy = partial(parser.latex2sympy, conversion_config=ConversionConfig(lowercase_symbols=False))
_PRIMED = re.compile(r"(?:[A-Za-z)}]|_\d)'+")
_common = _Latex2Sympy.handle_gcd_lcm


def main() -> None:
    """Answer the questions on standard input."""
    gc.disable()  # it has a second to live
    questions = json.loads(sys.stdin.read())
    sys.stdout.write(" ".join(compare(*question) for question in questions))


def compare(gold: str, answer: str, tolerance: float | None) -> str:
    """`"equal"`, `"different"`, or `"unparsed"` if one of the two cannot be read."""
    golds, answers = read(gold), read(answer)
    if not golds or not answers:
        return "unparsed"
    if {*_PRIMED.findall(gold)} != {*_PRIMED.findall(answer)}:  # math-verify reads none
        return "different"
    if tolerance is not None and within(golds[0], answers[0], tolerance):
        return "equal"
    equal = verify(golds, answers, allow_set_relation_comp=True, timeout_seconds=None)
    if equal and tolerance is None and apart(golds[0], answers[0]):
        return "different"
    return "equal" if equal or same_exponentials(golds[0], answers[0]) else "different"


def _of_integers(self: Any, name: str, numbers: list[Expr]) -> Expr:
    """What `\\gcd` and `\\lcm` are of letters, which stand for integers: sympy's are those of polynomials."""
    has_letters = any(each.free_symbols for each in numbers)
    return Function(name)(*ordered(numbers)) if has_letters else _common(self, name, numbers)


_Latex2Sympy.handle_gcd_lcm = _of_integers


@cache
def read(text: str) -> Any:
    """The expression that math-verify reads in a text, in a list, as its functions want it."""
    return parse(f"\\boxed{{{text}}}", _LATEX, "no_fallback", parsing_timeout=None)


def within(gold: object, answer: object, tolerance: float) -> bool:
    """Whether two real numbers are no further apart than that."""
    if not isinstance(gold, Basic) or not isinstance(answer, Basic) or gold.free_symbols or answer.free_symbols:
        return False
    try:
        return abs(float(gold.evalf()) - float(answer.evalf())) <= tolerance * SLACK
    except (TypeError, ValueError, OverflowError, AttributeError):
        return False


def apart(gold: object, answer: object) -> bool:
    """Whether the values of two expressions differ for sure: relatively, at 50 digits.

    Sets, intervals and matrices differ where a part of one is apart from every part of the other. Symbols
    stand for primes, since what is equal for all numbers is equal for these. Where one of the two has decimals, a
    value may be off as `numbers.equal` allows. What has no value at these points is not apart.
    """
    if isinstance(gold, Relational) and isinstance(answer, Relational) and gold.lhs == answer.lhs:
        gold, answer = gold.rhs, answer.rhs
    one, other = [*_parts(gold)], [*_parts(answer)]
    if len(one) != len(other):
        return False
    return any(
        all(_values_differ(each, candidate) for candidate in rest)
        for mine, rest in ((one, other), (other, one))
        for each in mine
    )


def _parts(expression: object) -> Iterator[Expr]:
    """The expressions with a value of their own: the entries of a matrix, the members of a set or a tuple."""
    if isinstance(expression, Expr):
        yield expression
    elif isinstance(expression, MatrixBase):
        yield from expression.flat()
    elif isinstance(expression, Basic) and not isinstance(expression, Relational):  # which may be rearranged
        for each in expression.args:
            yield from _parts(each)


def _values_differ(gold: Expr, answer: Expr) -> bool:
    names = sorted({str(symbol) for each in (gold, answer) for symbol in each.free_symbols})
    values = {name: prime(place) for place, name in enumerate(names, 1)}
    try:
        one, other = (
            each.xreplace({symbol: values[str(symbol)] for symbol in each.free_symbols}).doit()
            for each in (gold, answer)
        )
        difference = one - other
        if difference.is_Rational and not difference.has(Float):
            return bool(difference != 0)
        distance, size = (abs(each.evalf(DIGITS)) for each in (difference, one))
        if not (distance.is_Float and size.is_Float) or distance._prec == 1:  # sympy cannot tell it from 0
            return False
        if one.has(Float) or other.has(Float):
            return bool(distance > ROUNDING or distance > RELATIVE * max(size, abs(other.evalf(DIGITS))))
        return bool(distance > S(10) ** -DIGITS * size)
    except (TypeError, ValueError, OverflowError, AttributeError, ArithmeticError, NotImplementedError):
        return False


def same_exponentials(gold: object, answer: object) -> bool:
    """Whether both are the same by Euler's formula: `i`, which the exponent of one of them has, is the imaginary unit.

    Without other symbols, values are compared to 30 digits; with some, powers of e must cancel.
    """
    if not isinstance(gold, Expr) or not isinstance(answer, Expr):
        return False
    symbols = (symbol for each in (gold, answer) for power in each.atoms(exp) for symbol in power.args[0].free_symbols)
    if "i" not in map(str, symbols):
        return False
    difference = _with_unit(gold) - _with_unit(answer)
    if difference.free_symbols:
        return bool(expand(difference.rewrite(exp)) == 0)
    try:
        return abs(complex(difference.evalf(50))) < 1e-30 * max(1.0, abs(complex(_with_unit(gold).evalf())))
    except (TypeError, ValueError, OverflowError):
        return False


def _with_unit(expression: Expr) -> Expr:
    """The expression with the unit for its `i`, and symbols of no other properties than their names."""
    plain = {symbol: I if str(symbol) == "i" else Symbol(str(symbol)) for symbol in expression.free_symbols}
    return expression.xreplace(plain)


def _warm_up() -> None:
    """Let the parser and sympy fill their tables, of which each process then gets a copy."""
    for gold, answer in _EXAMPLES:
        compare(gold, answer, None)
    read.cache_clear()


_EXAMPLES = (
    ("\\frac{1}{2}", "0.25"),
    ("\\sqrt{2}+1", "1+\\sqrt{3}"),
    ("\\frac{3+\\sqrt[3]{21}}{2}", "\\frac{3-\\sqrt{21}}{2}"),
    ("x^2+1", "(x+1)^2"),
    ("(1,2,\\frac{3}{4})", "(1,2,0.73)"),
    ("[1,\\infty)", "(1,2]\\cup[3,4)"),
    ("\\{1,2\\}", "\\{1,3\\}"),
    ("\\frac{\\pi}{3}", "2\\pi-1"),
    ("\\log_{10}2", "\\ln 3"),
    ("x=1", "y=2"),
    ("k\\ge2", "k<3"),
    ("2^{n-1}", "\\frac{n(n+1)}{2}"),
    ("\\sin x", "\\cos^2 x"),
    ("\\lfloor\\frac{n}{2}\\rfloor+1", "\\binom{2n}{n}"),
    ("100!", "10^{-5}"),
    ("\\begin{pmatrix}1&2\\\\3&4\\end{pmatrix}", "\\begin{pmatrix}1&2\\\\3&5\\end{pmatrix}"),
    ("3+4i", "e^{2}"),
    ("e^{i\\pi/3}", "\\frac{1}{2}+\\frac{\\sqrt{3}}{2}i"),
    ("e^{i\\theta}", "\\cos\\theta+i\\sin\\theta"),
)

logging.disable(logging.CRITICAL)
_warm_up()
