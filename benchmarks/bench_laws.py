"""Experiments of `laws` and `causal_graphs`: those of the oracle, at random, and all chosen at the start.

    python benchmarks/bench_laws.py [--instances 1000] [--tasks laws causal_graphs] [--levels 1 2 3]

For each level: the class, its bits and the budget; experiments until one hypothesis is left (median and most) of the
oracle, which is greedy, and at random; the bits that the best known plan of as many experiments as the budget leaves;
and what it returns if a hypothesis that agrees with its readings is named at the end, beside the oracle's return. Then
a step of `laws` as a multiple of one of `sokoban`, interleaved.
"""

from __future__ import annotations

import argparse
import random
import statistics
import time
from collections.abc import Callable, Sequence

import numpy as np
import numpy.typing as npt

import pettingllms_envs
from pettingllms_envs.environments.laws.graphs import CausalGraphs
from pettingllms_envs.environments.laws.rules import Discovery, DiscoveryState, Laws
from pettingllms_envs.environments.laws.space import Space, best_experiment, left


Parts = npt.NDArray[np.intp]
TASKS: dict[str, Discovery] = {"laws": Laws(), "causal_graphs": CausalGraphs()}


def joint(parts: Parts, column: npt.NDArray[np.uint8]) -> Parts:
    """The parts into which one more experiment divides the hypotheses."""
    return np.unique(parts * 256 + column.astype(np.intp), return_inverse=True)[1].ravel()


def bits_left(parts: Parts) -> float:
    """The bits that a division leaves, in expectation."""
    count = np.bincount(parts)
    count = count[count > 0]
    return float((count * np.log2(count)).sum() / len(parts))


def parts_of(space: Space, plan: Sequence[int]) -> Parts:
    """How a plan divides the hypotheses."""
    parts = np.zeros(len(space), np.intp)
    for column in plan:
        parts = joint(parts, space.table[:, column])
    return parts


def best_after(space: Space, plan: Sequence[int]) -> tuple[float, int]:
    """The bits left after the best experiment more, and that experiment."""
    parts, columns = parts_of(space, plan), space.table.astype(np.intp)
    readings = int(columns.max()) + 1
    return min((round(bits_left(parts * readings + columns[:, index]), 9), index) for index in range(columns.shape[1]))


def best_known_plan(space: Space) -> list[int]:
    """Experiments chosen at the start one by one, then exchanged while one of them can be bettered."""
    plan: list[int] = []
    for _ in range(space.budget):
        plan.append(best_after(space, plan)[1])
    better = True
    while better:
        better = False
        for index in range(len(plan)):
            least, column = best_after(space, [*plan[:index], *plan[index + 1 :]])
            if least < bits_left(parts_of(space, plan)) - 1e-9:
                plan[index], better = column, True
    return plan


def needed(space: Space, truth: int, choose: Callable[[int, tuple[int, ...]], int], most: int) -> int:
    """Experiments until one hypothesis is left, `most` at most."""
    tried: tuple[int, ...] = ()
    while len(left(space, truth, tried)) > 1 and len(tried) < most:
        tried = (*tried, choose(truth, tried))
    return len(tried)


def planned(task: Discovery, level: int, plan: Sequence[int]) -> tuple[float, float]:
    """The mean return of a plan with a hypothesis of those left named at the end, and its share of successes."""
    space = task.space(level)
    sizes = np.bincount(parts_of(space, plan))[parts_of(space, plan)]
    values = [task.value(DiscoveryState(level, truth, tuple(plan))) for truth in range(len(space))]
    returns = [2 / size + value * (1 - 1 / size) for value, size in zip(values, sizes.tolist(), strict=True)]
    return statistics.fmean(returns), float((1 / sizes).mean())


def row(task: Discovery, level: int, instances: int) -> str:
    """The figures of a level."""
    space, rng = task.space(level), random.Random(0)
    truths = [task.generate(seed, level=level).truth for seed in range(instances)]

    def at_random(truth: int, tried: tuple[int, ...]) -> int:
        return rng.randrange(len(space.experiments))

    def by_oracle(truth: int, tried: tuple[int, ...]) -> int:
        return best_experiment(space, truth, tried)

    oracle = [needed(space, truth, by_oracle, 99) for truth in truths]
    chance = [needed(space, truth, at_random, 999) for truth in truths]
    plan = best_known_plan(space)
    returned, success = planned(task, level, plan)
    share = bits_left(parts_of(space, plan)) / space.bits
    return (
        f"{task.name} {level}: {len(space)} of {space.bits:.2f} bits, {len(space.experiments)} experiments of up to"
        f" {space.num_readings} readings, budget {space.budget}, every tree at least {space.least_depth}\n"
        f"  until one is left: oracle {statistics.median(oracle):g} (most {max(oracle)}), random"
        f" {statistics.median(chance):g} ({max(chance)})\n"
        f"  the best known plan leaves {share:.1%} of the bits, names {success:.1%}, returns {returned:.2f} of 2.00"
    )


def seconds(name: str, episodes: int) -> float:
    """The time of a step, by the oracle's replies."""
    env, steps, spent = pettingllms_envs.make(name, workflow="single"), 0, 0.0
    for seed in range(episodes):
        env.reset(seed=seed)
        while not any([*env.terminations.values(), *env.truncations.values()]):
            reply = env.oracle()
            begun = time.perf_counter()
            env.step(reply)
            env.observe(env.possible_agents[0])
            spent += time.perf_counter() - begun
            steps += 1
    return spent / steps


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--instances", type=int, default=1000)
    parser.add_argument("--tasks", nargs="+", default=list(TASKS), choices=list(TASKS))
    parser.add_argument("--levels", type=int, nargs="+", default=[1, 2, 3, 4, 5])
    given = parser.parse_args()
    for name in given.tasks:
        for each in given.levels:
            if each in TASKS[name].instance_fields["level"]:
                print(row(TASKS[name], each, given.instances), flush=True)
    ratios = [seconds("laws", 40) / seconds("sokoban", 40) for _ in range(9)]
    span = f"{min(ratios):.1f} to {max(ratios):.1f}"
    print(f"a step of laws takes {statistics.median(ratios):.1f} times one of sokoban ({span})")
