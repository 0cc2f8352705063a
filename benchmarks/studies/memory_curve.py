"""Prints the curve of `memory.yaml`: success over the digits that one agent keeps, beside the bound, and the team.

    python benchmarks/studies/memory_curve.py benchmarks/results/study/memory

`at most` is the bound of `note_taking`, by proof, for one agent whatever its model; `in order` is what one reaches
that writes the readings down as they come and guesses the others. `again` are the same runs on another processor, and
`likeliest replies` those of their teams (`memory_again` beside the results). Intervals are Student's over the seeds,
at 95%. `--picture` draws what `memory_follow_up` has, too.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import fmean

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


def in_order(digits: int) -> float:
    """What one reaches that keeps the first readings."""
    kept = min(digits, READINGS)
    return (kept + (READINGS - kept) / VALUES) / READINGS


def rates(results: StudyResults, method: str) -> Rates:
    """Of each seed that is finished."""
    return [result.rate for result in results.evaluation.get((ENVIRONMENT, method), ())]


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


def table(results: StudyResults, again: StudyResults, greedy: Greedy) -> Table:
    """A row for each number of digits, and one for each team."""
    alone = [(str(digits), f"alone_{digits}") for digits in LIMITS]
    rows = []
    for name, method in (*alone, ("two agents of 2", "team"), ("the same, one adapter", "team_shared")):
        bounds = (at_most(int(name)), in_order(int(name))) if name.isdigit() else (1.0, 1.0)
        trained = shown(rates(results, method), interval=True)
        others = (shown(rates(again, method)), shown(likeliest(greedy, method)))
        rows.append([name, *(f"{bound:.1%}" for bound in bounds), trained, *others])
    return Table(HEAD, rows)


def draw(results: StudyResults, greedy: Greedy, longer: StudyResults, picture: Path) -> None:
    """The same as a picture, with what `longer` has of the same methods beside."""
    with needs_extra("report", "matplotlib", "--picture"):
        from matplotlib.figure import Figure
    figure = Figure(figsize=(7, 4), layout="constrained")
    axes = figure.subplots()
    axes.step(
        LIMITS, [100 * at_most(each) for each in LIMITS], "k--", where="mid", label="one agent at most, by proof"
    )
    lines = (
        ("one agent, trained", "#0072b2", "o", lambda method: rates(results, method)),
        ("one agent, its likeliest replies", "#56b4e9", "s", lambda method: likeliest(greedy, method)),
        ("one agent, tuned with all tokens", "#009e73", "^", lambda method: rates(longer, method)),
    )
    for label, color, marker, of in lines:
        found = {digits: of(f"alone_{digits}") for digits in LIMITS}
        own = {digits: values for digits, values in found.items() if len(values) > 1}
        if not own:
            continue
        means = [100 * fmean(values) for values in own.values()]
        # An interval that reaches beyond what a share may be is drawn to its end.
        errors = [
            [
                mean - 100 * max(student(tuple(values), 0.95)[0], 0.0)
                for mean, values in zip(means, own.values(), strict=True)
            ],
            [
                100 * min(student(tuple(values), 0.95)[1], 1.0) - mean
                for mean, values in zip(means, own.values(), strict=True)
            ],
        ]
        axes.errorbar([*own], means, errors, color=color, marker=marker, capsize=3, label=label)
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


def read(folder: Path) -> tuple[StudyResults, StudyResults, StudyResults, Greedy]:
    """The study's results, those of the same runs made again, of its follow-up, and the likeliest replies."""
    again = folder.with_name(f"{folder.name}_again")
    greedy: Greedy = json.loads((again / "greedy.json").read_text())[ENVIRONMENT]
    return (
        read_results(folder),
        read_results(again),
        read_results(folder.with_name(f"{folder.name}_follow_up")),
        greedy,
    )


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
