r"""Golds of problems and of public suites, each as the answer to every other.

They are tiny, huge or have parts that are, which is where a comparison of floats, or of values that are rounded to six
places, cannot tell numbers apart.
"""

from itertools import combinations
from pathlib import Path

import pytest


GOLDS = tuple((Path(__file__).parent / "crossed_golds.txt").read_text("ascii").splitlines())

EQUAL_TO_FLOATS = (
    (r"\frac{1}{2004!}", r"\frac{1}{2006!}"),
    (r"\frac{2^{2005}+1}{3 \cdot 2^{2006}}", r"\frac{1}{3 \cdot 2^{2006}}"),
    (r"\frac{2018!}{1009!}", r"\frac{2017!}{1009!}"),
    ("e^{-40}", "e^{-41}"),
    (r"x^2+\frac{1}{2004!}", r"x^2+\frac{1}{2006!}"),  # beside a symbol
    (r"(0,\frac{1}{2004!}]\cup[1,2]", r"(0,\frac{1}{2006!}]\cup[1,2]"),  # in a set
    (r"\begin{pmatrix}e^{-40}&1\\1&2\end{pmatrix}", r"\begin{pmatrix}e^{-41}&1\\1&2\end{pmatrix}"),
    ("1+e^{-50}", "1+e^{-60}"),  # a difference that is cancelled
    (r"\sqrt{10^{40}+1}", "10^{20}"),  # beyond the digits of a float
    (r"\ln(1+10^{-20})", r"\ln(1+10^{-21})"),  # in a function
    (r"k\ge e^{-40}", r"k\ge e^{-41}"),  # in a relation
)

DIGITS = (
    ("1011_2", "1011_3", False),
    (r"1011_{\text{two}}", "1011_3", False),
    ("1011_2+1", "1011_3+1", False),
    ("1011_2", r"1011_{\text{two}}", True),
    ("1011_2", "1011", True),  # the problem says in which base
    ("12", "1 2", False),
    ("12", r"1\,2", False),
    ("12", r"$1 \; 2$", False),
    ("1.52", "1.5 2", False),
    ("35/2", "3 5/2", False),
    ("1234", "1 2 34", False),
    ("12000", "12 000", True),
    ("12000", r"12\,000", True),
    ("3.141592", "3.141 592", True),
    (r"\frac{1}{2}", r"\frac 1 2", True),
    (r"\frac{7}{2}", "3 1/2", True),
)


@pytest.mark.parametrize(("gold", "answer"), EQUAL_TO_FLOATS)
def test_values_that_a_float_cannot_tell_apart_are_different(grader, gold, answer):
    assert not grader.grade(answer, gold).correct
    assert not grader.grade(gold, answer).correct


@pytest.mark.parametrize(("gold", "answer", "correct"), DIGITS)
def test_a_base_and_a_space_between_digits_count(grader, gold, answer, correct):
    assert grader.grade(answer, gold).correct == correct


@pytest.mark.parametrize(
    ("gold", "answer"),
    [
        (r"\sqrt{2}+\sqrt{3}", r"\sqrt{5+2\sqrt{6}}"),
        (r"\frac{2018!}{2017!\cdot 2^{2018}}", r"\frac{1009}{2^{2017}}"),
        (r"\sqrt{2}", "1.4142136"),  # a rounding
        (r"\sin^2 x+\frac{1}{20!}", r"1-\cos^2 x+\frac{1}{20!}"),
    ],
)
def test_what_is_equal_in_another_form_is_right_as_before(grader, gold, answer):
    assert grader.grade(answer, gold).correct


@pytest.mark.slow
def test_of_the_crossed_golds_only_those_of_one_value_are_right_for_another(grader):
    pairs = list(combinations(GOLDS, 2))
    assert len(pairs) == 666
    right = []
    for gold in GOLDS:
        answers = [other for one, other in pairs if one == gold]
        grades = grader.grade_many(answers, gold) if answers else []
        right += [(gold, answer) for answer, grade in zip(answers, grades, strict=True) if grade.correct]
    assert right == [(rf"\frac{{1}}{{2^{{{n}}}}}", rf"\left(\frac{{1}}{{2}}\right)^{{{n}}}") for n in (2018, 2017)]
