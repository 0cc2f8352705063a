"""What a rerun has in common with a finished run, worked out by hand."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from made_results import result
from pettingllms_envs.research.studies.agreement import (
    BEYOND_NOISE,
    EXACT,
    WITHIN_NOISE,
    agreement,
    difference_of,
    num_equal,
)
from pettingllms_envs.research.studies.results import CellResult


def finished(success: str = "0110", **fields: Any) -> CellResult:
    made: dict[str, Any] = {
        "training": {"tokens": [10.0, 20.0, 30.0], "reward": [0.5, None, 0.25]},
        "curve": {"tokens": [0.0, 30.0], "success": [0.0, 0.5]},
        "packages": {"torch": "2.13.0"},
        "code": "a1",
        "model": "c3",
        "machine": {"processor": "AMD EPYC", "threads": 1},
    }
    return dataclasses.replace(result("ours", 1, success), **{**made, **fields})


def test_a_run_that_repeats_is_exact_whatever_it_took() -> None:
    found = agreement(finished(), finished(seconds=99.0, cpu_seconds=5.0))
    assert found.status == EXACT == 0
    assert found.lines == (
        "log: 3 of 3 rows are equal",
        "tokens: 1,000 in both",
        "steps: 10 in both",
        "curve: the first 2 of 2 points are equal",
        # Newcombe's interval of no difference in 2 of 4, perfectly correlated, has some width.
        found.lines[4],
        "packages: the same",
        "code: the same",
        "model: the same",
        "machine: the same",
        "It repeats exactly.",
    )
    assert found.lines[4].startswith("success: 4 of 4 instances end alike; 50.0% there, 50.0% here, +0.0 points [")


def test_a_drift_is_counted_from_the_first_row_that_differs_and_judged_by_the_instances() -> None:
    here = finished(
        "0100",
        tokens=1002,
        training={"tokens": [10.0, 20.0, 31.0], "reward": [0.5, 0.0, 0.25]},
        curve={"tokens": [0.0, 31.0], "success": [0.0, 0.5]},
        machine={"processor": "Intel", "threads": 1},
    )
    found = agreement(finished(packages={}), dataclasses.replace(here, code="b2"))
    assert found.status == WITHIN_NOISE == 3
    assert found.lines[:4] == (
        "log: the first 1 of 3 rows are equal (tokens 2, reward 1)",
        "tokens: 1,000 there, 1,002 here",
        "steps: 10 in both",
        "curve: the first 1 of 2 points are equal",
    )
    assert "success: 3 of 4 instances end alike; 50.0% there, 25.0% here, -25.0 points" in found.lines[4]
    assert found.lines[5:9] == (
        "packages: not recorded there",
        'code: digest: "a1" there, "b2" here',
        "model: the same",
        'machine: processor: "AMD EPYC" there, "Intel" here',
    )


def test_a_column_that_alone_differs_is_named() -> None:
    here = finished(training={"tokens": [10.0, 20.0, 30.0], "reward": [0.5, 0.0, 0.25]})
    assert agreement(finished(), here).lines[0] == "log: 3 of 3 rows are equal but for reward from row 2 on"


def test_a_difference_that_instances_do_not_explain_does_not_agree() -> None:
    found = agreement(finished("0" * 40), finished("1" * 20 + "0" * 20))
    assert found.status == BEYOND_NOISE == 1
    assert found.lines[-1].startswith("It does not agree: ")


def test_the_interval_is_of_the_reruns_rate_less_the_others() -> None:
    # The first example of Newcombe: 20 in both, 12 in the first alone, 2 in the second alone, 16 in neither.
    there, here = "1" * 20 + "0" * 12 + "1" * 2 + "0" * 16, "1" * 20 + "1" * 12 + "0" * 2 + "0" * 16
    assert difference_of(there, here) == pytest.approx((0.0562, 0.3292), abs=1e-4)


@pytest.mark.parametrize(
    ("one", "other", "equal"), [("abcd", "abXd", 2), ("ab", "abc", 2), ("", "a", 0), ("a", "b", 0)]
)
def test_values_are_equal_up_to_the_first_that_differs(one: str, other: str, equal: int) -> None:
    assert num_equal(one, other) == equal


def test_a_run_that_was_not_trained_has_no_log_to_compare() -> None:
    bare = finished(training={}, curve={})
    assert agreement(bare, bare).lines[0] == "log: none was kept"
