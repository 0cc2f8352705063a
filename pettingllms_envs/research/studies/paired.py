"""Compares two training methods over few seeds and many instances: two intervals and an exact test. Needs numpy alone.

What is compared is success, 0 or 1, of two methods that were trained from the same start with the same seed and
evaluated on the same instances: `d[s, i] = first[s, i] - second[s, i]`. Two things may be luck: which seeds were
drawn, and which instances. So there are two intervals of the mean of `d`:

* `student`: Student's, of the seeds' mean differences, with S - 1 degrees of freedom. It holds for few seeds if their
  differences are about normal, and ignores the instances.
* `bootstrap`: percentiles of the mean over resampled seeds and instances, with the same instances for all seeds, as
  they are in the data. It accounts for both, but with few seeds it is too narrow (with 5, by a tenth and more).

The verdict is "cannot tell" unless both exclude 0. `sign_flips` is exact whatever the distribution, and with five
seeds says little: its smallest p-value is 2 / 2^5.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from pettingllms_envs.evaluation.statistics import difference_interval, sign_flips


Interval = tuple[float, float]
Successes = NDArray[np.float64]
"""(S, N): 1.0 where the method succeeded with seed s on instance i, else 0.0."""

DRAWS = 20_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """How much better the first of two methods does.

    Args:
        mean: Of the differences, in [-1, 1].
        student: Interval over seeds.
        bootstrap: Interval over seeds and instances.
        p: Two-sided, exact, of the seeds' differences.
    """

    mean: float
    by_seed: tuple[float, ...]
    student: Interval
    bootstrap: Interval
    p: float
    confidence: float

    @property
    def verdict(self) -> str:
        """`"better"`, `"worse"`, or `"cannot tell"`."""
        low = min(self.student[0], self.bootstrap[0])
        high = max(self.student[1], self.bootstrap[1])
        return "better" if low > 0 else "worse" if high < 0 else "cannot tell"


def compare(first: Successes, second: Successes, *, num_comparisons: int, overall: float = 0.95) -> Comparison:
    """The first method's successes less the second's.

    Args:
        first, second: (S, N), the same seeds and instances; at least two seeds.
        num_comparisons: How many are made, whose intervals shall hold together with `overall` confidence (Bonferroni).
    """
    if first.shape != second.shape or first.ndim != 2 or len(first) < 2:
        raise ValueError(
            f"successes of the shapes {first.shape} and {second.shape}; expected the same (seeds, instances) of both, "
            "with two seeds or more. Run the seeds that are missing."
        )
    confidence = 1 - (1 - overall) / num_comparisons
    differences = first - second
    by_seed = tuple(differences.mean(axis=1).tolist())
    return Comparison(
        mean=float(differences.mean()),
        by_seed=by_seed,
        student=student(by_seed, confidence),
        bootstrap=bootstrap(differences, confidence),
        p=sign_flips(by_seed),
        confidence=confidence,
    )


def student(values: tuple[float, ...], confidence: float) -> Interval:
    """Student's interval of a mean.

    Example:
        1, 2, 3 at 95%: 2 +- 4.303 * 1 / sqrt(3).
    """
    size = len(values)
    mean = sum(values) / size
    deviation = math.sqrt(sum((value - mean) ** 2 for value in values) / (size - 1))
    half = student_quantile((1 + confidence) / 2, size - 1) * deviation / math.sqrt(size)
    return mean - half, mean + half


@lru_cache
def student_quantile(probability: float, freedom: int) -> float:
    """Where Student's distribution reaches a probability above a half; by Simpson's rule and halving, to 1e-6."""
    scale = math.exp(math.lgamma((freedom + 1) / 2) - math.lgamma(freedom / 2)) / math.sqrt(freedom * math.pi)

    def above_middle(t: float, num_steps: int = 4000) -> float:
        # With t = sqrt(n) tan(x) the density becomes cos(x)^(n-1): smooth and bounded, however far t is.
        end = math.atan(t / math.sqrt(freedom))
        xs = np.linspace(0, end, num_steps + 1)
        weights = np.ones(num_steps + 1)
        weights[1:-1:2], weights[2:-1:2] = 4, 2
        area = (weights * np.cos(xs) ** (freedom - 1)).sum() * end / num_steps / 3
        return float(scale * math.sqrt(freedom) * area)

    low, high = 0.0, 1.0
    while above_middle(high) < probability - 0.5:
        high *= 2
    while high - low > 1e-7 * max(1.0, high):
        middle = (low + high) / 2
        low, high = (middle, high) if above_middle(middle) < probability - 0.5 else (low, middle)
    return (low + high) / 2


def bootstrap(differences: Successes, confidence: float, *, seed: int = 0) -> Interval:
    """Percentile interval of the mean over resampled rows and columns, each on their own; where all differences are
    equal, and that is a point, `difference_interval` of the columns. (S, N)"""
    if np.ptp(differences) == 0.0:
        return difference_interval(differences[0].tolist(), confidence)
    rows, columns = _weights(*differences.shape, seed)
    means = ((rows @ differences) * columns).sum(axis=1)  # (B,)
    low, high = np.quantile(means, [(1 - confidence) / 2, (1 + confidence) / 2])
    return float(low), float(high)


@lru_cache(maxsize=1)  # a report compares many pairs of one shape, and the draws take longest
def _weights(num_seeds: int, num_instances: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """How often each draw has each row (B, S) and each column (B, N), as shares."""
    rng = np.random.default_rng(seed)
    rows = rng.multinomial(num_seeds, np.full(num_seeds, 1 / num_seeds), DRAWS) / num_seeds
    return rows, rng.multinomial(num_instances, np.full(num_instances, 1 / num_instances), DRAWS) / num_instances
