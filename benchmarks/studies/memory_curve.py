"""Prints the curve of `memory.yaml`: success over the digits that one agent keeps, beside the bound, and the team.

    python benchmarks/studies/memory_curve.py benchmarks/results/study/memory [--picture docs/memory.png]

`at most` is the bound of `note_taking`, by proof, for one agent whatever its model; `in order` is what one reaches
that writes the readings down as they come and guesses the others. Intervals are Student's over the seeds, at 95%.
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
HEAD = ("digits", "at most", "in order", "trained", "likeliest replies", "supervised", "untrained", "its likeliest")
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


def likeliest(greedy: Greedy, method: str, *, trained: bool = True) -> Rates:
    """With the likeliest replies, of each seed, or of what all start from."""
    found = greedy.get(method, {})
    return [won.count("1") / len(won) for seed, won in found.items() if (seed != "untrained") == trained]


def shown(values: Rates) -> str:
    """Their mean and its interval."""
    if not values:
        return "-"
    mean = f"{100 * fmean(values):.1f}%"
    if len(values) < 2:
        return mean
    low, high = (100 * min(max(end, 0.0), 1.0) for end in student(tuple(values), 0.95))
    return f"{mean} [{low:.1f}, {high:.1f}]"


def table(results: StudyResults, greedy: Greedy) -> Table:
    """A row for each number of digits, and one for each team."""
    alone = [(str(digits), f"{at_most(digits):.1%}", f"{in_order(digits):.1%}", str(digits)) for digits in LIMITS]
    teams = [("two agents of 2", "100.0%", "100.0%", "team"), ("the same with one adapter", "100.0%", "100.0%", "")]
    rows = []
    for name, most, ordered, own in (*alone, *teams):
        method = f"alone_{own}" if own.isdigit() else own or "team_shared"
        others = [rates(results, f"{kind}_{own}") for kind in ("supervised", "untrained")]
        columns = [
            rates(results, method),
            likeliest(greedy, method),
            *others,
            likeliest(greedy, method, trained=False),
        ]
        rows.append([name, most, ordered, *map(shown, columns)])
    return Table(HEAD, rows)


def draw(results: StudyResults, greedy: Greedy, picture: Path) -> None:
    """The same as a picture."""
    with needs_extra("report", "matplotlib", "--picture"):
        from matplotlib.figure import Figure
    figure = Figure(figsize=(7, 4), layout="constrained")
    axes = figure.subplots()
    axes.step(
        LIMITS, [100 * at_most(each) for each in LIMITS], "k--", where="mid", label="one agent at most, by proof"
    )
    found = {digits: (rates(results, f"alone_{digits}"), likeliest(greedy, f"alone_{digits}")) for digits in LIMITS}
    lines = (("one agent, trained", "#0072b2", "o"), ("one agent, its likeliest replies", "#56b4e9", "s"))
    for place, (label, color, marker) in enumerate(lines):
        own = {digits: values[place] for digits, values in found.items() if values[place]}
        ends = [student(tuple(values), 0.95) if len(values) > 1 else (values[0],) * 2 for values in own.values()]
        means = [100 * fmean(values) for values in own.values()]
        errors = [
            [100 * max(fmean(values) - low, 0.0) for values, (low, _) in zip(own.values(), ends, strict=True)],
            [100 * max(high - fmean(values), 0.0) for values, (_, high) in zip(own.values(), ends, strict=True)],
        ]
        axes.errorbar([*own], means, errors, color=color, marker=marker, capsize=3, label=label)
    teams = (("two agents of 2, trained", "#d55e00", "-", rates(results, "team")),)
    for label, color, style, values in (
        *teams,
        ("their likeliest replies", "#e69f00", ":", likeliest(greedy, "team")),
    ):
        if values:
            axes.axhline(100 * fmean(values), color=color, linestyle=style, label=label)
    axes.set(xlabel="digits that one agent keeps, of four readings", ylabel="success (%)", ylim=(0, 104))
    axes.grid(alpha=0.25)
    axes.legend(loc="lower right", frameon=False)
    figure.savefig(picture, dpi=150, metadata={"Software": None})


def main() -> None:
    """Read the options, print and draw."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("results", type=Path, help="folder of the study's results")
    parser.add_argument("--picture", type=Path, help="PNG that is written")
    options = parser.parse_args()
    results, file = read_results(options.results), options.results / "greedy.json"
    greedy: Greedy = json.loads(file.read_text())[ENVIRONMENT] if file.is_file() else {}
    print(markdown([table(results, greedy)]))
    if options.picture:
        draw(results, greedy, options.picture)


if __name__ == "__main__":
    main()
