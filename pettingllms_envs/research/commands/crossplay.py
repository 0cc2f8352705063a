"""Compare teams: mix the roles of several runs, replace a role, or let one agent play alone at the same budget.

    pettingllms crossplay RUN RUN...            run of the role (rows) against run of its partners (columns); where
                                                agents compete, every run against every other, in every seat
    pettingllms crossplay RUN --ablate          each role replaced by the oracle, by nobody, by others (--partners)
    pettingllms crossplay RUN --solo            one agent alone, as many calls and tokens

RUN is a folder of `pettingllms bench`, or NAME=FOLDER. Every cell is such a folder, too, below --output.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rich.console import Console

from pettingllms_envs.agents.spec import NON_IDENTITY_OPTIONS, assign
from pettingllms_envs.commands import refuse, say, user_errors
from pettingllms_envs.commands.compare import read_run, say_data, show
from pettingllms_envs.commands.runs import add_running, check_at_least, missing, sampling, watched
from pettingllms_envs.core import check_choice
from pettingllms_envs.evaluation import compare, metrics, tables
from pettingllms_envs.evaluation.bench import of_run, with_options
from pettingllms_envs.evaluation.compare import RunRows
from pettingllms_envs.research import crossplay, payoffs


def add(parser: argparse.ArgumentParser) -> None:
    """Add the options of `crossplay`."""
    parser.add_argument("runs", nargs="+", metavar="RUN", help="a folder of `pettingllms bench`, or NAME=FOLDER")
    parser.add_argument("--role", metavar="ROLE", help="the role or agent to mix, or to play alone (the last)")
    parser.add_argument("--figure", metavar="NAME", help="show this figure of the outcome instead of success")
    parser.add_argument("--ablate", action="store_true", help="replace each role of one run by --partners")
    parser.add_argument(
        "--partners", nargs="+", default=["oracle", "null"], metavar="AGENT", help="for --ablate (oracle null)"
    )
    parser.add_argument("--solo", action="store_true", help="compare one agent alone with the team")
    add_running(parser)
    parser.set_defaults(output=Path("outputs") / "crossplay")


def run(args: argparse.Namespace, console: Console) -> int:
    """Play the missing cells, and show all of them."""
    check_at_least(args, concurrency=1)
    alone = args.ablate or args.solo
    if alone and len(args.runs) > 1:
        refuse(f"--ablate and --solo are of one run, got {len(args.runs)}; expected one. Ask about each by itself.")
    if not alone and len(args.runs) < 2:
        refuse("crossplay got one run; expected two or more, or --ablate, or --solo. Add one.")
    with user_errors():
        runs = {each.name: each for each in map(read_run, args.runs)}
        waiting = {name: value for name, value in sampling(args).items() if name in NON_IDENTITY_OPTIONS}
        benches = {
            name: with_options(of_run(each.header, each.rows, name), "api", waiting) for name, each in runs.items()
        }
        kind = next(iter(benches.values())).make().metadata.get("competitive")
        if args.figure is not None:
            first = next(iter(runs.values()))
            check_choice("--figure", args.figure, tuple(metrics.report(first.header, first.rows)["outcome"]))
    if alone and kind is not None:
        refuse("--ablate and --solo compare a team's success, and these agents compete. Name several runs instead.")
    say_data(console, list(runs.values()))
    if len(runs) < len(args.runs):
        refuse(f"two runs are called {', '.join(runs)}; expected different names. Write NAME=FOLDER.")
    if not alone:
        if kind is not None:
            return opposed(args, console, runs, benches, zero_sum=kind == "zero_sum")
        return crossed(args, console, runs, benches)
    ((name, one),) = runs.items()
    status = 0
    if args.ablate:
        status = max(status, ablated(args, console, one, benches[name]))
    if args.solo:
        status = max(status, soloed(args, console, one, benches[name]))
    return status


def crossed(args: argparse.Namespace, console: Console, runs: Mapping[str, Any], benches: Mapping[str, Any]) -> int:
    """Play and show the matrix of runs whose agents do not compete."""
    with user_errors():
        role = args.role or crossplay.last_role(next(iter(benches.values())))
        cells = crossplay.matrix(benches, role)
    names = {places: "+".join(places) for places in cells}
    played, status = _played(args, console, names, cells, runs)
    agents = next(iter(benches.values())).agents
    others = f"the other {'agent' if role in agents else 'role'}{'s' if len(agents) > 2 else ''}"
    grid(console, played, f"{role} of \\ {others} of", args.figure)
    return status


def opposed(
    args: argparse.Namespace, console: Console, runs: Mapping[str, Any], benches: Mapping[str, Any], *, zero_sum: bool
) -> int:
    """Play every run against every other in every seat, and show returns and ratings."""
    if args.role is not None:
        refuse(f"--role is {args.role!r}, but these agents compete: every run takes every seat. Leave it out.")
    with user_errors():
        cells = payoffs.cells(benches)
    played, status = _played(args, console, {seating: "+".join(seating) for seating in cells}, cells, runs)
    with user_errors():
        rows = {seating: run.rows for seating, run in played.items()}
        found = payoffs.payoffs(rows, list(next(iter(benches.values())).agents), zero_sum=zero_sum)
    show_payoffs(console, found)
    return status


def show_payoffs(console: Console, found: Any) -> None:
    """Show a matrix of returns for each seat, then each run's return and rating."""

    def words(figure: Any, digits: int = 3) -> str:
        return " ".join((f"{figure.mean:+.{digits}f}", f"[{figure.low:+.{digits}f}, {figure.high:+.{digits}f}]"))

    say(console, "\nReturn of the run of the row in a seat, with the run of the column in all others:")
    for seat, returns in found.matrix.items():
        rows = [(run, *(words(figure, 2) for figure in against.values())) for run, against in returns.items()]
        tables.table(console, (seat, *returns), rows)
    heads = ["run", "return against the others", *(["rating"] if found.ratings else [])]
    rows = [
        (run, words(figure), *([words(found.ratings[run])] if found.ratings else []))
        for run, figure in found.returns.items()
    ]
    tables.table(console, heads, rows)
    say(console, f"\nMean returns of {found.num_problems} problems, the same in every pairing and every seat.")
    if found.ratings:
        say(console, "The difference of two ratings is by how much one outscores the other.")
    if found.cyclic is not None:
        say(console, f"Share of the differences that no rating expresses, noise included: {found.cyclic:.0%}.")


def ablated(args: argparse.Namespace, console: Console, team: Any, bench: Any) -> int:
    """Play the team with each role replaced by each partner, and show how success changes."""
    with user_errors():
        partners = {text: assign([text], {"partner_0": "partner"})["partner_0"] for text in args.partners}
        cells = crossplay.ablation(bench, partners)
    played, status = _played(args, console, {places: "=".join(places) for places in cells}, cells)
    grid(console, played, f"{team.name}, but role \\ by", args.figure)
    with user_errors():
        show(console, compare.compare([team, *played.values()], against_first=True))
    return status


def soloed(args: argparse.Namespace, console: Console, team: Any, bench: Any) -> int:
    """Play one agent alone, and compare it with the team."""
    with user_errors():
        tokens = metrics.report(team.header, team.rows)["tokens"]
        budget = None if tokens is None else max(1, round(tokens["mean"]))
        num_calls = max((len(row["steps"]) for row in team.rows), default=None)
        alone = crossplay.solo(bench, args.role, episode_tokens=budget, num_calls=num_calls)
    played, status = _played(args, console, {"solo": "solo"}, {"solo": alone})
    turns = alone.settings["num_turns"]
    say(console, f"\nAlone: up to {turns} calls an episode" + (f", none after {budget:,} tokens." if budget else "."))
    with user_errors():
        show(console, compare.compare([team, played["solo"]]))
    return status


def grid(console: Console, played: Mapping[tuple[str, str], Any], head: str, figure: str | None) -> None:
    """Show the success rate of each cell, or the mean of another figure of the outcome, with its interval."""

    def words(run: Any) -> str:
        report = metrics.report(run.header, run.rows)
        if figure is not None:
            return tables.number(report["outcome"].get(figure))
        return "-" if report["success"] is None else tables.percent(report["success"])

    rows, columns = (dict.fromkeys(places) for places in zip(*played, strict=True))
    with user_errors():
        table = [(row, *(words(played[row, column]) for column in columns)) for row in rows]
    tables.table(console, (head, *columns), table)


def _played(
    args: argparse.Namespace, console: Console, names: Mapping[Any, str], cells: Mapping[Any, Any], there: Any = None
) -> tuple[dict[Any, Any], int]:
    """Play cells, as far as they are missing. Returns each as a run to compare, and the exit status.

    Args:
        there: Runs that exist, by name: a cell of one run alone is that run.
    """
    found, status = {}, 0
    for places, bench in cells.items():
        if there and len(set(places)) == 1:
            found[places] = there[places[0]]
            continue
        name = names[places]
        played = watched(bench, args.output / name.replace("/", "_"), args, console, name)
        found[places] = RunRows(name, played.header, played.ended.rows)
        status = max(status, missing(console, played))
        if played.ended.interrupted:
            raise KeyboardInterrupt
    return found, status
