"""Does AT-GRPO learn more from the same number of generated tokens? Five methods on the quickstart's task, five seeds.

    python benchmarks/bench_learning.py                                          # what is missing, then the report
    python benchmarks/bench_learning.py --report --results benchmarks/learning   # of the results in the repository

1. Each seed has a warm-up of its own (base model, an adapter per role), from which all of its methods start.
2. Learning rates are settled on another seed and the validation split, with two thirds of the tokens: the same grid
   for each method, the best one of each goes on.
3. Each method trains with each seed until its tokens are spent, and plays the same instances of the test split.

What is done is saved, one file per seed and method, and not done again: a run that was killed goes on where it was.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from paired import Comparison, Successes, compare


NAMES = {
    "at_grpo": "team, AT-GRPO",
    "grpo": "team, trajectory GRPO",
    "single": "single agent, GRPO",
    "loo": "team, leave-one-out",
    "counterfactual": "team, counterfactual",
    "untrained": "team, untrained",
    "untrained_single": "single agent, untrained",
}
OURS = "at_grpo"
RIVALS = ("grpo", "single", "untrained", "loo", "counterfactual")
UNTRAINED = ("untrained", "untrained_single")
Result = dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Protocol:
    """What is fixed before anything of the test split is looked at.

    Args:
        tokens: That each training may sample.
        tuning_tokens: The same, in the search for learning rates.
        learning_rates: The grid.
        tuning_seed: On which it is searched.
        seeds: That are reported.
        validation: Seeds of the validation split's instances.
        test: Seeds of the test split's instances.
    """

    tokens: int = 60_000
    tuning_tokens: int = 40_000
    learning_rates: tuple[float, ...] = (1e-3, 2e-3, 4e-3, 8e-3)
    tuning_seed: int = 100
    seeds: tuple[int, ...] = (101, 102, 103, 104, 105)
    validation: range = range(400)
    test: range = range(1000, 1500)


@dataclass(frozen=True, slots=True)
class Task:
    """One file of results."""

    split: str
    seed: int
    method: str
    learning_rate: float

    def path(self, results: Path) -> Path:
        """Where its result is, or will be."""
        return results / self.split / f"{self.seed}-{self.method}-{self.learning_rate:g}.json"


Work = Callable[[Task], Result]


def tuning(protocol: Protocol) -> list[Task]:
    """The search for learning rates: every rate for every method that trains."""
    return [
        Task("validation", protocol.tuning_seed, method, rate)
        for method in NAMES
        if method not in UNTRAINED
        for rate in protocol.learning_rates
    ]


def best_rates(results: Path, protocol: Protocol) -> dict[str, float]:
    """Of each method the learning rate with the most successes on the validation split; the lower one of equals.

    Raises:
        FileNotFoundError: A run of the grid is missing.
    """
    best: dict[str, tuple[int, float]] = {}
    for task in tuning(protocol):
        score = (read(task.path(results))["success"].count("1"), -task.learning_rate)
        best[task.method] = max(best.get(task.method, (-1, 0.0)), score)
    return {method: -rate for method, (_, rate) in best.items()}


def reported(protocol: Protocol, rates: Mapping[str, float]) -> list[Task]:
    """What is reported; all methods of a seed before the next seed."""
    return [Task("test", seed, method, rates.get(method, 0.0)) for seed in protocol.seeds for method in NAMES]


def do(tasks: Sequence[Task], results: Path, work: Work) -> None:
    """Do what has no result yet. A file appears whole or not at all."""
    for task in tasks:
        path = task.path(results)
        if path.is_file():
            continue
        result = work(task)
        path.parent.mkdir(parents=True, exist_ok=True)
        part = path.with_suffix(".part")
        part.write_text(json.dumps(result) + "\n")
        part.rename(path)
        share = result["success"].count("1") / len(result["success"])
        print(f"{path.name}: {share:.1%}, {result['tokens']:,} tokens, {result['seconds']:.0f} s", flush=True)


def read(path: Path) -> Result:
    """A result that was saved."""
    result: Result = json.loads(path.read_text())
    return result


# ---- The report -----------------------------------------------------------------------------------------------------


def successes(results: Sequence[Result]) -> Successes:
    """A method's successes, a row for each seed. (S, N)"""
    return np.array([[float(digit) for digit in result["success"]] for result in results])


def report(results: Path, protocol: Protocol, rate: float | None = None) -> str:
    """The grid, each method with each seed, and AT-GRPO less each of the others.

    Methods of which nothing is done are left out; of the rest those seeds are reported that all of them have.

    Args:
        results: Folder of the results.
        protocol: What was run.
        rate: Learning rate of all methods, instead of those that were settled on.
    """
    settled = best_rates(results, protocol)
    tasks = reported(protocol, settled if rate is None else dict.fromkeys(settled, rate))
    done = [task for task in tasks if task.path(results).is_file()]
    methods = [method for method in NAMES if any(task.method == method for task in done)]
    missing = sorted({task.seed for task in tasks if task.method in methods and task not in done})
    seeds = [seed for seed in protocol.seeds if seed not in missing]
    lines = ["Learning rates, success on the validation split, one seed (* is settled on):", ""]
    lines += [f"{NAMES[method]:25}{row}".rstrip() for method, row in _grid(results, protocol, settled).items()]
    rates = "the learning rates settled on" if rate is None else f"learning rate {rate:g}"
    lines += ["", f"Success on {len(protocol.test)} instances of the test split, seeds {seeds}, {rates}:", ""]
    if len(seeds) < 2 or OURS not in methods:
        return "\n".join([*lines, f"too few seeds are whole; missing: {missing}. Run it again to go on."])
    found = {
        method: [read(task.path(results)) for task in done if task.method == method and task.seed in seeds]
        for method in methods
    }
    lines += [_method_line(method, found[method]) for method in methods]
    rivals = [method for method in RIVALS if method in methods]
    lines += ["", f"AT-GRPO less the others, in points; all {len(rivals)} intervals hold together with 95%:", ""]
    lines += [f"{'':25}{'mean':>7}  {'over seeds':17}{'seeds x instances':19}{'p':>7}  {'each seed':34}verdict"]
    ours = successes(found[OURS])
    for method in rivals:
        compared = compare(ours, successes(found[method]), num_comparisons=len(rivals))
        lines.append(_comparison_line(method, compared))
    lines += ["", "What was logged, means over seeds (entropy: of the first and the last three steps):", ""]
    lines += [f"{'':25}{'trained sequences':>19}{'zero advantage':>16}{'entropy':>14}{'prompt tokens':>15}{'s':>6}"]
    lines += [_logged_line(method, found[method]) for method in methods if method not in UNTRAINED]
    return "\n".join(lines)


def _grid(results: Path, protocol: Protocol, rates: Mapping[str, float]) -> dict[str, str]:
    rows: dict[str, str] = {}
    for task in tuning(protocol):
        success = successes([read(task.path(results))]).mean()
        mark = "*" if rates[task.method] == task.learning_rate else " "
        rows[task.method] = rows.get(task.method, "") + f"  {task.learning_rate:g}: {success:6.1%}{mark}"
    return rows


def _method_line(method: str, results: Sequence[Result]) -> str:
    shares = successes(results).mean(axis=1)
    steps, tokens = (np.mean([result[name] for result in results]) for name in ("steps", "tokens"))
    each = " ".join(f"{100 * share:5.1f}" for share in shares)
    cost = "" if method in UNTRAINED else f"  {tokens:,.0f} tokens, {steps:.0f} steps"
    return f"{NAMES[method]:25}{shares.mean():>7.1%}  ({each}){cost}"


def _comparison_line(method: str, compared: Comparison) -> str:
    each = " ".join(f"{100 * value:+5.1f}" for value in compared.by_seed)
    student, bootstrap = (
        f"[{100 * low:+.1f}, {100 * high:+.1f}]" for low, high in (compared.student, compared.bootstrap)
    )
    head = f"{NAMES[method]:25}{100 * compared.mean:>+7.1f}  {student:17}{bootstrap:19}{compared.p:>7.4f}"
    return f"{head}  {each:34}{compared.verdict}"


def _logged_line(method: str, results: Sequence[Result]) -> str:
    histories = [result["history"] for result in results]
    sequences = np.mean([sum(history["trained_sequences"]) for history in histories])
    zero = np.mean([value for history in histories for value in history["zero_advantage"]])
    entropies = [_entropy(history) for history in histories]
    begin, end = (
        np.mean([value for values in entropies for value in values[part]])
        for part in (slice(None, 3), slice(-3, None))
    )
    prompts, seconds = (np.mean([result[name] for result in results]) for name in ("prompt_tokens", "seconds"))
    entropy = "" if np.isnan(begin) else f"{begin:.2f} to {end:.2f}"
    return f"{NAMES[method]:25}{sequences:>19,.0f}{zero:>16.1%}{entropy:>14}{prompts:>15,.0f}{seconds:>6.0f}"


def _entropy(history: Mapping[str, Sequence[float]]) -> list[float]:
    """Of each step the mean over policies, in nats; NaN for a single agent, whose policy has no metrics of its own."""
    own = [values for name, values in history.items() if name.startswith("policy/") and name.endswith("/entropy")]
    return [sum(values) / len(values) for values in zip(*own, strict=True)] if own else [math.nan]


# ---- Running it -----------------------------------------------------------------------------------------------------


def worker(protocol: Protocol, folder: Path) -> Work:
    """Warm-ups and runs of the protocol, with what they write in `folder`. Loads torch."""
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    from learning_runs import prepare, run

    def work(task: Task) -> Result:
        warm = folder / "warm" / str(task.seed)
        prepare(warm, task.seed)
        is_test = task.split == "test"
        instances = protocol.test if is_test else protocol.validation
        return run(
            task.method,
            warm=warm,
            output=folder / "runs",
            seed=task.seed,
            learning_rate=task.learning_rate,
            tokens=protocol.tokens if is_test else protocol.tuning_tokens,
            rows=[{"seed": instance, "split": task.split} for instance in instances],
        )

    return work


def main(arguments: Sequence[str] | None = None) -> int:
    """Run what is missing and print the report; the exit status."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--work", type=Path, default=Path("outputs/learning"), help="models and checkpoints")
    parser.add_argument("--results", type=Path, help="results, one file per run (the folder of --work, /results)")
    parser.add_argument("--rate", type=float, help="test this learning rate for all methods, not the ones settled on")
    parser.add_argument("--report", action="store_true", help="run nothing")
    options = parser.parse_args(arguments)
    protocol = Protocol()
    results = options.results or options.work / "results"
    if not options.report:
        work = worker(protocol, options.work)
        do(tuning(protocol), results, work)
        rates = best_rates(results, protocol)
        do(reported(protocol, rates if options.rate is None else dict.fromkeys(rates, options.rate)), results, work)
    try:
        print(report(results, protocol, options.rate))
    except FileNotFoundError as error:
        parser.error(f"{error.filename} is not there; expected the results of a run. Leave --report out to run it.")
    return 0


if __name__ == "__main__":
    sys.exit(main())
