"""How long a study takes, by the runs of it that are finished."""

from __future__ import annotations

import pytest

from pettingllms_envs.research.studies.results import Cell, CellResult
from pettingllms_trl.research.study.cost import cpu_seconds_of, sentence


def cell(environment: str, method: str, seed: int) -> Cell:
    return Cell(phase="evaluation", environment=environment, method=method, seed=seed)


def finished(environment: str, method: str, seed: int, cpu_seconds: float) -> CellResult:
    return CellResult(
        cell=cell(environment, method, seed),
        config={},
        digest="",
        success="1",
        tokens=1,
        steps=1,
        seconds=1.0,
        cpu_seconds=cpu_seconds,
    )


@pytest.mark.parametrize(
    ("left", "expected"),
    [
        (("grid", "ours", 9), 20.0),  # its own method: 10 and 30
        (("grid", "theirs", 9), 40.0),  # its environment: 10, 30 and 80
        (("boxes", "ours", 9), 55.0),  # all: 10, 30, 80 and 100
    ],
)
def test_a_run_takes_the_mean_of_those_that_are_most_like_it(left: tuple[str, str, int], expected: float) -> None:
    known = [("grid", "ours", 10.0), ("grid", "ours", 30.0), ("grid", "single", 80.0), ("maze", "ours", 100.0)]
    results = [finished(environment, method, seed, cpu) for seed, (environment, method, cpu) in enumerate(known)]
    assert cpu_seconds_of([cell(*left)], results) == expected


def test_older_results_have_no_cpu_time_and_say_nothing() -> None:
    old, new = finished("grid", "ours", 1, 0.0), finished("grid", "ours", 2, 900.0)
    left = [cell("grid", "ours", 3), cell("grid", "ours", 4)]
    assert cpu_seconds_of(left, [old]) is None
    assert sentence(left, [old, new]).startswith("The 2 runs that are left take about 0.5 CPU hours")
    assert sentence(left[:1], []).startswith("The run that is left takes a time that is not known yet")
