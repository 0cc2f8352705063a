"""Upload a run to the Hub as a data set: episodes, numbers, page and a card. Says what it would upload, and asks."""

from __future__ import annotations

import argparse
import re
from pathlib import Path

from rich.console import Console
from rich.filesize import decimal
from rich.text import Text

from pettingllms_envs.commands import counted, refuse, say, user_errors
from pettingllms_envs.episodes import files, media
from pettingllms_envs.evaluation import hub


_REPO = re.compile(r"[\w.-]+/[\w.-]+")


def add(parser: argparse.ArgumentParser) -> None:
    """Add the options of `push`: the run, the repository, and whether it is public."""
    parser.add_argument("run_folder", metavar="RUN", type=Path, help="a folder with run.json and episodes.jsonl")
    parser.add_argument("repo", metavar="REPO", help="the data set's name on the Hub, such as me/sokoban-qwen3")
    parser.add_argument("--public", action="store_true", help="make a new repository public (private)")
    parser.add_argument("--yes", action="store_true", help="do not ask")


def run(args: argparse.Namespace, console: Console) -> int:
    """Show what will be uploaded, ask, and upload it."""
    folder: Path = args.run_folder
    if not _REPO.fullmatch(args.repo):
        refuse(f"the repository is {args.repo!r}; expected NAME/REPOSITORY. Write me/sokoban-qwen3.")
    with user_errors():
        header = files.read_header(folder)
        found = hub.pushed_files(folder)
        sizes = ", ".join(f"{file.name} ({decimal(file.stat().st_size)})" for file in found)
        if images := media.images_of_run(folder, files.stream(folder)):
            sizes += f", {counted(len(images), 'image')} ({decimal(sum(file.stat().st_size for file in images))})"
    kind = "public" if args.public else "private"
    say(console, f"To the data set {args.repo} ({kind}, if it is new): {sizes}, README.md")
    if paths := hub.paths_named(header):
        say(console, f"run.json names paths of this machine, of which the last names are uploaded: {', '.join(paths)}")
    if not args.yes and not _agreed(console):
        console.print(Text("Nothing was uploaded. --yes does not ask."))
        return 1
    with user_errors():
        try:
            address = hub.push(folder, args.repo, private=not args.public)
        except OSError as error:
            if error.errno is not None:  # of a file
                raise
            refuse(
                f"nothing was uploaded to {args.repo} ({error}); expected the Hub, and a token that may write there. "
                "`hf auth login` gives one, or set HF_TOKEN."
            )
    say(console, address)
    return 0


def _agreed(console: Console) -> bool:
    try:
        return console.input("Upload? [y/N] ").strip().lower() in ("y", "yes")
    except EOFError:  # nobody is there to be asked
        console.print()
        return False
