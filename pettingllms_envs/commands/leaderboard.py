"""Show how well models and teams do on environments, with intervals and paired comparisons, from runs in a folder.

Only runs on the same problems, with the same settings and samples, stand side by side; the others are below, with the
reason. A value in bold (or with a star): nobody in its column is better by a verdict.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Any

from rich.console import Console

from pettingllms_envs.commands import user_errors
from pettingllms_envs.commands.compare import add_pooling, difference, figure, of_envs
from pettingllms_envs.commands.formats import add_format, as_csv, format_of, give, say_blocks, starred
from pettingllms_envs.episodes import files
from pettingllms_envs.episodes.index import run_folders
from pettingllms_envs.evaluation.compare import RunRows
from pettingllms_envs.evaluation.data_label import problem_set
from pettingllms_envs.evaluation.leaderboard import leaderboard
from pettingllms_envs.evaluation.metrics import sum_of_tokens
from pettingllms_envs.evaluation.scores import RETURN, SUCCESS, pool_seeds
from pettingllms_envs.evaluation.suites import read_record
from pettingllms_envs.evaluation.tables import count, duration, width
from pettingllms_envs.reports.blocks import Bold, Heading, Items, Paragraph, Table, markdown
from pettingllms_envs.reports.page import page


def add(parser: argparse.ArgumentParser) -> None:
    """Add the options of `leaderboard`."""
    parser.add_argument("folders", nargs="+", type=Path, metavar="FOLDER", help="folders with runs at any depth")
    parser.add_argument("--env", action="append", default=[], metavar="E", help="show this environment alone")
    add_pooling(parser)
    add_format(parser)


def run(args: argparse.Namespace, console: Console) -> int:
    """Show the leaderboard, or write it."""
    form = format_of(args)
    with user_errors():
        folders = [
            folder for folder in args.folders if not folder.is_file()
        ]  # a shell's `suite/*` has suite.json, too
        found = [run for folder in folders or args.folders for run in runs_below(folder)]
        board = read_board(found, envs=args.env, is_pooled=args.pool_seeds)
        if form == "table":
            show(console, board)
        else:
            give(args.output, console, text_of(board, form))
    return 0


def runs_below(folder: Path) -> list[Path]:
    """The folders of runs at any depth."""
    found = list(run_folders(folder))
    if not found:
        raise ValueError(f"{folder} has no run; expected folders of `pettingllms bench` in it. Name another.")
    return found


def read_board(folders: Sequence[Path], *, envs: Sequence[str] = (), is_pooled: bool = False) -> Any:
    """The leaderboard of runs; those that cannot be read are left out with the reason.

    Args:
        is_pooled: Whether runs that differ in their seed alone are samples of one.
    """
    runs, broken = [], []
    records = {root: read_record(root).get("players", {}) for root in {folder.parent for folder in folders}}
    names = {str(each): name for each in folders if (name := records[each.parent].get(each.name))}
    for folder in dict.fromkeys(folders):
        try:
            header = files.read_header(folder)
            rows = files.distinct(files.read(folder, whole=False)) if (folder / files.EPISODES).exists() else []
            runs.append(RunRows(str(folder), header, rows, str(folder)))
        except (ValueError, OSError) as error:
            broken.append((str(folder), " ".join(str(error).split())))
    runs = of_envs(runs, envs)
    board = leaderboard(pool_seeds(runs) if is_pooled else runs, names)
    return replace(board, left_out=sorted([*board.left_out, *broken]))


def show(console: Console, board: Any) -> None:
    """Print the leaderboard; where its table is too wide, a line for each value."""
    whole = list(blocks(board))
    for at, block in enumerate(whole):
        if not isinstance(block, Table) or block.head[0] != "player":
            continue
        if width(block.head, [list(map(starred, row)) for row in block.rows]) > console.width:
            rows = [[head, row[0], row[i]] for i, head in enumerate(block.head) if i for row in block.rows]
            whole[at] = Table(("environment", "player", "success"), rows)
    say_blocks(console, whole)


def text_of(board: Any, form: str) -> str:
    """The leaderboard as Markdown, CSV or one HTML page."""
    if form == "csv":
        return as_csv(lines(board))
    return markdown(list(blocks(board))) if form == "md" else page(list(blocks(board)), {})


def blocks(board: Any) -> Iterator[Any]:
    """The leaderboard from its title to the runs that are left out."""
    yield Heading("Leaderboard", 1)
    earned = list(dict.fromkeys(cell.column for cell in board.cells.values() if cell.measure == RETURN))
    if board.cells:
        heads = [*board.columns, *(["mean"] if board.means else [])]
        rows = [
            [player, *(_shown(board.cells.get((player, column))) for column in board.columns)]
            + ([figure(board.means[player], SUCCESS) if player in board.means else "-"] if board.means else [])
            for player in board.players
        ]
        yield Table(("player", *heads), rows)
        of_returns = f", of {', '.join(earned)} the mean return of an agent," * bool(earned)
        best = "In bold (or with a star): nobody in the column is better by a verdict below."
        said = f"Success{of_returns} with 95% intervals. {best}"
        if board.means:
            said += (
                " The mean gives each environment the same weight; who lacks a column has none, and stands at the end."
            )
        if own := board.not_in_mean:
            why = "which has returns" if own == earned else "whose problems are not the benchmark's"
            why += " or which have returns" * bool(earned and own != earned)
            said += f" No mean counts {', '.join(own)}, {why}."
        yield Paragraph(said)
        notes = [f"{cell.column}: {cell.note}" for cell in board.cells.values() if cell.note]
        states = {(cell.column, cell.run.header["versions"].get("source")) for cell in board.cells.values()}
        notes += [
            f"{column}: its runs are of {number} states of the code under one version number (versions.source)."
            for column in board.columns
            if (number := sum(each == column for each, _ in states)) > 1
        ]
        if notes:
            yield Items(list(dict.fromkeys(notes)))
    if board.comparisons:
        unit = "difference" if earned else "points"
        yield Heading("Paired comparisons", 2)
        pairs = [(column, pair) for column, found in board.comparisons.items() for pair in found.pairs]
        yield Table(
            ("environment", "left - right", f"{unit} [interval]", "p (Holm)", "verdict"),
            [
                [
                    column,
                    f"{pair.second} - {pair.first}",
                    difference(pair, "return" if column in earned else "points"),
                    f"{pair.adjusted:.2g}",
                    pair.verdict,
                ]
                for column, pair in pairs
            ],
            left=(1, 4),
        )
        together = f"All {len(pairs)} comparisons hold together: p adjusted by Holm, intervals by Bonferroni."
        yield Paragraph(f"Problem by problem, p two-sided. {together if len(pairs) > 1 else ''}".rstrip())
    if board.cells:
        yield Heading("Runs", 2)
        yield Table(
            ("environment", "player", "problems", "samples", "tokens in", "out", "wall time"),
            [
                [
                    cell.column,
                    cell.player,
                    problem_set(cell.run.header["config"]),
                    str(cell.run.header["config"]["samples"]),
                    *map(count, sum_of_tokens(cell.report) or (None, None)),
                    duration((cell.report["timing"] or {}).get("seconds")),
                ]
                for cell in _in_order(board)
            ],
            left=(1,),
        )
    if board.left_out:
        yield Heading("Not in the table", 2)
        yield Items([f"{name}: {reason}" for name, reason in board.left_out])


def _in_order(board: Any) -> list[Any]:
    return [
        board.cells[player, column]
        for column in board.columns
        for player in board.players
        if (player, column) in board.cells
    ]


def _shown(cell: Any) -> str:
    if cell is None:
        return "-"
    text = figure(cell.figure, cell.measure)
    return Bold(text) if cell.is_best else text


def lines(board: Any) -> Iterator[list[Any]]:
    """A line for each run: those in the table, then the others with the reason."""
    heads = ("environment", "player", "success", "low", "high", "is_best", "problem_set", "problems", "samples")
    yield [*heads, "episodes", "tokens_in", "tokens_out", "wall_seconds", "date", "data", "run", "left_out", "measure"]
    for cell in _in_order(board):
        timing, config = cell.report["timing"] or {}, cell.run.header["config"]
        yield [
            *(cell.column, cell.player, *cell.figure, cell.is_best),
            *(problem_set(config), len({files.problem(row) for row in cell.run.rows})),
            *(config["samples"], cell.report["episodes"]["ended"], *(sum_of_tokens(cell.report) or ("", ""))),
            *(timing.get("seconds", ""), day(timing.get("began")), cell.note, cell.run.name, "", cell.measure),
        ]
    for name, reason in board.left_out:
        yield [*[""] * 15, name, reason, ""]


def day(seconds: float | None) -> str:
    """The local date of a time in seconds since 1970, `"2026-11-26"`; empty if it is unknown."""
    return "" if seconds is None else datetime.fromtimestamp(seconds).date().isoformat()
