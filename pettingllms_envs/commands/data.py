"""Work with data sets of problems: list and show them, prepare a local copy, find test problems in training data.

    pettingllms data list
    pettingllms data show own:apps
    pettingllms data prepare codeparrot/apps --output apps
    pettingllms data check apps#train --against own:live_code_bench

DATA is own:LAYOUT, a file, a prepared folder, or ID@COMMIT on the Hub. LAYOUT=DATA says what its columns are, and
DATA#SPLIT takes one split.
"""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table
from rich.text import Text

from pettingllms_envs.commands import Parser, counted, say, say_table, user_errors
from pettingllms_envs.datasets import hub, load
from pettingllms_envs.datasets.columns import LAYOUTS, find_layout
from pettingllms_envs.datasets.files import stem
from pettingllms_envs.datasets.hub import local
from pettingllms_envs.datasets.hub_datasets import KNOWN
from pettingllms_envs.datasets.loading import check_split, entries
from pettingllms_envs.datasets.overlap import Statement, overlaps
from pettingllms_envs.datasets.preparing import check_output, prepare
from pettingllms_envs.datasets.problems import Problem
from pettingllms_envs.datasets.rows import BadRow
from pettingllms_envs.datasets.sources import Source, find_source, is_on_hub, own_sets, shares
from pettingllms_envs.printable import printable


class DataArgument(NamedTuple):
    """The parts of an argument DATA."""

    data: str
    split: str | None
    layout: str | None


def add(parser: argparse.ArgumentParser) -> None:
    """Add a subcommand for each of the four tasks."""
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    commands = parser.add_subparsers(required=True, metavar="WHAT", parser_class=Parser)
    listing = commands.add_parser("list", help="list the known data sets and layouts")
    listing.set_defaults(what=_list)

    show = commands.add_parser("show", help="show the number of problems in a data set, and the first one")
    show.add_argument("data", metavar="DATA", type=named)
    show.add_argument("--unjudged", action="store_true", help="include problems that no comparison can judge")
    show.set_defaults(what=_show)

    copy = commands.add_parser("prepare", help="write a local copy with a manifest")
    copy.add_argument("data", metavar="ID", type=named, help="a set of the Hub, or a file")
    copy.add_argument("--revision", metavar="R", help="branch, tag or commit (the commit that main is at)")
    copy.add_argument("--split", action="append", default=[], metavar="SPLIT", help="only this one; may be repeated")
    copy.add_argument("--output", type=Path, metavar="FOLDER", help="folder to write (./ID, with __ for /)")
    copy.add_argument("--limit", type=_count, metavar="N", help="at most N problems of each split")
    copy.set_defaults(what=_prepare)

    check = commands.add_parser("check", help="find copies of test problems in a training set; exit status 1 if any")
    check.add_argument("train", metavar="TRAIN", type=named)
    check.add_argument(
        "--against", nargs="+", required=True, metavar="TEST", type=named, help="one or several test sets"
    )
    check.add_argument("--threshold", type=float, default=0.5, metavar="X", help="least similarity of a copy (0.5)")
    check.add_argument("--quiet", action="store_true", help="show ids only, no texts")
    check.set_defaults(what=_check)


def run(args: argparse.Namespace, console: Console) -> int:
    """Run the chosen subcommand."""
    with user_errors():
        status: int = args.what(args, console)
    return status


def named(text: str) -> DataArgument:
    """`"math=my.jsonl#train"` is the file my.jsonl, its split train, its layout math."""
    layout, equals, data = text.partition("=")
    if not equals or layout.partition(":")[0] not in LAYOUTS:
        layout, data = "", text
    data, _, split = data.partition("#")
    return DataArgument(data, split or None, layout or None)


def _count(text: str) -> int:
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"{text} problems; expected at least 1")
    return number


def _list(args: argparse.Namespace, console: Console) -> int:
    ours = {known.stem for known in own_sets()}
    rows = []
    for known in KNOWN:
        id = f"{known.id}:{known.config}" if known.config else known.id
        splits = shares(tuple(known.files), tuple(known.files), benchmark=find_layout(known.layout).benchmark)
        rows.append((id, known.layout, ", ".join(splits), "yes" if known.stem in ours else ""))
    say_table(console, "Data sets of the Hub", ("id", "layout", "splits", "rows of our own"), rows)
    columns = [(name, ", ".join("|".join(names) for names in each.columns)) for name, each in LAYOUTS.items()]
    say_table(console, "Layouts", ("layout", "columns that every row must have"), columns)
    return 0


def _show(args: argparse.Namespace, console: Console) -> int:
    data, split, layout = args.data
    loaded = load(data, split=split, layout=layout, include_unjudged=args.unjudged)
    about = f"{loaded.source}{f' at {loaded.revision}' if loaded.revision else ''}, layout {loaded.layout}"
    say(console, f"{about}, {f'split {split}' if split else 'all rows'}")
    counts = [("problems", f"{len(loaded.problems)}"), ("malformed rows", f"{len(loaded.bad)}")]
    counts += [(f"left out: {reason}", f"{count}") for reason, count in loaded.left_out.items()]
    say_table(console, "", ("what", "rows"), counts)
    for bad in loaded.bad[:10]:
        say(console, f"row {bad.index} of {bad.file}: {bad.reason}")
    for problem in loaded.problems[:1]:
        say(console, f"\n--- {problem.id}, level {problem.level} ---\n{problem.statement}")
    return 0


def _prepare(args: argparse.Namespace, console: Console) -> int:
    data, split, layout = args.data
    revision = args.revision
    of_hub = is_on_hub(data)
    named_after = data.partition("@")[0].replace("/", "__").replace(":", "__") if of_hub else stem(Path(data))
    output = args.output or Path(named_after.replace(":", "__"))
    check_output(output)
    if of_hub:
        id, at, tail = data.partition("@")
        if at and revision:
            raise ValueError(f"{data} and --revision {revision}; expected one revision. Leave one of them out.")
        revision = hub.commit(id.partition(":")[0], tail if at else revision)
        data = id
    source = find_source(data, layout=layout, revision=revision)
    splits = [*args.split, *([split] if split else [])] or list(source.shares)
    for each in splits:
        check_split(source, each)
    with _bars(source, splits) as told:
        manifest = prepare(source, output, splits=splits, limit=args.limit, told=told)
    at = f" at {manifest.revision}" if manifest.revision else ""
    say(console, f"{output}: {manifest.source}{at}, layout {manifest.layout}")
    for name, part in manifest.splits.items():
        rows = f"{counted(part.rows, 'problem')} ({sum(part.unjudged.values())} unjudged)"
        bad = counted(len(part.bad), "malformed row")
        say(console, f"  {name}: {rows}, {bad}, {sum(part.left_out.values())} left out, SHA-256 {part.sha256[:16]}")
    return 0


@contextmanager
def _bars(source: Source, splits: Sequence[str]) -> Iterator[Callable[[str, int, int], None]]:
    """A progress bar for each split on standard error; yields what is told of bytes and problems that were read."""
    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TimeRemainingColumn())
    found = Counter[str]()
    with Progress(*columns, TextColumn("{task.fields[problems]}"), console=Console(stderr=True)) as bars:
        totals = {s: sum(local(file).stat().st_size for file in source.files[source.shares[s][0]]) for s in splits}
        tasks = {s: bars.add_task(s, total=total, problems=counted(0, "problem")) for s, total in totals.items()}

        def told(split: str, read: int, problems: int) -> None:
            found[split] += problems
            bars.update(tasks[split], advance=read, problems=counted(found[split], "problem"))

        yield told


def _check(args: argparse.Namespace, console: Console) -> int:
    without = Counter[tuple[str, str]]()
    tests = [statement for test in args.against for statement in _statements(test, "test row", without)]
    copies = list(overlaps(_statements(args.train, "training row", without), tests, args.threshold))
    for copy in copies:
        kind = "the same words" if copy.exact else f"similarity {copy.similarity:.2f}"
        say(console, f"{copy.train.data} {copy.train.id} = {copy.test.data} {copy.test.id}: {kind}", "bold")
        if not args.quiet:
            side_by_side = Table(box=None, show_header=False, padding=(0, 2, 1, 0), expand=True)
            side_by_side.add_column(ratio=1, overflow="fold")
            side_by_side.add_column(ratio=1, overflow="fold")
            side_by_side.add_row(*(Text(printable(each.text)) for each in (copy.train, copy.test)))
            console.print(side_by_side)
    found = len({copy.test for copy in copies})
    exact = len({copy.test for copy in copies if copy.exact})
    say(console, f"{found} of {len(tests)} test problems are in the training set, {exact} of them word for word.")
    for (what, reason), num in without.items():
        say(console, f"{counted(num, what)} not compared: {reason}.")
    return 1 if copies else 0


def _statements(which: DataArgument, what: str, without: Counter[tuple[str, str]]) -> Iterator[Statement]:
    """The statements, one at a time, since a training set may be large; counts the rows without one by the reason."""
    source = find_source(which.data, layout=which.layout)
    for entry in entries(source, which.split):
        if isinstance(entry.outcome, Problem):
            yield Statement(source.name, entry.outcome.id, entry.outcome.statement)
        else:
            without[what, "malformed" if isinstance(entry.outcome, BadRow) else str(entry.outcome)] += 1
