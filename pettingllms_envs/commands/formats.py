"""What commands share that show a report as tables, or write it as Markdown, CSV or HTML."""

from __future__ import annotations

import argparse
import csv
import io
import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console

from pettingllms_envs.commands import refuse, say
from pettingllms_envs.episodes.outputs import write_output
from pettingllms_envs.evaluation.tables import table
from pettingllms_envs.reports.blocks import Bold, Heading, Items, Paragraph, Table, one_line


FORMATS = ("table", "md", "csv", "html")
SUFFIXES = {".md": "md", ".csv": "csv", ".html": "html"}
_NUMBER = re.compile(r"[+-]\d+(\.\d+)?(e[+-]?\d+)?")


def add_format(parser: argparse.ArgumentParser, formats: Sequence[str] = FORMATS) -> None:
    """Add the options that say in which format to print, or into which file to write."""
    parser.add_argument("--format", choices=formats, metavar="F", help=f"one of: {', '.join(formats)} (table)")
    parser.add_argument(
        "--output", type=Path, metavar="FILE", help="write it to this file, in the format of its suffix"
    )


def format_of(args: argparse.Namespace, formats: Sequence[str] = FORMATS) -> str:
    """The format that is asked for: by its name, else by the file's; `Refused` if that has no such suffix."""
    found = args.format or ("table" if args.output is None else SUFFIXES.get(args.output.suffix.lower()))
    if args.output is not None and found not in formats[1:]:
        known = ", ".join(suffix for suffix, name in SUFFIXES.items() if name in formats)
        refuse(f"--output is {args.output}; expected a name with one of the suffixes {known}. Rename it.")
    return str(found)


def give(output: Path | None, console: Console, text: str) -> None:
    """Write a text to a file, or print it."""
    if output is None:
        console.file.write(text)
    else:
        write_output(output, text)
        say(console, str(output))


def as_csv(rows: Iterable[Iterable[object]]) -> str:
    """Rows as CSV, in which lines end as everywhere else, and no text has several or is a formula of a spreadsheet."""
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows([_no_formula(cell) for cell in row] for row in rows)
    return text.getvalue()


def _no_formula(cell: object) -> object:
    """A text that a spreadsheet would compute, with an apostrophe before it; numbers and a lone dash are none."""
    if not isinstance(cell, str):
        return cell
    cell = one_line(cell)
    if cell == "-" or not cell.startswith(("=", "+", "-", "@")):
        return cell
    return cell if _NUMBER.fullmatch(cell) else f"'{cell}"


def say_blocks(console: Console, blocks: Iterable[Any]) -> None:
    """Print the blocks of a report (`reports.blocks`); a star stands for bold."""
    for block in blocks:
        if isinstance(block, Heading):
            say(console, f"\n{block.text}", "bold")
        elif isinstance(block, Items):
            say(console, "\n".join(["", *(f"* {one_line(text)}" for text in block.texts)]))
        elif isinstance(block, Table):
            table(
                console,
                list(map(one_line, block.head)),
                [[one_line(starred(cell)) for cell in row] for row in block.rows],
            )
        elif isinstance(block, Paragraph):
            say(console, f"\n{block.text}")


def starred(cell: str) -> str:
    """A cell as a terminal shows it, with a star for bold."""
    return f"{cell} *" if isinstance(cell, Bold) else cell
