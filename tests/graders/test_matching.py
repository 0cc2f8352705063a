import pytest

from golds import Asked
from pettingllms_envs.graders.matching import one_to_one
from pettingllms_envs.graders.math import MathGrader


@pytest.mark.parametrize(
    ("fits", "possible"),
    [
        ([], True),
        ([[True]], True),
        ([[False]], False),
        ([[True, True], [True, False]], True),  # the first must leave the second its only one
        ([[True, False], [True, False]], False),  # each has one, but the same
        ([[True, True, False], [False, True, True], [True, False, False]], True),
        ([[True, True, False], [True, True, False], [True, True, False]], False),
    ],
)
def test_a_matching_gives_each_its_own(fits, possible):
    assert one_to_one(fits) is possible


@pytest.mark.parametrize(
    ("answer", "correct"),
    [("4.2,4.3", True), ("4.3,4.2", True), ("4.2,4.2", True), ("4.35,4.25", True), ("4.2,9", False), ("9,4.3", False)],
)
def test_overlapping_tolerances_are_matched_one_to_one(answer, correct):
    grade = MathGrader(Asked()).grade(answer, "4.2,4.3", multiple=True, tolerance=(0.1,))
    assert grade.correct is correct


@pytest.mark.parametrize(
    ("gold", "answer"),
    [("x^2", r"\text{x2}"), (r"\frac{1}{2}", r"\text{frac12}"), ("-ab", r"\text{ab}"), ("7", r"\text{seven}")],
)
def test_words_are_compared_with_words_alone(gold, answer):
    assert not MathGrader(Asked()).grade(answer, gold).correct
