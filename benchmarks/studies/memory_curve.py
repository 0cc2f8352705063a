"""Prints the curve of `memory.yaml`: success over the digits that one agent keeps, beside the bound, and the team.

    python benchmarks/studies/memory_curve.py benchmarks/results/study/memory

`at most` is the bound of `note_taking`, by proof, for one agent whatever its model; `in order` is what one reaches in
the evaluation's instances that writes the readings down as they come and guesses the others. `again` are the same runs
on another processor, and `likeliest replies` those of their teams (`RESULTS_again`, if it is there).
Intervals are Student's over the seeds, at 95%. `--picture` also draws what `RESULTS_follow_up` has.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import fmean

import numpy as np

from pettingllms_envs.environments.note_taking.rules import NoteTaking
from pettingllms_envs.installing import needs_extra
from pettingllms_envs.reports.blocks import Table, markdown
from pettingllms_envs.research.studies.analysis import StudyResults, read_results
from pettingllms_envs.research.studies.paired import student


LIMITS, READINGS, VALUES, ENVIRONMENT = range(2, 9), 4, 10, "memory"
HEAD = ("digits", "at most", "in order", "trained", "again", "likeliest replies")
Rates = Sequence[float]
Greedy = Mapping[str, Mapping[str, str]]


def at_most(digits: int) -> float:
    """The bound of one agent with room for that many digits."""
    return float(NoteTaking(readings=READINGS, values=VALUES, digits=digits).lone_bound())


def asked(results: StudyResults) -> Sequence[int]:
    """The places that the questions of the evaluation's instances ask for; each once if no run has its instances."""
    runs = (run.config["train"] for found in results.evaluation.values() for run in found)
    train = next((each for each in runs if "eval_seeds" in each), None)
    if train is None:
        return range(READINGS)
    task = NoteTaking(readings=READINGS, values=VALUES)
    return [task.generate(seed, split=train["eval_split"]).question for seed in range(*train["eval_seeds"])]


def in_order(digits: int, places: Sequence[int]) -> float:
    """What one reaches that keeps the first readings, and guesses where it is asked for another place."""
    return fmean(1.0 if place < digits else 1 / VALUES for place in places)


def rates(results: StudyResults | None, method: str) -> Rates:
    """Of each seed that is finished."""
    return [result.rate for result in results.evaluation.get((ENVIRONMENT, method), ())] if results else []


def likeliest(greedy: Greedy, method: str) -> Rates:
    """Of each seed, with the trained team's likeliest replies."""
    return [won.count("1") / len(won) for seed, won in greedy.get(method, {}).items() if seed != "untrained"]


def shown(values: Rates, *, interval: bool = False) -> str:
    """Their mean, with its interval if it is wanted."""
    if not values:
        return "-"
    mean = f"{100 * fmean(values):.1f}%"
    if not interval or len(values) < 2:
        return mean
    low, high = (100 * min(max(end, 0.0), 1.0) for end in student(tuple(values), 0.95))
    return f"{mean} [{low:.1f}, {high:.1f}]"


def table(results: StudyResults, again: StudyResults | None, greedy: Greedy) -> Table:
    """A row for each number of digits, and one for each team."""
    alone, places = [(str(digits), f"alone_{digits}") for digits in LIMITS], asked(results)
    rows = []
    for name, method in (*alone, ("two agents of 2", "team"), ("the same, one adapter", "team_shared")):
        bounds = (at_most(int(name)), in_order(int(name), places)) if name.isdigit() else (1.0, 1.0)
        trained = shown(rates(results, method), interval=True)
        others = (shown(rates(again, method)), shown(likeliest(greedy, method)))
        rows.append([name, *(f"{bound:.1%}" for bound in bounds), trained, *others])
    return Table(HEAD, rows)


def draw(results: StudyResults, greedy: Greedy, longer: StudyResults | None, picture: Path) -> None:
    """The same as a picture, with what `longer` has of the same methods beside."""
    with needs_extra("report", "matplotlib", "--picture"):
        from matplotlib.figure import Figure
    figure = Figure(figsize=(7, 4), layout="constrained")
    axes = figure.subplots()
    axes.step(
        LIMITS, [100 * at_most(each) for each in LIMITS], "k--", where="mid", label="one agent at most, by proof"
    )
    alone = {digits: f"alone_{digits}" for digits in LIMITS}
    for label, color, marker, found in (
        ("one agent, trained", "#0072b2", "o", [rates(results, method) for method in alone.values()]),
        ("one agent, its likeliest replies", "#56b4e9", "s", [likeliest(greedy, method) for method in alone.values()]),
        ("one agent, tuned with all tokens", "#009e73", "^", [rates(longer, method) for method in alone.values()]),
    ):
        # Digits, mean, and both ends of its interval, as far as a share can be.
        points = [
            (digits, 100 * fmean(values), *(100 * min(max(end, 0.0), 1.0) for end in student(tuple(values), 0.95)))
            for digits, values in zip(alone, found, strict=True)
            if len(values) > 1
        ]
        if points:
            places, means, lows, highs = map(np.array, zip(*points, strict=True))
            errors = (means - lows, highs - means)
            axes.errorbar(places, means, errors, color=color, marker=marker, capsize=3, label=label)
    for label, color, style, values in (
        ("two agents of 2, trained", "#d55e00", "-", rates(results, "team")),
        ("their likeliest replies", "#e69f00", ":", likeliest(greedy, "team")),
    ):
        if values:
            axes.axhline(100 * fmean(values), color=color, linestyle=style, label=label)
    axes.set(xlabel="digits that one agent keeps, of four readings", ylabel="success (%)", ylim=(0, 104))
    axes.grid(alpha=0.25)
    axes.legend(loc="lower left", frameon=False)
    figure.savefig(picture, dpi=150, metadata={"Software": None})


def read(folder: Path) -> tuple[StudyResults, StudyResults | None, StudyResults | None, Greedy]:
    """The study's results, those of the same runs made again and of its follow-up, and the likeliest replies."""
    again, longer = (folder.with_name(f"{folder.name}_{name}") for name in ("again", "follow_up"))
    greedy = next((file for file in (again / "greedy.json", folder / "greedy.json") if file.is_file()), None)
    others = [read_results(each) if each.is_dir() else None for each in (again, longer)]
    return read_results(folder), *others, json.loads(greedy.read_text())[ENVIRONMENT] if greedy else {}


def main() -> None:
    """Read the options, print and draw."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("results", type=Path, help="folder of the study's results")
    parser.add_argument("--picture", type=Path, help="PNG that is written")
    options = parser.parse_args()
    results, again, longer, greedy = read(options.results)
    print(markdown([table(results, again, greedy)]))
    if options.picture:
        draw(results, greedy, longer, options.picture)


if __name__ == "__main__":
    main()
