"""Which difference between two methods a study can show: said before it runs, so that a small one is not run in vain.

With S seeds, Student's interval over the seeds' paired differences excludes 0 if their mean is more than `t` standard
errors away. A seed's difference varies for two reasons: training runs differ, by `spread`, and successes on N
instances are drawn: `sqrt(2 p (1 - p) / N)` for two methods that succeed independently with probability p, at most
`sqrt(1 / (2 N))`. Methods that succeed on the same instances vary less.
"""

from __future__ import annotations

import math
from functools import lru_cache, partial

import numpy as np

from pettingllms_envs.research.studies.paired import student_quantile
from pettingllms_envs.research.studies.results import Outline


DRAWS = 200_000


def deviation(num_instances: int, spread: float, *, rate: float = 0.5) -> float:
    """Standard deviation of a seed's difference between two methods.

    Args:
        spread: Its standard deviation if there were infinitely many instances.
        rate: Success of both methods; 0.5 varies most.

    Example:
        800 instances, a spread of 0: `sqrt(2 / 4 / 800) = 0.025`.
    """
    return math.sqrt(spread**2 + 2 * rate * (1 - rate) / num_instances)


def detectable(
    num_seeds: int,
    num_instances: int,
    *,
    num_comparisons: int,
    spread: float,
    overall: float = 0.95,
    power: float = 0.8,
) -> float:
    """The smallest difference in success that Student's interval shows with the given power.

    Args:
        num_seeds: Seeds of each method, at least two.
        num_comparisons: Comparisons that hold together with `overall` confidence (Bonferroni).
        power: Probability of finding a difference of this size.
    """
    confidence = 1 - (1 - overall) / max(1, num_comparisons)
    errors = _standard_errors(num_seeds, confidence, power)
    return errors * deviation(num_instances, spread) / math.sqrt(num_seeds)


@lru_cache
def _standard_errors(num_seeds: int, confidence: float, power: float) -> float:
    """The size of an effect, in true standard errors of the mean, that a two-sided t-test finds with this power.

    The test finds it if `z + effect > t sqrt(chi2 / (S - 1))`, so the effect is a quantile of the right-hand side
    minus z; by simulation, to about half a percent.
    """
    freedom = num_seeds - 1
    critical = student_quantile((1 + confidence) / 2, freedom)
    rng = np.random.default_rng(0)
    needed = critical * np.sqrt(rng.chisquare(freedom, DRAWS) / freedom) - rng.standard_normal(DRAWS)
    return float(np.quantile(needed, power))


def sentences(
    num_seeds: int, num_instances: int, *, num_comparisons: int, spread: float, are_primary: bool = False
) -> list[str]:
    """What a study of this size can show, and what more seeds or instances would change."""
    if num_seeds < 2:
        return [f"With {num_seeds} seed no difference between methods can be shown. Use at least 3 seeds."]
    smallest = partial(detectable, num_comparisons=num_comparisons, spread=spread)
    kind = "primary comparison" if are_primary else "comparison"
    comparisons = f"{num_comparisons} {kind}{'' if num_comparisons == 1 else 's'}"
    least = smallest(num_seeds, num_instances)
    shown = "no difference" if least >= 1 else f"a difference of {_points(least)} or more"
    found = [
        f"With {num_seeds} seeds, {num_instances} instances and {comparisons}, the study can tell {shown} "
        f"(in 80% of such studies, intervals at 95% together), if a seed's difference varies by {_points(spread)} "
        "beyond what the instances explain (`spread`)."
    ]
    more = [
        f"{seeds} seeds: {_points(smallest(seeds, num_instances))}"
        for seeds in (3, 5, 8, 10, 20)
        if seeds != num_seeds
    ]
    more.append(f"{4 * num_instances} instances: {_points(smallest(num_seeds, 4 * num_instances))}")
    return [*found, f"It would be, with {'; with '.join(more)}."]


def sentences_of(outline: Outline) -> list[str]:
    """The sentences for a study: of its primary comparisons and their seeds, if it names some."""
    return sentences(
        len(outline.most_seeds),
        outline.num_instances,
        num_comparisons=outline.num_comparisons,
        spread=outline.spread,
        are_primary=bool(outline.primary),
    )


def _points(share: float) -> str:
    return f"{100 * share:.1f} points" if share < 1 else "no difference"
