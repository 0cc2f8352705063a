"""Experiments of `laws` and `causal_graphs`: those of the oracle, at random, and all chosen at the start.

    python benchmarks/bench_laws.py [--instances 1000] [--levels 1 2 3 4 5]

For each level: the class, its bits, the depth of the oracle's tree and a lower bound on every tree's; experiments until
one hypothesis is left (median, maximum) of the oracle, which is greedy, and at random; the bits that fixed plans of as
many experiments as the budget leave; and what each returns if the likeliest hypothesis is named at the end.
"""

from __future__ import annotations

import argparse
import math
import random
import statistics
from collections.abc import Callable, Sequence

import numpy as np
import numpy.typing as npt

from pettingllms_envs.environments.laws.rules import EXPERIMENT, OF_BITS, Discovery, Laws
from pettingllms_envs.environments.laws.space import Space, best_experiment, left


Parts = npt.NDArray[np.intp]


def joint(parts: Parts, column: npt.NDArray[np.uint8]) -> Parts:
    """The parts into which one more experiment divides the hypotheses."""
    return np.unique(parts * 256 + column.astype(np.intp), return_inverse=True)[1].ravel()


def bits_left(parts: Parts) -> float:
    """The bits that a division leaves, in expectation."""
    count = np.bincount(parts)
    count = count[count > 0]
    return float((count * np.log2(count)).sum() / len(parts))


def gained(parts: Parts, table: npt.NDArray[np.uint8]) -> npt.NDArray[np.float64]:
    """The bits left after each experiment more."""
    found, readings = np.empty(table.shape[1]), int(table.max()) + 1
    for column in range(table.shape[1]):
        count = np.bincount(parts * readings + table[:, column])
        count = count[count > 0]
        found[column] = (count * np.log2(count)).sum() / len(parts)
    return np.round(found, 9)


def parts_of(space: Space, plan: Sequence[int]) -> Parts:
    """How a plan divides the hypotheses."""
    parts = np.zeros(len(space), np.intp)
    for column in plan:
        parts = joint(parts, space.table[:, column])
    return parts


def greedy_plan(space: Space, number: int, exchanges: int = 2) -> list[int]:
    """Experiments chosen at the start one by one, then each exchanged for a better one while there is one."""
    plan: list[int] = []
    for _ in range(number):
        plan.append(int(np.argmin(gained(parts_of(space, plan), space.table))))
    for index in list(range(number)) * exchanges:
        others = parts_of(space, [*plan[:index], *plan[index + 1 :]])
        plan[index] = int(np.argmin(gained(others, space.table)))
    return plan


def best_plan(space: Space, number: int, best: float) -> float:
    """The fewest bits that any plan leaves, by branch and bound: experiments gain less after others than before."""
    table = space.table[:, _telling(space)]

    def search(parts: Parts, now: float, usable: npt.NDArray[np.intp], number: int, best: float) -> float:
        after = gained(parts, table[:, usable])
        if number == 1:
            return min(best, float(after.min()))
        order = np.argsort(after, kind="stable")
        gains = now - after[order]
        for index in range(len(order) - number + 1):
            if now - gains[index : index + number].sum() >= best - 1e-9:
                break
            column = usable[order[index]]
            rest, then = usable[order[index + 1 :]], float(after[order[index]])
            best = search(joint(parts, table[:, column]), then, rest, number - 1, best)
        return best

    return search(np.zeros(len(space), np.intp), space.bits, np.arange(table.shape[1]), number, best)


def _telling(space: Space) -> list[int]:
    """The first of the experiments that divide the hypotheses alike, without those that do not."""
    seen: dict[bytes, int] = {}
    for column in range(space.table.shape[1]):
        _, first, parts = np.unique(space.table[:, column], return_index=True, return_inverse=True)
        if len(first) > 1:
            seen.setdefault(np.argsort(np.argsort(first))[parts.ravel()].tobytes(), column)
    return list(seen.values())


def needed(space: Space, truth: int, choose: Callable[[tuple[int, ...]], int], most: int) -> int:
    """Experiments until one hypothesis is left, `most` at most."""
    tried: tuple[int, ...] = ()
    while len(left(space, truth, tried)) > 1 and len(tried) < most:
        tried = (*tried, choose(tried))
    return len(tried)


def returned(space: Space, plan: Sequence[int]) -> tuple[float, float]:
    """The return of a fixed plan whose likeliest hypothesis is named at the end, and its share of successes."""
    parts = parts_of(space, plan)
    success = len(np.unique(parts)) / len(space)
    bits = OF_BITS * (1 - bits_left(parts) / space.bits)
    return bits + success * (2 - OF_BITS) + EXPERIMENT * len(plan) + success * bits_lost(space, parts), success


def bits_lost(space: Space, parts: Parts) -> float:
    """What naming the hypothesis is worth beyond the bits that a success still lacks: on average over successes."""
    sizes = np.bincount(parts)
    sizes = sizes[sizes > 0]
    return float(OF_BITS * np.log2(sizes).mean() / space.bits)


def rows(task: Discovery, levels: Sequence[int], instances: int) -> None:
    for level in levels:
        space = task.space(level)
        truths = [task.generate(seed, level=level).truth for seed in range(instances)]
        rng = random.Random(0)
        oracle = [
            needed(space, truth, lambda tried, t=truth: best_experiment(space, t, tried), 99) for truth in truths
        ]
        chance = [needed(space, truth, lambda tried: rng.randrange(len(space.experiments)), 999) for truth in truths]
        plan = greedy_plan(space, space.budget)
        parts = parts_of(space, plan)
        share = bits_left(parts) / space.bits
        planned = [sum(parts == parts[truth]) == 1 for truth in truths]
        value, success = returned(space, plan)
        print(
            f"{task.name} level {level}: {len(space)} of {space.bits:.2f} bits, {len(space.experiments)} experiments of"
            f" up to {space.num_readings} readings; budget {space.budget}, every tree at least {space.least_depth}\n"
            f"  until one is left: oracle {statistics.median(oracle)} (most {max(oracle)}), random"
            f" {statistics.median(chance)} ({max(chance)}), greedy plan of the budget {sum(planned) / len(planned):.1%}\n"
            f"  the plan leaves {share:.1%} of the bits, returns {value:.2f} and names {success:.1%}; the oracle"
            f" returns {2 + EXPERIMENT * statistics.mean(oracle):.2f}",
            flush=True,
        )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--instances", type=int, default=1000)
    parser.add_argument("--levels", type=int, nargs="+", default=[1, 2, 3, 4, 5])
    given = parser.parse_args()
    rows(Laws(), given.levels, given.instances)
