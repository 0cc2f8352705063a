"""Intervals of paired differences over seeds and instances, by hand."""

import math
from typing import Any

import numpy as np
import pytest

from pettingllms_envs.evaluation.statistics import sign_flips
from pettingllms_envs.research.studies.paired import Comparison, bootstrap, compare, student, student_quantile


@pytest.mark.parametrize(
    ("probability", "freedom", "quantile"),
    [(0.975, 1, 12.7062), (0.975, 2, 4.302653), (0.975, 4, 2.776445), (0.995, 4, 4.604095), (0.95, 10, 1.812461)],
)
def test_students_quantiles_are_those_of_the_tables(probability: float, freedom: int, quantile: float) -> None:
    assert student_quantile(probability, freedom) == pytest.approx(quantile, abs=2e-5)


def test_students_interval_of_three_seeds() -> None:
    # Mean 2, deviation 1, two degrees of freedom: 2 +- 4.302653 / sqrt(3).
    half = 4.302653 / math.sqrt(3)
    assert student((1.0, 2.0, 3.0), 0.95) == pytest.approx((2 - half, 2 + half), abs=1e-5)


def test_the_bootstrap_resamples_seeds() -> None:
    # Two seeds whose means are 0 and 1: 0 with probability 1/4, 0.5 with 1/2, 1 with 1/4, whatever the instances.
    differences = np.array([[0.0, 0.0], [1.0, 1.0]])
    assert bootstrap(differences, 0.4) == pytest.approx((0.5, 0.5))  # percentiles 30 and 70
    assert bootstrap(differences, 0.6) == pytest.approx((0.0, 1.0))  # 20 and 80


def test_the_bootstrap_draws_the_same_instances_for_all_seeds() -> None:
    # The mean is -1, 0 or 1 with probabilities 1/4, 1/2, 1/4. Were instances drawn for each seed on its own, -1 and 1
    # would have 1/4 where one seed is drawn twice and 1/16 where both are, 0.156 in all, less than percentile 20.
    differences = np.array([[1.0, -1.0], [1.0, -1.0]])
    assert bootstrap(differences, 0.6) == pytest.approx((-1.0, 1.0))
    assert bootstrap(differences, 0.4) == pytest.approx((0.0, 0.0))


@pytest.mark.parametrize(("each", "interval"), [(0.0, (-0.277533, 0.277533)), (1.0, (0.722467, 1.0))])
def test_differences_that_are_all_equal_have_the_interval_of_as_many_instances(
    each: float, interval: tuple[float, float]
) -> None:
    """Wilson's of 0 in 10 at 95% ends at 3.8415 / 13.8415: both methods may differ on other instances."""
    assert bootstrap(np.full((2, 10), each), 0.95) == pytest.approx(interval, abs=1e-6)


@pytest.mark.parametrize(
    ("values", "p"),
    [
        ((1.0, 2.0, 3.0), 2 / 8),
        ((0.1, 0.1, 0.1, 0.1, 0.1), 2 / 32),  # the least that five seeds can give
        ((1.0, -1.0), 1.0),
        # The sum is 9 of 11 at most: as far are those that flip {}, the one 1 or the other, and their opposites.
        ((4.0, 3.0, 2.0, 1.0, -1.0), 6 / 32),
    ],
)
def test_sign_flips_count_the_sums_as_far_from_nothing(values: tuple[float, ...], p: float) -> None:
    assert sign_flips(values) == p


def test_a_comparison_is_paired_and_corrected_for_how_many_there_are() -> None:
    # Seeds differ by 0.5, 0.25, 0.75 (mean 0.5, deviation 0.25); t(0.995, 2) = 0.99 / sqrt(2 * 0.995 * 0.005).
    second = np.zeros((3, 4))
    first = np.array([[1.0, 1, 0, 0], [1, 0, 0, 0], [1, 1, 1, 0]])
    compared = compare(first, second, num_comparisons=5)
    half = 0.99 / math.sqrt(2 * 0.995 * 0.005) * 0.25 / math.sqrt(3)
    assert compared.confidence == pytest.approx(0.99)
    assert compared.by_seed == (0.5, 0.25, 0.75)
    assert compared.mean == 0.5
    assert compared.student == pytest.approx((0.5 - half, 0.5 + half), abs=1e-5)
    assert compared.p == 0.25
    assert compared.verdict == "cannot tell"
    other = compare(second, first, num_comparisons=5)
    assert other.by_seed == (-0.5, -0.25, -0.75)
    assert other.student == pytest.approx((-0.5 - half, -0.5 + half), abs=1e-5)


@pytest.mark.parametrize(
    ("over_seeds", "over_both", "verdict"),
    [
        ((0.1, 0.3), (0.05, 0.4), "better"),
        ((-0.1, 0.3), (0.05, 0.4), "cannot tell"),
        ((0.1, 0.3), (-0.05, 0.4), "cannot tell"),
        ((-0.3, -0.1), (-0.4, -0.05), "worse"),
        ((-0.3, 0.1), (-0.4, -0.05), "cannot tell"),
    ],
)
def test_a_verdict_is_given_only_where_both_intervals_agree(over_seeds: Any, over_both: Any, verdict: str) -> None:
    compared = Comparison(mean=0, by_seed=(), student=over_seeds, bootstrap=over_both, p=1, confidence=0.95)
    assert compared.verdict == verdict


@pytest.mark.parametrize(("first", "second"), [((2, 4), (2, 3)), ((1, 4), (1, 4))])
def test_unequal_shapes_and_a_single_seed_are_refused(first: tuple[int, ...], second: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match="two seeds or more"):
        compare(np.zeros(first), np.zeros(second), num_comparisons=1)
