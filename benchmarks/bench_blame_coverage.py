"""How often the intervals of `pettingllms blame` contain the true effect of a call, in chains with a known answer.

    python benchmarks/bench_blame_coverage.py [--runs 1000] [--only NAME]

An episode is three calls; each is right with a chance of its own, and the return is 1 if all are. The effect of call t
is then known: the product of the chances before it, p (1 - p), and the squared product of the chances after it. A run
is 40 episodes whose calls are answered anew four times. A row has, for each call, the true effect, how many of the
intervals contain it, in percent with Wilson's interval, and their mean width; then both without the floor that `blame`
gives to the upper end where no or few sampled outcomes varied (the bootstrap alone).
"""

from __future__ import annotations

import argparse
import math
import random
from typing import Any

from pettingllms_envs.evaluation.statistics import studentized_bootstrap, wilson
from pettingllms_envs.research.blame import CallsAnew, squares


EPISODES, ANSWERS = 40, 4
CHAINS = {
    "one noisy call": (0.98, 0.5, 0.98),
    "rare success": (0.9, 0.12, 0.9),
    "wrong in nine of ten": (0.95, 0.1, 0.95),
    "all alike": (0.8, 0.8, 0.8),
    "seldom wrong": (0.99, 0.97, 0.98),
    "the first decides": (0.3, 0.9, 0.95),
    "the last decides": (0.97, 0.97, 0.2),
}


def row(index: int, number: int, value: float) -> dict[str, Any]:
    """A row as far as `CallsAnew` reads it."""
    instance = {"index": index, "env": "chain", "seed": index, "options": {}, "problem": None}
    steps = [{"agent": f"agent_{call}"} for call in range(3)]
    return {"instance": instance, "sample": number, "steps": steps, "returns": {"a": value}, "error": None}


def played(rng: random.Random, chances: tuple[float, ...]) -> tuple[CallsAnew, list[dict[str, Any]]]:
    """A run and its continuations."""
    rights = [[rng.random() < chance for chance in chances] for _ in range(EPISODES)]
    anew = CallsAnew([row(index, 0, float(all(right))) for index, right in enumerate(rights)], 1, ANSWERS)
    continued = []
    for instance, number in anew.places:
        call, _ = anew.call_of(number)
        after = (rng.random() < chance for chance in chances[call:])
        continued.append(row(instance.index, number, float(all(rights[instance.index][:call]) and all(after))))
    return anew, continued


def by_the_bootstrap(anew: CallsAnew, continued: list[dict[str, Any]]) -> list[tuple[float, float]]:
    """The intervals without the lower bound of their upper ends."""
    returns: dict[tuple[int, int], list[dict[str, float]]] = {}
    for each in continued:
        returns.setdefault((each["instance"]["index"], anew.call_of(each["sample"])[0]), []).append(each["returns"])
    effects = [
        squares([returns[index, call] for call in range(3)], each["returns"]) for index, each in enumerate(anew.rows)
    ]
    return [studentized_bootstrap(own) for own in zip(*effects, strict=True)]


def cells(intervals: list[tuple[float, float]], truth: float) -> str:
    """How many contain the true effect, and their mean width."""
    within, number = sum(low <= truth <= high for low, high in intervals), len(intervals)
    low, high = wilson(within, number)
    width = sum(high - low for low, high in intervals) / number
    return f"{100 * within / number:.1f} [{100 * low:.1f}, {100 * high:.1f}] | {width:.3f}"


def main() -> None:
    """Print a row for each call of each chain."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=1000)
    parser.add_argument("--only", choices=CHAINS, help="one chain")
    args = parser.parse_args()
    print("| chain | call | effect | coverage, % | width | by the bootstrap alone | width |")
    print("|---|---|---|---|---|---|---|")
    for name, chances in CHAINS.items():
        if args.only not in (None, name):
            continue
        rng = random.Random(name)
        truth = [
            math.prod(chances[:at]) * p * (1 - p) * math.prod(chances[at + 1 :]) ** 2 for at, p in enumerate(chances)
        ]
        ours: list[list[tuple[float, float]]] = [[], [], []]
        plain: list[list[tuple[float, float]]] = [[], [], []]
        for _ in range(args.runs):
            anew, continued = played(rng, chances)
            for call in anew.effects(continued)["calls"]:
                ours[int(call["agent"][-1])].append((call["low"], call["high"]))
            for at, interval in enumerate(by_the_bootstrap(anew, continued)):
                plain[at].append(interval)
        for at in range(3):
            print(
                f"| {name}, {chances} | {at + 1} | {truth[at]:.4f} | {cells(ours[at], truth[at])} | "
                f"{cells(plain[at], truth[at])} |",
                flush=True,
            )


if __name__ == "__main__":
    main()
