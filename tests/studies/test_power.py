"""What a study can show: checked by simulating the test that it will make."""

import math

import numpy as np
import pytest

from pettingllms_envs.research.studies.paired import student_quantile
from pettingllms_envs.research.studies.power import detectable, deviation, sentences


def test_the_deviation_of_a_seeds_difference_adds_training_and_instances() -> None:
    assert deviation(800, 0.0) == pytest.approx(0.025)  # sqrt(2 / 4 / 800)
    assert deviation(800, 0.06) == pytest.approx(0.065)  # 25, 60, 65
    assert deviation(200, 0.0, rate=0.2) == pytest.approx(0.04)  # sqrt(2 * 0.16 / 200)


@pytest.mark.parametrize(("num_seeds", "num_comparisons"), [(3, 1), (5, 1), (5, 7), (10, 14)])
def test_a_difference_of_that_size_is_found_in_four_studies_of_five(num_seeds: int, num_comparisons: int) -> None:
    size = detectable(num_seeds, 500, num_comparisons=num_comparisons, spread=0.03)
    rng = np.random.default_rng(1)
    seeds = rng.normal(size, deviation(500, 0.03), (20_000, num_seeds))
    half = student_quantile(1 - 0.025 / num_comparisons, num_seeds - 1) * seeds.std(axis=1, ddof=1)
    found = np.mean(seeds.mean(axis=1) > half / math.sqrt(num_seeds))
    assert found == pytest.approx(0.8, abs=0.015)


def test_more_seeds_more_instances_and_fewer_comparisons_show_less() -> None:
    def size(seeds: int, instances: int, comparisons: int) -> float:
        return detectable(seeds, instances, num_comparisons=comparisons, spread=0.03)

    assert size(10, 500, 7) < size(5, 500, 7)
    assert size(5, 2000, 7) < size(5, 500, 7)
    assert size(5, 500, 1) < size(5, 500, 7)


def test_one_seed_shows_nothing_and_the_words_say_so() -> None:
    assert sentences(1, 500, num_comparisons=1, spread=0.03) == [
        "With 1 seed no difference between methods can be shown. Use at least 3 seeds."
    ]
    said, more = sentences(5, 500, num_comparisons=1, spread=0.0)
    # Tables of the one-sample t-test: 5 values at 0.05 and 80% need 1.68 deviations, here of 3.16 points.
    assert (
        "With 5 seeds, 500 instances and 1 comparison, the study can tell a difference of 5.3 points or more" in said
    )
    assert "with 2000 instances: 2.7 points" in more
