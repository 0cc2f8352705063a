"""Check that a run is sound: that its groups may be compared, every role learns, and no collapse is near.

RUN is a training's OUTPUT_DIR or its rollouts (log_rollouts=True), a folder of `pettingllms bench`, or TRL's
completions tables (log_completions=True). A check whose columns are missing says "not recorded".
Exit status: 0 nothing failed (there may be warnings), 1 something failed, 2 something given was wrong.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from pettingllms_envs.audit import Audit, Finding
from pettingllms_envs.audit.designs import UnreadableDesigns
from pettingllms_envs.audit.history import falling_entropy, history_of
from pettingllms_envs.audit.recorded import episode_of, run_of
from pettingllms_envs.audit.tables import episodes_of_table, fresh_tables, read_table, run_of_tables
from pettingllms_envs.commands import counted, of_research, refuse, say, user_errors
from pettingllms_envs.episodes import files
from pettingllms_envs.episodes.files import EPISODES, RUN
from pettingllms_envs.episodes.outputs import write_output
from pettingllms_envs.printable import printable


FEW_REPLIES = 5
"""Fewest replaced replies for the finding that a role's replies change nothing."""
ROLLOUTS = "rollouts"
"""Name of the folder with rollouts in a training's output folder."""


def add(parser: argparse.ArgumentParser) -> None:
    """Add the options of `audit`: the run, and what to check."""
    parser.add_argument("run_folder", metavar="RUN", type=Path, help="a folder, an episodes.jsonl, or a .parquet file")
    parser.add_argument(
        "--replay", action="store_true",
        help="play the environment again to measure how much each role's replies change the returns",
    )  # fmt: skip
    parser.add_argument(
        "--replies", type=int, default=100, metavar="N", help="replies of each role that --replay replaces (100)"
    )
    parser.add_argument(
        "--num-generations", type=int, metavar="K",
        help="candidates of a group in TRL's tables (default: as many as most prompts have)",
    )  # fmt: skip
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write the findings to this file")


def run(args: argparse.Namespace, console: Console) -> int:
    """Show the findings. Returns 1 if a check failed."""
    path: Path = args.run_folder
    if args.replies < 1:
        refuse(f"--replies is {args.replies}; expected 1 or more. Leave it out for 100.")
    with user_errors():
        record_at, tables = _found(path)
        if record_at is not None:
            what, findings = _of_record(record_at)
            is_training = "training" in what
        else:
            if args.replay:
                refuse("--replay got completions tables; expected a record, which says how to play it again. Set "
                       "log_rollouts=True when training, or leave it out.")  # fmt: skip
            what, findings = _of_tables(tables, args.num_generations)
            is_training = True
        if is_training:
            findings.append(falling_entropy(history_of(_output_dir(path))))
        if args.replay and record_at is not None:
            findings.append(_influence(record_at, args.replies))
    say(console, what)
    show(console, findings)
    if args.json is not None:
        plain = {"run": what, "findings": [finding.plain for finding in findings]}
        with user_errors():
            write_output(args.json, json.dumps(plain, indent=2) + "\n")
    return int(any(finding.status == "failed" for finding in findings))


def _found(path: Path) -> tuple[Path | None, list[Path]]:
    """The record at a path, or the tables there; `ValueError` if there is neither."""
    if path.suffix == ".jsonl":
        return path, []
    if path.suffix == ".parquet":
        return None, [path]
    for folder in (path, path / ROLLOUTS):
        if (folder / RUN).is_file() and (folder / EPISODES).is_file():
            return folder, []
    if tables := sorted(path.glob("completions_*.parquet")) or sorted(path.glob("completions/completions_*.parquet")):
        return None, tables
    raise ValueError(
        f"{path} has no {RUN} with {EPISODES}, no {ROLLOUTS}/ with them, and no completions/completions_*.parquet; "
        "expected a run. Name its folder, or train with log_rollouts=True."
    )


def _output_dir(path: Path) -> Path:
    """The output folder of a training, where its checkpoints are."""
    folder = path if path.is_dir() else path.parent
    return folder.parent if folder.name in (ROLLOUTS, "completions") else folder


def _of_record(path: Path) -> tuple[str, list[Finding]]:
    run = run_of(files.read_header(path), files.read_report(path))
    whole, designs, number = Audit(run), UnreadableDesigns(), 0
    for number, row in enumerate(files.stream(path), 1):  # how many there were
        whole.observe(episode_of(run, row, f"line {number}"))
        designs.observe(row)
    if not number:
        refuse(f"{path} has no episode yet; expected at least one. Wait for it, or name another run.")
    kind = "a training" if run.is_training else "a benchmark"
    return f"{path}: {counted(number, 'episode')} of {kind}", [*whole.conclude(), *designs.conclude()]


def _of_tables(files: list[Path], num_candidates: int | None) -> tuple[str, list[Finding]]:
    names: list[str] = []

    def rows() -> Iterator[Any]:
        for file in files:
            names.append(file.name)
            yield read_table(file)

    whole: Audit | None = None
    number = 0
    for table in fresh_tables(rows()):
        if whole is None:
            run = run_of_tables(table, num_candidates)
            whole = Audit(run)
        number += len(table)
        for episode in episodes_of_table(run, table, names[-1]):
            whole.observe(episode)
    if whole is None:
        refuse(f"{files[0]} has no row; expected completions. Wait for them, or name another run.")
    what = f"{counted(number, 'completion')} in {counted(len(files), 'table')} of a training by TRL"
    return f"{files[0].parent}: {what}", whole.conclude()


def _influence(path: Path, num_replies: int) -> Finding:
    header = files.read_header(path)
    found = of_research("influence")(header, lambda: files.stream(path), num_replies=num_replies)
    name = "no influence"
    if isinstance(found, str):
        return Finding(name, "not recorded", found)
    none = [role for role, each in found.items() if each.num_changed == 0 and each.num >= FEW_REPLIES]
    words = "; ".join(str(each) for each in found.values())
    if none:
        remedy = "Whatever the role says, the returns are the same: give it a part in the task, or leave it out."
        return Finding(name, "warning", f"{words}: {', '.join(none)} changed nothing.", remedy=remedy)
    return Finding(name, "passed", f"{words}.")


def show(console: Console, findings: list[Finding]) -> None:
    """Show the findings as a table, and what to do about bad ones."""
    made = Table(box=None, pad_edge=False, show_header=False)
    for i in range(3):
        made.add_column(no_wrap=i < 2, overflow="fold")
    for finding in findings:
        made.add_row(*(Text(printable(each)) for each in (finding.name, finding.status, finding.text)))
    console.print()
    console.print(made)
    console.print()
    for finding in findings:
        if finding.is_bad:
            where = f" First: {finding.where}." if finding.where else ""
            say(console, f"{finding.name}:{where} {finding.remedy}")
    bad = [sum(finding.status == status for finding in findings) for status in ("failed", "warning")]
    say(console, f"{counted(bad[0], 'check')} failed, {counted(bad[1], 'warning')}.")
