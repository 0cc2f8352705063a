"""Report a study: each method's success, paired comparisons with intervals corrected for their number, and curves.

FOLDER has the results of `pettingllms study`. The report is Markdown; where the data cannot tell, it says so.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from rich.console import Console

from pettingllms_envs.commands import of_research, say, user_errors
from pettingllms_envs.episodes.outputs import inside, write_output
from pettingllms_envs.reports.blocks import Picture, markdown
from pettingllms_envs.reports.page import page


def add(parser: argparse.ArgumentParser) -> None:
    """Add the options of `report`."""
    parser.add_argument("folder", type=Path, metavar="FOLDER", help="the results of a study")
    parser.add_argument(
        "--out", type=Path, metavar="DIR", help="also write report.md, report.html and the curves (PNG, SVG) there"
    )


def run(args: argparse.Namespace, console: Console) -> int:
    """Print the report, and write it with its curves."""
    with user_errors():
        report = of_research("report")(args.folder)
        say(console, markdown(report))
        if args.out is None:
            return 0
        args.out.mkdir(parents=True, exist_ok=True)
        drawn = {block.name: block.draw() for block in report if isinstance(block, Picture)}
        for name, pictures in drawn.items():
            for ending, content in pictures.items():
                write_output(inside(args.out, f"{name}.{ending}"), content)
        write_output(args.out / "report.md", markdown(report, has_pictures=True))
        write_output(args.out / "report.html", page(report, {name: p["svg"].decode() for name, p in drawn.items()}))
    say(console, f"{args.out / 'report.html'}: open it in a browser")
    return 0
