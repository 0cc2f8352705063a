"""Write a run's page: its numbers with intervals, and every episode as a conversation. One self-contained file."""

from __future__ import annotations

import argparse
import io
from pathlib import Path

from rich.console import Console

from pettingllms_envs import rendering
from pettingllms_envs.commands import refuse, say, user_errors
from pettingllms_envs.commands.play import GIF
from pettingllms_envs.episodes.outputs import check_output, write_output


def add(parser: argparse.ArgumentParser) -> None:
    """Add the options of `view`: the run, where to write the page, and whether to serve it."""
    parser.add_argument(
        "run_folder",
        metavar="RUN",
        type=Path,
        help="a folder with run.json and episodes.jsonl, the latter, or a folder with one run in it (a training's), or"
        " one of `pettingllms cooperation`",
    )
    parser.add_argument("--output", type=Path, metavar="FILE", help="file to write (page.html in the run's folder)")
    parser.add_argument(
        "--serve", action="store_true", help="serve it on this machine; it is rebuilt when the run has grown"
    )
    parser.add_argument("--film", type=Path, metavar="FILE.gif", help="write a film of one training episode instead")
    parser.add_argument("--episode", type=int, metavar="N", help="of --film, from 1 (the longest success)")
    parser.add_argument(
        "--port", type=int, default=8000, metavar="N", help="port of --serve; 0 takes a free one (8000)"
    )


def run(args: argparse.Namespace, console: Console) -> int:
    """Write the page, or serve it until Ctrl-C."""
    from pettingllms_envs.episodes import files
    from pettingllms_envs.page import build, cooperation, page  # with numpy's random numbers, for the intervals
    from pettingllms_envs.page.serve import server

    if args.film is None and args.episode is not None:
        refuse(f"--episode {args.episode} got no --film; expected both. Add --film FILE.gif.")
    if args.film is not None and (args.serve or args.output is not None):
        refuse("--film got --serve or --output; expected it alone. Leave the others out.")
    with user_errors():
        if (args.run_folder / cooperation.NUMBERS).is_file() and not args.serve:
            return _written(console, cooperation.build(args.run_folder, args.output))
        folder = files.find_run(args.run_folder)
        if folder.is_dir() and not (folder / files.RUN).exists():
            raise ValueError(
                f"{folder} has no run in it or one level below; expected the folder of one. "
                f"`pettingllms runs {folder}` lists those at any depth."
            )
        if args.film is not None:
            return _filmed(args, folder, console)
        if not args.serve:
            return _written(console, build(folder, args.output))
    if args.output is not None:
        refuse("--serve got --output; expected one of them. Leave one out.")
    with user_errors():
        page(folder)  # what is wrong with it is said here, not in a browser
    try:
        shown = server(folder / "episodes.jsonl", lambda: page(folder), args.port)
    except (OSError, OverflowError) as error:
        why = getattr(error, "strerror", None) or "no such port"
        refuse(f"--port is {args.port} ({why}); expected a free one, 0 to 65535. Give --port 0 for any.")
    say(console, f"http://127.0.0.1:{shown.server_address[1]} until Ctrl-C")
    try:
        shown.serve_forever()
    finally:
        shown.server_close()
    return 0


def _written(console: Console, page: Path) -> int:
    say(console, f"{page} ({page.stat().st_size / 2**20:.1f} MiB): open it in a browser")
    return 0


def _filmed(args: argparse.Namespace, folder: Path, console: Console) -> int:
    from pettingllms_envs.page.film import film

    check_output(args.film, GIF)
    frames, file = film(folder, args.episode), io.BytesIO()
    rendering.save_gif(frames, file, ms=300)
    write_output(args.film, file.getvalue())
    say(console, f"{args.film} ({len(file.getvalue()) / 2**20:.1f} MiB, {len(frames)} frames)")
    return 0
