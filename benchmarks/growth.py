"""How something grows: the exponent of a power law through sizes and costs, with its interval. Pure; needs numpy."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from pettingllms_envs.research.studies.paired import student_quantile


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """What is played and trained on.

    Args:
        instances: Rows of a step.
        candidates: K.
        turns: Of each role.
        roles: Agents, each with a role of its own.
        prompt: Tokens of a prompt; words of it, in a rollout.
        policies: Adapters that the roles share among them.
    """

    instances: int = 64
    candidates: int = 8
    turns: int = 2
    roles: int = 2
    prompt: int = 128
    policies: int = 1


@dataclass(frozen=True, slots=True)
class Fit:
    """A straight line through the logarithms, `cost = c * size ** exponent`.

    Args:
        exponent: Its slope: 0 costs the same whatever the size, 1 is linear, 2 quadratic.
        low, high: Student's interval of the slope; as wide as can be with two sizes, of which nothing is left to tell
            the deviation from.
        last: The slope between the two largest sizes alone, where what is fixed matters least.
    """

    exponent: float
    low: float
    high: float
    last: float

    def __str__(self) -> str:
        return f"{self.exponent:.2f} [{self.low:.2f}, {self.high:.2f}], last {self.last:.2f}"


def fit(sizes: Sequence[float], costs: Sequence[float], confidence: float = 0.95) -> Fit:
    """The power law through the points, by least squares of the logarithms.

    A fixed cost bends the line: it makes the exponent smaller, and `last` less so.

    Raises:
        ValueError: Fewer than two sizes, or something that is not above 0.

    Example:
        `fit([1, 2, 4], [3, 6, 12]).exponent` is 1.0.
    """
    if len(sizes) != len(costs) or len(set(sizes)) < 2 or min(*sizes, *costs) <= 0:
        raise ValueError(
            f"sizes {list(sizes)} with costs {list(costs)}; expected as many of both, two different sizes or more, "
            "and all above 0, as logarithms are taken."
        )
    x, y = np.log(sizes), np.log(costs)
    order = np.argsort(x)
    x, y = x[order], y[order]
    centred = x - x.mean()
    exponent = float((centred * y).sum() / (centred**2).sum())
    freedom = len(x) - 2
    half = math.inf
    if freedom:
        residuals = y - y.mean() - exponent * centred
        deviation = math.sqrt(float((residuals**2).sum()) / freedom / float((centred**2).sum()))
        half = student_quantile((1 + confidence) / 2, freedom) * deviation
    return Fit(exponent, exponent - half, exponent + half, float((y[-1] - y[-2]) / (x[-1] - x[-2])))
