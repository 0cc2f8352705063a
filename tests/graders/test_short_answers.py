"""Exact match and F1 of short answers, worked out by hand."""

from __future__ import annotations

import pytest

from pettingllms_envs.datasets.normalization import short_answer
from pettingllms_envs.graders.short_answers import exact_match, f1


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("The Mara River.", "mara river"),
        ("  an  A-B  ", "ab"),
        ("theatre", "theatre"),
        ("21,500", "21500"),
        ("The The", "the the"),  # nothing else is left of a band, a grade, a title
        ("A.", "a"),
        ("!!!", "!!!"),
        ("A / The", "a the"),
        ("the", "the"),
        ("", ""),
        ("Łódź", "łódź"),
    ],
)
def test_normalization_is_that_of_the_data_sets_where_it_leaves_something(text: str, expected: str) -> None:
    assert short_answer(text) == expected


@pytest.mark.parametrize(
    ("answer", "golden", "expected"),
    [
        ("the mara river", ["Mara River"], True),
        ("Mara", ["Mara River", "Mara"], True),
        ("Mara River or Tel", ["Mara River"], False),
        ("Mara River Tel Zulo", ["Tel"], False),
        ("", ["Mara"], False),
        ("The The.", ["the The"], True),
        ("the", ["The The"], False),
        ("a", ["A"], True),
        ("!", ["!!!"], False),
        ("", ["!!!"], False),
        ("the", ["a"], False),
        ("yes, it is", ["yes"], False),
        ("\ud800", ["Mara"], False),
    ],
)
def test_an_answer_matches_exactly_or_not_at_all(answer: str, golden: list[str], expected: bool) -> None:
    assert exact_match(answer, golden) is expected


@pytest.mark.parametrize(
    ("answer", "golden", "expected"),
    [
        ("Mara River", ["the Mara River"], 1.0),
        ("river Mara here", ["Mara River"], 0.8),  # 2 of 3 and 2 of 2 words
        ("Mara Mara", ["Mara"], 2 / 3),  # a repeated word counts once
        ("Tel", ["Mara", "Tel River"], 2 / 3),
        ("yes it is", ["yes"], 0.0),
        ("", ["Mara"], 0.0),
        ("the", ["a"], 0.0),
        ("Mara", [], 0.0),
    ],
)
def test_f1_is_the_best_over_the_golden_answers(answer: str, golden: list[str], expected: float) -> None:
    assert f1(answer, golden) == pytest.approx(expected)
