"""Write runs in the format of another tool: logs of Inspect, which `inspect view --log-dir logs` shows."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from rich.console import Console

from pettingllms_envs.commands import refuse, say, user_errors
from pettingllms_envs.commands.leaderboard import runs_below
from pettingllms_envs.commands.runs import digest_of
from pettingllms_envs.episodes import files
from pettingllms_envs.episodes.media import read_image
from pettingllms_envs.episodes.outputs import write_output
from pettingllms_envs.evaluation.inspect_log import inspect_log


def add(parser: argparse.ArgumentParser) -> None:
    """Add the options of `export`."""
    parser.add_argument("folder", type=Path, metavar="FOLDER", help="a run's folder, or one with runs at any depth")
    parser.add_argument("--format", choices=("inspect",), default="inspect", metavar="F", help="inspect (inspect)")
    parser.add_argument("--output", type=Path, default=Path("logs"), metavar="DIR", help="folder of the logs (logs)")


def run(args: argparse.Namespace, console: Console) -> int:
    """Write a log of each run; those that cannot be read are named, and the exit status is 2."""
    with user_errors():
        folders = runs_below(args.folder)
        args.output.mkdir(parents=True, exist_ok=True)
    faults = []
    for folder in folders:
        try:
            name, text = log_of(folder)
        except (ValueError, OSError) as error:
            faults.append(f"{folder}: {' '.join(str(error).split())}")
            continue
        with user_errors():
            write_output(args.output / name, text)
        say(console, str(args.output / name))
    if faults:
        refuse(f"{len(faults)} of {len(folders)} runs cannot be read. {'; '.join(faults)}")
    return 0


def log_of(folder: Path) -> tuple[str, bytes]:
    """The name and the content of the log of a run; the name has the parts that Inspect gives it."""
    header, rows = files.read_header(folder), files.distinct(files.read(folder))
    if not rows:
        raise ValueError("it has no episode yet; expected at least one. Wait for it.")
    digest = digest_of({"config": header["config"], "folder": str(folder)})
    log = inspect_log(header, rows, digest, lambda image: read_image(folder, image))
    began = str(log["eval"]["created"]).replace(":", "-")
    # Inspect reads UTF-8, in which the lone surrogates that a model may write have no form.
    text = json.dumps(log, ensure_ascii=False, allow_nan=False).encode("utf-8", "replace")
    return f"{began}_{log['eval']['task'].replace('_', '-').replace('/', '-')}_{digest}.json", text
