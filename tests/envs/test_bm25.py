"""BM25: scores worked out by hand from the formula, and rankings that repeat."""

from __future__ import annotations

import math

import pytest

from pettingllms_envs.retrieval.bm25 import BM25, terms_of


PASSAGES = ("The cat sat.", "The cat saw the cat sit down.", "A dog barked.")
# Terms: 3, 7 and 3, on average 13/3. "cat" is in two passages of three, "dog" in one.


def test_a_score_is_idf_times_saturated_frequency() -> None:
    idf_cat, idf_dog = math.log(1 + 1.5 / 2.5), math.log(1 + 2.5 / 1.5)
    short, long = 1.2 * (0.25 + 0.75 * 9 / 13), 1.2 * (0.25 + 0.75 * 21 / 13)
    scores = BM25(PASSAGES).scores("cat dog")
    assert scores == pytest.approx({0: idf_cat / (1 + short), 1: idf_cat * 2 / (2 + long), 2: idf_dog / (1 + short)})


def test_a_term_counts_once_in_a_query_and_terms_add_up() -> None:
    index = BM25(PASSAGES)
    assert index.scores("cat CAT, cat!") == index.scores("cat")
    both, cat, sat = (index.scores(query)[0] for query in ("cat sat", "cat", "sat"))
    assert both == pytest.approx(cat + sat)


@pytest.mark.parametrize(
    ("query", "k", "expected"),
    [
        ("dog", 3, [2]),
        ("dog cat", 2, [2, 1]),
        ("cat", 9, [1, 0]),  # the longer one has it twice: 0.250 and 0.244
        ("a the", 3, [2, 1, 0]),
        ("horse", 3, []),
        ("", 3, []),
        ("cat", 0, []),
    ],
)
def test_the_best_passages_come_first(query: str, k: int, expected: list[int]) -> None:
    assert BM25(PASSAGES).top(query, k) == expected


def test_ties_go_to_the_earlier_passage() -> None:
    assert BM25(["b a", "a b", "a c"]).top("a", 3) == [0, 1, 2]


def test_words_are_runs_of_letters_and_digits_in_lower_case() -> None:
    assert terms_of("Zulo's 2 RIVERS,\n(the-Mara) \ud800 Äther") == [
        "zulo",
        "s",
        "2",
        "rivers",
        "the",
        "mara",
        "äther",
    ]


def test_an_empty_corpus_and_empty_passages_find_nothing() -> None:
    assert BM25([]).top("a", 3) == []
    assert BM25(["", "..."]).top("a", 3) == []


@pytest.mark.parametrize("settings", [{"k1": -1}, {"b": 1.5}, {"b": -0.1}])
def test_parameters_out_of_range_raise(settings: dict[str, float]) -> None:
    with pytest.raises(ValueError, match=r"expected k1 of at least 0, such as 1.2, and b from 0 to 1"):
        BM25([], **settings)
