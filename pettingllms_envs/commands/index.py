"""Show an index of all runs in a folder: environment, model or team, date, success, costs. Episodes are not read.

pettingllms runs outputs --env plan_path --model Qwen --since 2026-11-01
pettingllms runs outputs --output runs.html          a page; also .md, and .csv with the columns of `frame`
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Sequence
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any
from urllib.parse import quote

from rich.console import Console

from pettingllms_envs.commands import counted, say, user_errors
from pettingllms_envs.commands.formats import add_format, as_csv, format_of, give
from pettingllms_envs.episodes.index import BROKEN, Entry, entry_of, run_folders
from pettingllms_envs.evaluation.data_label import problem_set
from pettingllms_envs.evaluation.frames import row_of_run, settings_of
from pettingllms_envs.evaluation.metrics import sum_of_tokens
from pettingllms_envs.evaluation.tables import duration, rate
from pettingllms_envs.reports.blocks import Block, Heading, Items, Table, markdown, one_line


HEADS = ("environment", "player", "date", "success [95% interval]", "episodes", "tokens", "wall time", "settings",
         "problems", "run")  # fmt: skip


def add(parser: argparse.ArgumentParser) -> None:
    """Add the options of `runs`: the folder, what to show, and in which format."""
    parser.add_argument("folder", nargs="?", type=Path, default=Path("outputs"), metavar="FOLDER",
                        help="a folder with runs at any depth (outputs)")  # fmt: skip
    parser.add_argument("--env", metavar="ENV", help="only this environment, with or without its version")
    parser.add_argument("--model", metavar="TEXT", help="only models and teams with this in their name")
    parser.add_argument("--since", type=_day, metavar="DATE", help="only runs that began then or later: 2026-11-01")
    parser.add_argument("--until", type=_day, metavar="DATE", help="only runs that began then or earlier")
    add_format(parser)


def _day(text: str) -> date:
    try:
        return date.fromisoformat(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is no date; expected YEAR-MONTH-DAY, such as 2026-11-01") from None


def run(args: argparse.Namespace, console: Console) -> int:
    """Show the index, or write it. Broken runs are below, whatever is asked for."""
    form = format_of(args)
    with user_errors():
        entries = [entry_of(folder) for folder in run_folders(args.folder)]
        broken = [entry for entry in entries if entry.state == BROKEN]
        shown = [entry for entry in entries if entry.state != BROKEN and is_asked_for(entry, args)]
        shown.sort(key=lambda entry: (entry.env, entry.player, entry.began or 0.0, str(entry.path)))
        if form == "table":
            show(console, shown, broken)
        else:
            give(args.output, console, text_of(shown, broken, form, beside=args.output))
    return 0


def is_asked_for(entry: Entry, args: argparse.Namespace) -> bool:
    """Whether an entry passes the filters; one without a date passes none of those of dates."""
    envs = entry.env.split(", ")
    return (
        (args.env is None or args.env in (*envs, *(env.rpartition("_v")[0] for env in envs)))
        and (args.model is None or args.model.casefold() in entry.player.casefold())
        and (args.since is None or (entry.day is not None and entry.day >= args.since))
        and (args.until is None or (entry.day is not None and entry.day <= args.until))
    )


def row_of(entry: Entry) -> list[str]:
    """A text for each of `HEADS`."""
    report: Any = entry.report or {}
    episodes, success = report.get("episodes") or {}, report.get("success")
    tokens = sum_of_tokens(report) if report else None
    counts = f"{episodes['ended']:,}" if report else "unfinished"
    if report and episodes.get("planned", 0) > episodes["ended"]:
        counts += f" of {episodes['planned']:,}"
    return [
        f"{entry.env} ({entry.note})" if entry.note else entry.env,
        entry.player,
        "" if entry.day is None else entry.day.isoformat(),
        rate(success) if success else "-",
        counts if entry.kind == "bench" else entry.kind,
        "-" if tokens is None else f"{sum(tokens):,}",
        duration((report.get("timing") or {}).get("seconds")),
        settings_of(entry),
        problem_set(entry.config),
        str(entry.path),
    ]


def fault_of(entry: Entry) -> str:
    """Why a run cannot be read, with its path."""
    return entry.fault if str(entry.path) in entry.fault else f"{entry.path}: {entry.fault}"


def show(console: Console, shown: Sequence[Entry], broken: Sequence[Entry]) -> None:
    """Print the index. A table of `rich` would take a second for two thousand runs."""
    rows = [list(HEADS), *(list(map(one_line, row_of(entry))) for entry in shown)]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows if shown else ():
        cells = [cell.ljust(width) for cell, width in zip(row, widths, strict=True)]
        console.file.write(f"{'  '.join(cells).rstrip()}\n")
    for entry in broken:
        say(console, f"broken: {one_line(fault_of(entry))}")
    unfinished = sum(entry.state == "unfinished" for entry in shown)
    said = [counted(len(shown), "run"), *([f"{unfinished} unfinished"] if unfinished else [])]
    say(console, ", ".join([*said, *([f"{len(broken)} more that cannot be read"] if broken else [])]))


def text_of(shown: Sequence[Entry], broken: Sequence[Entry], form: str, beside: Path | None = None) -> str:
    """The index as Markdown, CSV or a page; CSV has the columns of `evaluation.frame`, and also of broken runs.

    A page links to those that `pettingllms view` has written; `beside` is the file that it is written to.
    """
    if form == "csv":
        return csv_of([*shown, *broken])
    rows = [row_of(entry) for entry in shown]
    faults = list(map(fault_of, broken))
    if form == "html":
        from pettingllms_envs.page.runs import page

        start = Path() if beside is None else beside.parent
        return page(HEADS, rows, faults, [_page_of(entry.path, start) for entry in shown])

    left = (1, 2, len(HEADS) - 1)
    whole: list[Block] = [Heading("Runs", 1), Table(HEADS, rows, left=left)]
    if faults:
        whole += [Heading("Cannot be read", 2), Items(faults)]
    return markdown(whole)


def _page_of(folder: Path, start: Path) -> str:
    """The address of a run's page, from a folder; empty if there is none."""
    file = folder / "page.html"
    return quote(Path(os.path.relpath(file, start)).as_posix()) if file.is_file() else ""


def csv_of(entries: Sequence[Entry]) -> str:
    """A line of plain values for each run."""
    rows = [{**row_of_run(entry), "began": entry.began and _time(entry.began)} for entry in entries]
    heads = dict.fromkeys(key for row in rows for key in row)
    return as_csv([heads, *([row.get(head) for head in heads] for row in rows)])


def _time(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="seconds")
