"""Report a study: each method's success, paired comparisons with intervals corrected for their number, and curves.

FOLDER has the results of `pettingllms study`. The report is Markdown; where the data cannot tell, it says so.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from rich.console import Console

from pettingllms_envs.commands import say, user_errors
from pettingllms_envs.episodes.outputs import write_output
from pettingllms_envs.studies import curves
from pettingllms_envs.studies.analysis import read_results
from pettingllms_envs.studies.page import page
from pettingllms_envs.studies.report import Curves, blocks, markdown


def add(parser: argparse.ArgumentParser) -> None:
    """Add the options of `report`."""
    parser.add_argument("folder", type=Path, metavar="FOLDER", help="the results of a study")
    parser.add_argument(
        "--out", type=Path, metavar="DIR", help="also write report.md, report.html and the curves (PNG, SVG) there"
    )


def run(args: argparse.Namespace, console: Console) -> int:
    """Print the report, and write it with its curves."""

    with user_errors():
        results = read_results(args.folder)
        report = list(blocks(results))
        say(console, markdown(report))
        if args.out is None:
            return 0
        args.out.mkdir(parents=True, exist_ok=True)
        drawn = {b.environment: curves.draw(results, b.environment) for b in report if isinstance(b, Curves)}
        for environment, pictures in drawn.items():
            curves.save(pictures, environment, args.out)
        write_output(args.out / "report.md", markdown(report, has_pictures=True))
        write_output(args.out / "report.html", page(report, {e: p["svg"].decode() for e, p in drawn.items()}))
    say(console, f"{args.out / 'report.html'}: open it in a browser")
    return 0
