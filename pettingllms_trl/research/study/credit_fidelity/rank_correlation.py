"""Rank correlations of a scheme's advantages with counterfactual ones, and their interval. Pure; needs numpy alone."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray


Floats = NDArray[np.float64]
DRAWS = 2000


def correlations(advantages: Floats, estimates: Floats, instances: NDArray[Any]) -> dict[str, Any]:
    """A scheme's correlation with both estimates, its interval, and the ceiling.

    The ceiling is what the expected values themselves would reach: the square root of the correlation of the two
    estimates. Two estimates, each of which is the truth plus noise of its own, have the product of their
    correlations with the truth (Spearman's correction for attenuation; with ranks it is an approximation).

    A resample in which all values of one are equal counts as a correlation of 0, so that an interval which rests on a
    few instances includes it.

    Args:
        advantages: Of the candidates. (C,)
        estimates: Two estimates of each. (2, C)
        instances: The instance of each, which are resampled for the interval. (C,)
    """
    found = _mean_rank_correlation(advantages, estimates)
    interval = None
    if found is not None:
        rng = np.random.default_rng(0)
        places = [np.flatnonzero(instances == instance) for instance in np.unique(instances)]
        draws = []
        for _ in range(DRAWS):
            drawn = np.concatenate([places[i] for i in rng.integers(0, len(places), len(places))])
            draws.append(_mean_rank_correlation(advantages[drawn], estimates[:, drawn]) or 0.0)
        interval = tuple(round(float(value), 4) for value in np.quantile(draws, [0.025, 0.975]))
    agreement = rank_correlation(estimates[0], estimates[1])
    return {
        "correlation": None if found is None else round(found, 4),
        "interval": interval,
        "ceiling": None if agreement is None else round(math.sqrt(max(agreement, 0.0)), 4),
    }


def _mean_rank_correlation(advantages: Floats, estimates: Floats) -> float | None:
    values = [rank_correlation(advantages, estimate) for estimate in estimates]
    defined = [value for value in values if value is not None]
    return sum(defined) / len(defined) if defined else None


def rank_correlation(one: Floats, other: Floats) -> float | None:
    """Spearman's rank correlation; equal values have their mean rank. `None` if all values of one are equal.

    Example:
        1, 2, 3 and 1, 3, 2: 1 - 6 * (0 + 1 + 1) / (3 * 8) = 0.5.
    """
    ranks: Floats = np.stack([_ranks(one), _ranks(other)])
    if (np.ptp(ranks, axis=1) == 0).any():
        return None
    off: Floats = ranks - ranks.mean(axis=1, keepdims=True)
    return float((off[0] * off[1]).sum() / np.sqrt((off**2).sum(axis=1).prod()))


def _ranks(values: Floats) -> Floats:
    """Ranks from 1, the mean of their places for equal values. Values that differ by rounding alone are equal."""
    _, inverse, counts = np.unique(np.round(values, 9), return_inverse=True, return_counts=True)
    last = np.cumsum(counts)
    return np.asarray((last - (counts - 1) / 2)[inverse], dtype=np.float64)
