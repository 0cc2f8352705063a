"""Compare runs on the same problems: paired differences, exact tests, corrected for their number, and equal budgets.

RUN is a folder of `pettingllms bench`, or NAME=FOLDER, or a folder with several runs in it. Runs of several
environments are compared in each by itself; NAME may be that of a run in each. Where an environment reports no
success, teams are compared by their returns, and agents that compete are left out.
Where the data cannot tell, it says "cannot tell".
"""

from __future__ import annotations

import argparse
import json
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

from rich.console import Console

from pettingllms_envs.commands import counted, refuse, say, user_errors
from pettingllms_envs.commands.formats import FORMATS, add_format, format_of, give, say_blocks
from pettingllms_envs.commands.runs import digest_of
from pettingllms_envs.episodes import files
from pettingllms_envs.episodes.index import run_folders
from pettingllms_envs.episodes.outputs import write_output
from pettingllms_envs.episodes.players import labels
from pettingllms_envs.evaluation import data_label
from pettingllms_envs.evaluation.compare import RunRows, compare_each, fault_of
from pettingllms_envs.evaluation.scores import SUCCESS, is_pooled, pool_seeds
from pettingllms_envs.evaluation.tables import number, percent
from pettingllms_envs.reports.blocks import Heading, Paragraph, Table, markdown
from pettingllms_envs.suggestions import did_you_mean


_DIGEST = re.compile(r"-[0-9a-f]{8}\Z")
_VERSION = re.compile(r"_v[0-9]+\Z")


def add(parser: argparse.ArgumentParser) -> None:
    """Add the options of `compare`."""
    parser.add_argument("runs", nargs="+", metavar="RUN", help="a folder of `pettingllms bench`, or NAME=FOLDER")
    parser.add_argument("--env", action="append", default=[], metavar="E", help="compare in this environment alone")
    add_pooling(parser)
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write the numbers to this file")
    add_format(parser, FORMATS[:2])


def run(args: argparse.Namespace, console: Console) -> int:
    """Show which run of each environment does better, and whether the difference is significant."""
    form = format_of(args, FORMATS[:2])
    with user_errors():
        runs = of_envs([read_run(each) for text in args.runs for each in _runs_of(text)], args.env)
        runs = pool_seeds(runs) if args.pool_seeds else runs
        by_env: dict[str, list[Any]] = {}
        for each in runs:
            by_env.setdefault(str(each.header["config"].get("env")), []).append(each)
        alone = [own[0] for own in by_env.values() if len(own) == 1]
        if len(alone) == len(runs) > 1:
            played = ", ".join(f"{own[0].name} of {env}" for env, own in by_env.items())
            refuse(f"the runs are {played}; expected two or more of an environment. Name others.")
        groups = {env: named(own) for env, own in by_env.items() if len(own) > 1 or len(runs) == 1}
        faults = {env: fault for env, own in groups.items() if (fault := fault_of(own))}
        if len(faults) == len(groups):
            raise ValueError(next(iter(faults.values())))
        found = compare_each({env: own for env, own in groups.items() if env not in faults})
        plain = [comparison.plain for comparison in found.values()]
        if args.json is not None:
            numbers = plain[0] if len(by_env) == 1 else {"environments": dict(zip(found, plain, strict=True))}
            write_output(args.json, json.dumps(numbers, indent=2) + "\n")
        report = list(blocks(found, [(each.name, str(each.header["config"].get("env"))) for each in alone], faults))
        if form == "md":
            give(args.output, console, markdown([Heading("Comparison", 1), *report]))
            return 0
    say_data(console, runs)
    say_blocks(console, report)
    return 0


def add_pooling(parser: argparse.ArgumentParser) -> None:
    """Add the option --pool-seeds."""
    parser.add_argument(
        "--pool-seeds", action="store_true", help="take runs that differ in their --seed alone as samples of one"
    )


def of_envs(runs: list[Any], names: Sequence[str]) -> list[Any]:
    """The runs of these environments, named with or without their version; of all if none is named."""
    played = list(dict.fromkeys(str(run.header["config"].get("env")) for run in runs))
    known = {name: env for env in played for name in (env, _VERSION.sub("", env))}
    for name in names:
        if name not in known:
            raise ValueError(f"--env is {name}; expected one of {', '.join(played)}.{did_you_mean(name, known)}")
    chosen = {known[name] for name in names} or set(played)
    return [run for run in runs if str(run.header["config"].get("env")) in chosen]


def named(runs: list[Any]) -> list[Any]:
    """The runs, with the name of the model or team where the name is that of a folder which the command chose."""
    (players,) = labels([[run.header["config"] for run in runs]])
    names = [
        player
        if run.name.endswith(f"-{digest_of(run.header['config'])}") or (is_pooled(run) and _DIGEST.search(run.name))
        else run.name
        for run, player in zip(runs, players, strict=True)
    ]
    return [run if names.count(name) > 1 else replace(run, name=name) for run, name in zip(runs, names, strict=True)]


def say_data(console: Console, runs: list[Any]) -> None:
    """Print a note about the runs' data, if they are not a benchmark's."""
    for note in dict.fromkeys(data_label.note_of(data_label.labelled(run.header)) for run in runs):
        if note:
            say(console, f"data: {note}")


def _runs_of(text: str) -> list[str]:
    """The runs below a folder that has several, such as a suite's; else the argument."""
    found = list(run_folders(Path(text))) if Path(text).is_dir() else []
    return list(map(str, found)) if len(found) > 1 else [text]


def read_run(text: str) -> Any:
    """Read a run from FOLDER or NAME=FOLDER; its name is the folder's, unless given."""
    name, equals, folder = text.partition("=")
    path = Path(folder) if equals and not Path(text).exists() else Path(text)
    if not equals or path != Path(folder):
        real = Path(os.path.realpath(path))  # unlike `resolve`, it does not raise for a link to itself
        name = (real.parent if path.suffix == ".jsonl" else real).name
    return RunRows(name, files.read_header(path), files.distinct(files.read(path, whole=False)), str(path))


def show(console: Console, comparison: Any) -> None:
    """Show the tables of a comparison."""
    say_blocks(console, blocks({"": comparison}))


def blocks(
    found: Mapping[str, Any], alone: Sequence[tuple[str, str]] = (), faults: Mapping[str, str] = MappingProxyType({})
) -> Iterator[Any]:
    """The comparisons of environments as blocks of a report.

    Args:
        alone: Name and environment of the runs that no other is compared with.
        faults: Why the runs of an environment are not compared, by its name.
    """
    num_pairs = sum(len(comparison.pairs) for comparison in found.values())
    if len(found) > 1:
        yield Paragraph(f"{len(found)} environments, each by itself; all {num_pairs} verdicts hold together.")
    for name, env in alone:
        yield Paragraph(f"{name} is the only run of {env}, and compared with none.")
    for env, fault in faults.items():
        yield Paragraph(f"{env} is left out: {fault}")
    for env, comparison in found.items():
        if len(found) > 1 or alone or faults:
            yield Heading(env, 2)
        yield from _blocks(comparison, num_pairs)


def _blocks(comparison: Any, num_pairs: int) -> Iterator[Any]:
    common = [f"{counted(comparison.num_problems, 'problem')} that every run has a result for."]
    common += [
        f"{name} has results for {num} more, which are left out." for name, num in comparison.left_out.items() if num
    ]
    common += [
        f"Without {name} the others have results for {num} in common: play it to its end, or leave it out."
        for name, num in comparison.without.items()
    ]
    yield Paragraph("\n".join(common))
    what = "success" if comparison.success else "mean return of an agent"
    figures = [(name, figure(found, what)) for name, found in (comparison.success or comparison.returns).items()]
    yield Table(("run", f"{what} [95% interval]"), figures)
    p = "p (Holm)" if num_pairs > 1 else "p (exact)"
    unit = "points" if comparison.success else "return"
    heads = ("left - right", f"{unit} [interval]", "won left:right", p, "needed", "verdict")
    yield Table(heads, [_pair_row(pair, unit) for pair in comparison.pairs])
    test = " and ".join(dict.fromkeys(pair.test for pair in comparison.pairs))
    of = ""
    if num_pairs > 1:
        of = f" Adjusted by Holm, so that all {num_pairs} verdicts hold together; intervals: Bonferroni."
    exact = "exact, "
    if comparison.num_uneven:
        exact = f"not quite exact (of {comparison.num_uneven} problems the runs have different numbers of samples), "
    yield Paragraph(
        f"p: two-sided, {exact}by {test}.{of}\n"
        "needed: problems that would show a difference of this size, if it is real, four times in five"
        f"{', among as many comparisons' * (num_pairs > 1)}."
    )
    if comparison.budgets:
        heads = ("success within N tokens per episode", *comparison.success)
        yield Table(
            heads,
            [
                (f"{budget:,}", *(f"{100 * by_run[name]:.1f}%" for name in comparison.success))
                for budget, by_run in comparison.budgets.items()
            ],
        )


def figure(interval: Sequence[float], what: str) -> str:
    """`"83.0% [77.2, 87.6]"` of success, `"0.412 [0.377, 0.446]"` of returns: a mean and its interval."""
    own = dict(zip(("mean", "low", "high"), interval, strict=True))
    return percent(own) if what == SUCCESS else number(own)


def difference(pair: Any, unit: str) -> str:
    """`"+17.0 [+10.9, +24.3]"` in points of success, `"+0.17 [+0.109, +0.243]"` in returns."""
    values = (pair.difference, pair.low, pair.high)
    mean, low, high = (f"{100 * each:+.1f}" if unit == "points" else f"{each:+.3g}" for each in values)
    return f"{mean} [{low}, {high}]"


def _pair_row(pair: Any, unit: str) -> tuple[str, ...]:
    return (
        f"{pair.second} - {pair.first}",
        difference(pair, unit),
        f"{pair.only_second}:{pair.only_first}",
        f"{pair.adjusted:.2g}",
        "-" if pair.needed is None else f"{pair.needed:,}",
        pair.verdict,
    )
