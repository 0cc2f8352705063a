"""Compare runs on the same problems: paired differences, exact tests, corrected for their number, and equal budgets.

RUN is a folder of `pettingllms bench`, or NAME=FOLDER. Where the data cannot tell, it says "cannot tell".
"""

from __future__ import annotations

import argparse
import json
import os
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from string import ascii_uppercase
from typing import Any

from rich.console import Console

from pettingllms_envs.commands import counted, say, user_errors


def add(parser: argparse.ArgumentParser) -> None:
    """Add the options of `compare`."""
    parser.add_argument("runs", nargs="+", metavar="RUN", help="a folder of `pettingllms bench`, or NAME=FOLDER")
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write the numbers to this file")


def run(args: argparse.Namespace, console: Console) -> int:
    """Show which run does better, and whether the difference is significant."""
    from pettingllms_envs.episodes.outputs import write_output
    from pettingllms_envs.evaluation import compare as comparing

    with user_errors():
        runs = [read_run(text) for text in args.runs]
        comparison = comparing.compare(runs)
        if args.json is not None:
            write_output(args.json, json.dumps(comparison.plain, indent=2) + "\n")
    say_data(console, runs)
    show(console, comparison)
    return 0


def say_data(console: Console, runs: list[Any]) -> None:
    """Print a note about the runs' data, if they are not a benchmark's."""
    from pettingllms_envs.evaluation import data_label

    for note in dict.fromkeys(data_label.note_of(data_label.labelled(run.header)) for run in runs):
        if note:
            say(console, f"data: {note}")


def read_run(text: str) -> Any:
    """Read a run from FOLDER or NAME=FOLDER; its name is the folder's, unless given."""
    from pettingllms_envs.episodes import files
    from pettingllms_envs.evaluation.compare import Run

    name, equals, folder = text.partition("=")
    path = Path(folder) if equals and not Path(text).exists() else Path(text)
    if not equals or path != Path(folder):
        real = Path(os.path.realpath(path))  # unlike `resolve`, it does not raise for a link to itself
        name = (real.parent if path.suffix == ".jsonl" else real).name
    return Run(name, files.read_header(path), files.read(path, whole=False))


def show(console: Console, comparison: Any) -> None:
    """Show the tables; names of runs that are too long for the terminal are replaced by letters."""
    from pettingllms_envs.evaluation.tables import table, width

    console.print()
    say(console, f"{counted(comparison.num_problems, 'problem')} that every run has a result for.")
    for name, num in comparison.left_out.items():
        if num:
            say(console, f"{name} has results for {num} more, which are left out.")
    p = "p (Holm)" if len(comparison.pairs) > 1 else "p (exact)"
    heads = ["left - right", "points [interval]", "won left:right", p, "needed", "verdict"]
    labels = {name: name for name in comparison.success}
    rows = _pair_rows(comparison, labels)
    if width(heads, rows) > console.width and len(labels) <= len(ascii_uppercase):
        heads[0] = "pair"
        labels = dict(zip(labels, ascii_uppercase, strict=False))
        rows = _pair_rows(comparison, labels)
    points = [
        (
            name if labels[name] == name else f"{labels[name]} = {name}",
            f"{100 * mean:.1f}% [{100 * low:.1f}, {100 * high:.1f}]",
        )
        for name, (mean, low, high) in comparison.success.items()
    ]
    table(console, ("run", "success [95% interval]"), points)
    table(console, heads, rows)
    test = " and ".join(dict.fromkeys(pair.test for pair in comparison.pairs))
    of = ""
    if len(rows) > 1:
        of = f" Adjusted by Holm, so that all {len(rows)} verdicts hold together; intervals: Bonferroni."
    exact = "exact, "
    if comparison.num_uneven:
        exact = f"not quite exact (of {comparison.num_uneven} problems the runs have different numbers of samples), "
    say(console, f"\np: two-sided, {exact}by {test}.{of}")
    say(console, "needed: problems that would show a difference of this size, if it is real, four times in five.")
    if comparison.budgets:
        heads = ["success within N tokens per episode", *labels.values()]
        budgets = [
            (f"{budget:,}", *(f"{100 * by_run[name]:.1f}%" for name in comparison.success))
            for budget, by_run in comparison.budgets.items()
        ]
        table(console, heads, budgets)


def _pair_rows(comparison: Any, labels: Mapping[str, str]) -> list[tuple[str, ...]]:
    """A table row for each pair of runs, with their labels."""
    pairs = [replace(pair, first=labels[pair.first], second=labels[pair.second]) for pair in comparison.pairs]
    return [
        (
            f"{pair.second} - {pair.first}",
            f"{100 * pair.difference:+.1f} [{100 * pair.low:+.1f}, {100 * pair.high:+.1f}]",
            f"{pair.only_second}:{pair.only_first}",
            f"{pair.adjusted:.2g}",
            "-" if pair.needed is None else f"{pair.needed:,}",
            pair.verdict,
        )
        for pair in pairs
    ]
