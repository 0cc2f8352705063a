"""`benchmarks/bench_rollout_loop.py`: what its ratios say, and a count of a rollout by hand."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest


bench = pytest.importorskip("bench_rollout_loop")


def test_the_ratio_is_of_this_checkout_over_the_other_with_an_interval_of_its_median() -> None:
    median, low, high = bench.ratio([(2.0, 1.0), (4.0, 2.0), (1.0, 0.5)])
    assert (median, low, high) == (0.5, 0.5, 0.5)
    median, low, high = bench.ratio([(1.0, 1.0 + k / 10) for k in range(11)])
    assert median == 1.5
    assert 1.0 <= low < 1.5 < high <= 2.0


@pytest.mark.parametrize(
    ("what", "found", "met"),
    [
        ("rollout", (0.98, 0.90, 1.10), True),
        ("rollout", (1.01, 0.99, 1.02), True),
        ("step", (1.01, 0.99, 1.04), False),
        ("step", (1.02, 1.01, 1.02), False),
        ("memory", (1.05, 1.05, 1.05), True),
        ("env", (1.04, 0.90, 1.10), False),
    ],
)
def test_a_ratio_is_met_at_1_or_where_it_cannot_be_told_from_it(
    what: str, found: tuple[float, float, float], met: bool
) -> None:
    assert bench.is_met(what, *found) is met


def test_moves_are_counted_between_files_at_calls_and_returns(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    architecture = pytest.importorskip("architecture")
    (tmp_path / "one.py").write_text("from two import inner\n\ndef outer():\n    return inner() + inner()\n")
    (tmp_path / "two.py").write_text("def inner():\n    return 1\n")
    monkeypatch.syspath_prepend(tmp_path)
    import one

    trace = architecture.Trace()
    trace._package = f"{tmp_path}/"
    assert trace.of(one.outer) == 2
    figures = trace.figures()
    # one | two one | two one
    assert (figures["files entered"], figures["functions"], figures["moves between files"]) == (2, 2, 5)
    del sys.modules["one"], sys.modules["two"]


def test_a_rollout_plays_all_rows_of_an_engine_that_answers_at_once() -> None:
    episodes = bench.rollout(2)().episodes
    assert [episode.instance for episode in episodes] == [0, 1]
    assert {len(decision.candidates) for episode in episodes for decision in episode.decisions} == {4}
