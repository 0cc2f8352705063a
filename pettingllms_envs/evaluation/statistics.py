"""Intervals and tests for success rates, and how samples of one problem are counted. Pure; needs numpy alone.

Two things keep these honest. Samples of one problem are not independent, so problems are resampled, never samples. And
two runs on the same problems are compared problem by problem, which is far sharper than two intervals side by side.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Hashable, Sequence
from statistics import NormalDist

import numpy as np
from numpy.typing import NDArray


Interval = tuple[float, float]

DRAWS = 10_000
STUDENTIZED_DRAWS = 4_000
SKEWED = 1 / 6
"""Skewness of a mean (of the values, over the root of their number) at which `studentized_bootstrap` halves the share
of intervals that may miss. Chosen by simulation, see docs/benchmarking.md."""
MOST_STUDENTIZED = 5_000
"""Most values that are resampled: of more the normal interval is as good, and resampling takes seconds."""
MOST_SUMS = 1_000_000
"""Most that whole differences may add up to for the distribution of their sum to be computed."""
MOST_ENUMERATED = 16
"""Most differences for which all combinations of signs are enumerated."""


def wilson(num_successes: float, num: int, confidence: float = 0.95) -> Interval:
    """Wilson's score interval of a share (Wilson 1927); (0, 1) if `num` is 0.

    Example:
        5 of 10 at 95%: 0.237 to 0.763.
    """
    if num == 0:
        return 0.0, 1.0
    z = _quantile(confidence)
    share = num_successes / num
    scale = 1 + z * z / num
    middle = (share + z * z / (2 * num)) / scale
    half = z / scale * math.sqrt(share * (1 - share) / num + z * z / (4 * num * num))
    return (0.0 if num_successes == 0 else middle - half), (1.0 if num_successes == num else middle + half)


def pass_at(k: int, num: int, num_right: int) -> float:
    """Probability that one of k samples is right, drawn without replacement from `num` of which `num_right` are.

    The unbiased estimate of pass@k (arXiv:2107.03374, section 2.1), in exact arithmetic.

    Example:
        2 of 5 right, k = 2: 1 - C(3, 2) / C(5, 2) = 0.7.

    Raises:
        ValueError: There are fewer samples than k.
    """
    if not 1 <= k <= num:
        raise ValueError(f"pass@{k} of {num} samples; expected 1 to {num}. Take more samples.")
    return 1 - math.comb(num - num_right, k) / math.comb(num, k)


def majority(answers: Sequence[Hashable], right: Sequence[bool]) -> float:
    """Probability that the most frequent answer is right; ties are broken at random.

    An answer is right as often as its samples are: 1 or 0 if the grader is consistent. None is no answer.

    Example:
        Answers 7, 7, 3, 3, 5 of which 7 is right: 0.5.
    """
    votes: dict[Hashable, list[bool]] = {}
    for answer, is_right in zip(answers, right, strict=True):
        if answer is not None:
            votes.setdefault(answer, []).append(is_right)
    if not votes:
        return 0.0
    most = max(map(len, votes.values()))
    leading = [sum(rights) / len(rights) for rights in votes.values() if len(rights) == most]
    return sum(leading) / len(leading)


def bootstrap(values: Sequence[float], confidence: float = 0.95, *, seed: int = 0) -> Interval:
    """Percentile interval of the mean of values, one for each problem, resampled with replacement.

    For values of a bounded range, such as differences of shares. With few problems it is somewhat narrow, like every
    bootstrap, and for heavy tails its coverage is far too low: see `studentized_bootstrap`. If all values are equal it
    is degenerate: see `mean_interval` and `difference_interval`.
    """
    return _percentiles(np.asarray(values, dtype=np.float64), len(values), confidence, seed)


def studentized_bootstrap(values: Sequence[float], confidence: float = 0.95, *, seed: int = 0) -> Interval:
    """Interval of the mean of values that may have a heavy tail, such as tokens or regrets, one for each problem.

    The bootstrap of `(mean - true mean) / standard error` (Efron 1981; "bootstrap-t"), which is asymmetric for skewed
    values. For strongly skewed ones its coverage is still too low (89% instead of 95% for 30 lognormal values with
    sigma 1.5), so the miss rate is divided by `1 + (s / SKEWED)^2`, where s is the skewness of the mean, which hardly
    affects symmetric values. A resample whose values are nearly all equal gets a minimum standard error. Fewer than
    ten values are too few for any interval of this kind. If all are equal, both ends are that value. Of more than
    `MOST_STUDENTIZED` it is the normal interval.
    """
    array = np.asarray(values, dtype=np.float64)
    num, mean = len(array), float(array.mean())
    off = array - mean
    variance = float((off * off).sum()) / max(1, num - 1)
    if variance == 0.0:
        return mean, mean
    error = math.sqrt(variance / num)
    if num > MOST_STUDENTIZED:
        return mean - _quantile(confidence) * error, mean + _quantile(confidence) * error
    skewness = float((off**3).mean()) / float((off * off).mean()) ** 1.5 / math.sqrt(num)
    missed = (1 - confidence) / (1 + (skewness / SKEWED) ** 2)
    rng = np.random.default_rng(seed)
    ratios: list[NDArray[np.float64]] = []
    for _ in range(0, STUDENTIZED_DRAWS, 500):  # in portions: those of many problems would fill the memory
        drawn = off[rng.integers(0, num, (500, num))]
        means = drawn.mean(axis=1)
        squares = np.maximum((drawn * drawn).mean(axis=1) - means * means, 0.0) / max(1, num - 1)
        ratios.append(means / np.sqrt(np.maximum(squares, error * error / num)))
    low, high = np.quantile(np.concatenate(ratios), [missed / 2, 1 - missed / 2])
    return mean - float(high) * error, mean - float(low) * error


def num_to_show(difference: float, deviation: float, *, alpha: float = 0.05, power: float = 0.8) -> int | None:
    """How many paired values are needed to show that their mean is not 0; None if it is 0.

    Values are problems played by two runs, or seeds trained with two methods: any independent differences.

    Args:
        difference: Their estimated mean.
        deviation: Their standard deviation.
        alpha: Level of the two-sided test; with several simultaneous tests, the level of each.
        power: Probability of finding a difference that exists.

    Returns:
        `((z_(1 - alpha/2) + z_power) * deviation / difference)^2 + z_(1 - alpha/2)^2 / 2`, rounded up: the normal
        approximation with Guenther's (1981) addition for an unknown deviation.

    Example:
        A difference of half a deviation at 0.05 and 80%: (1.960 + 0.842)^2 / 0.25 + 1.921 = 33.3, so 34.
    """
    if difference == 0.0:
        return None
    z = NormalDist().inv_cdf(1 - alpha / 2)
    ratio = (z + NormalDist().inv_cdf(power)) * deviation / difference
    return math.ceil(ratio * ratio + z * z / 2)


def shares_bootstrap(shares: Sequence[float], confidence: float = 0.95, *, seed: int = 0) -> Interval:
    """The bootstrap of shares in [0, 1], one for each problem, with half a success and half a failure added.

    They represent the unseen problems (as in Jeffreys' interval of a single share): without them, intervals for 50
    problems with a pass@4 of 0.995 have a coverage of 60%, since nearly all of their values are 1.
    tests/evaluation/test_statistics.py has the coverage with them.
    """
    both = np.concatenate([np.repeat(np.asarray(shares, dtype=np.float64), 2), [0.0, 1.0]])
    return _percentiles(both, len(shares) + 1, confidence, seed)


def mean_interval(shares: Sequence[float], confidence: float = 0.95) -> Interval:
    """Interval of the mean of shares in [0, 1], one for each problem.

    Wilson's interval if each is 0 or 1, else the bootstrap. If all are equal, the bootstrap is degenerate; then
    Wilson's, as if each problem had one sample.
    """
    if not shares:
        return 0.0, 1.0
    if set(shares) <= {0.0, 1.0} or len(set(shares)) == 1:
        return wilson(sum(shares), len(shares), confidence)
    return shares_bootstrap(shares, confidence)


def mcnemar(num_first: int, num_second: int) -> float:
    """Two-sided exact p-value of McNemar's test: whether each run alone solves equally many problems.

    Example:
        1 and 8: 2 * (C(9, 0) + C(9, 1)) / 2^9 = 20 / 512.
    """
    num = num_first + num_second
    fewer = min(num_first, num_second)
    tail: float = sum(math.comb(num, i) for i in range(fewer + 1)) / 2**num
    return min(1.0, 2 * tail)


def sign_flips(values: Sequence[float], *, seed: int = 0) -> float:
    """Two-sided p-value of the sign-flip test: the share of sign combinations with a sum at least as far from 0.

    Exact for integers that add up to at most `MOST_SUMS`, and for up to `MOST_ENUMERATED` other values; beyond that,
    from 100,000 random combinations and the observed one.

    Example:
        1, 2, 3: of the eight sums only 6 and -6 are as far from 0, so 0.25, the least possible with three values.
    """
    values = [value for value in values if value]
    if all(float(value).is_integer() for value in values) and sum(map(abs, values)) <= MOST_SUMS:
        return _flips_of_integers([int(value) for value in values])
    seen = abs(sum(values)) - 1e-12 * max(1.0, sum(map(abs, values)))  # sums are rounded
    array = np.array(values)
    if len(values) <= MOST_ENUMERATED:
        signs = np.array(list(itertools.product((1, -1), repeat=len(values))))
        return float(np.mean(np.abs(signs @ array) >= seen))
    rng = np.random.default_rng(seed)
    num_as_far = sum(
        int(np.sum(np.abs((rng.integers(0, 2, (1000, len(values))) * 2 - 1) @ array) >= seen)) for _ in range(100)
    )
    return (num_as_far + 1) / 100_001


def paired_interval(both: int, first: int, second: int, neither: int, confidence: float = 0.95) -> Interval:
    """Interval of the difference of two shares of the same problems (Newcombe 1998, paired, method 10).

    The numbers of problems that both solve, that only the first or only the second solves, and that neither does.

    Example:
        20, 12, 2, 16, the first of Newcombe's own: 0.0562 to 0.3292 at 95%.
    """
    num = both + first + second + neither
    one, other = (both + first) / num, (both + second) / num
    (low_1, high_1), (low_2, high_2) = wilson(both + first, num, confidence), wilson(both + second, num, confidence)
    margins = (both + first) * (second + neither) * (both + second) * (first + neither)
    determinant: float = both * neither - first * second
    if determinant > num / 2:
        determinant -= num / 2
    elif determinant >= 0:
        determinant = 0.0
    phi = determinant / math.sqrt(margins) if margins else 0.0
    below = _root((one - low_1) ** 2 - 2 * phi * (one - low_1) * (high_2 - other) + (high_2 - other) ** 2)
    above = _root((high_1 - one) ** 2 - 2 * phi * (high_1 - one) * (other - low_2) + (other - low_2) ** 2)
    return one - other - below, one - other + above


def difference_interval(differences: Sequence[float], confidence: float = 0.95) -> Interval:
    """Interval of the mean of differences in [-1, 1], one for each problem, by the bootstrap.

    If all are equal the bootstrap is degenerate; then the share of problems with another one is bounded by Wilson's
    interval of 0, and each is by at most 1 away.
    """
    if len(set(differences)) < 2:
        most, mean = wilson(0, len(differences), confidence)[1], max(differences, default=0.0)
        return max(-1.0, mean - most), min(1.0, mean + most)
    return bootstrap(differences, confidence)


def holm(ps: Sequence[float]) -> list[float]:
    """The p-values of several tests, adjusted for multiple testing (Holm 1979), in the given order.

    Example:
        0.01, 0.04, 0.03: 0.03, 0.06, 0.06.
    """
    adjusted = [0.0] * len(ps)
    highest = 0.0
    for rank, i in enumerate(sorted(range(len(ps)), key=lambda i: ps[i])):
        highest = max(highest, min(1.0, (len(ps) - rank) * ps[i]))
        adjusted[i] = highest
    return adjusted


def _flips_of_integers(values: Sequence[int]) -> float:
    """`sign_flips` for integers, by convolving the distribution of the sum."""
    seen, most = abs(sum(values)), sum(map(abs, values))
    chances = np.zeros(2 * most + 1)  # of each sum, from -most to most
    chances[most] = 1.0
    for value in map(abs, values):
        spread = np.zeros_like(chances)
        spread[value:] += chances[:-value] / 2
        spread[:-value] += chances[value:] / 2
        chances = spread
    sums = np.arange(-most, most + 1)
    return min(1.0, float(chances[np.abs(sums) >= seen].sum()))


def _percentiles(values: NDArray[np.float64], size: int, confidence: float, seed: int) -> Interval:
    """Percentiles of the mean of `size` values, drawn with replacement."""
    rng = np.random.default_rng(seed)
    # In portions: those of many problems would fill the memory.
    means = [values[rng.integers(0, len(values), (500, size))].mean(axis=1) for _ in range(0, DRAWS, 500)]
    low, high = np.quantile(np.concatenate(means), [(1 - confidence) / 2, (1 + confidence) / 2])
    return float(low), float(high)


def _quantile(confidence: float) -> float:
    return NormalDist().inv_cdf((1 + confidence) / 2)


def _root(value: float) -> float:
    return math.sqrt(max(value, 0.0))
