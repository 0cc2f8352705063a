"""Play recorded episodes again without a model, and show the first difference; or rescore them.

FILE is an episodes.jsonl with its run.json beside it, their folder, or the output folder of a training. An episode
that ended with an error is played as far as it goes, and has no result to compare. Exit status 1 if anything differs,
or if every episode ended with an error.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rich.console import Console

import pettingllms_envs
from pettingllms_envs.commands import counted, refuse, say, setting, user_errors
from pettingllms_envs.commands.runs import bar
from pettingllms_envs.episodes import files, media
from pettingllms_envs.episodes.outputs import check_new_run
from pettingllms_envs.episodes.replay import changed, replay, same_bytes
from pettingllms_envs.evaluation import bench, data_label, metrics
from pettingllms_envs.observations import Image
from pettingllms_envs.settings import to_json


def add(parser: argparse.ArgumentParser) -> None:
    """Add the options of `replay`: the record, and where to write the rescored one."""
    parser.add_argument(
        "file", type=Path, metavar="FILE", help="an episodes.jsonl, its folder, or a folder with one run in it"
    )
    parser.add_argument(
        "--rescore", type=Path, metavar="DIR", help="write the episodes with their new scores to this folder"
    )
    parser.add_argument("--env", metavar="FILE.py:NAME", help="the record's file, which is run only if named")
    parser.add_argument(
        "--set", dest="settings", action="append", default=[], type=setting, metavar="KEY=VALUE",
        help="a setting to replace the record's, for scoring",
    )  # fmt: skip


def run(args: argparse.Namespace, console: Console) -> int:
    """Replay every row. Returns 0 if all are as recorded and at least one has a result."""
    with user_errors():
        header, rows = files.read_header(args.file), files.read(args.file)
        if not rows:
            refuse(f"{args.file} has no episode yet; expected at least one. Wait for it, or name another run.")
        other = dict(args.settings)
        trusted = None if args.env is None else pettingllms_envs.find(args.env).full_name
        rescored: Path | None = args.rescore
        if rescored is not None:
            make_folder(rescored)

        def keep(image: Image) -> None:
            if rescored is not None:
                media.write_image(rescored, image)

        envs: dict[str, Any] = {}
        replayed, same, compared = [], 0, 0
        is_training, differs = header["kind"] == "rollouts", False
        with bar(console, "replay", len(rows)) as on_row:
            for row in rows:
                name, given = files.remade(header, row, other, trusted)
                key = json.dumps([name, given])
                if key not in envs:
                    envs[key] = pettingllms_envs.make(name, **given)
                replayed.append(replay(envs[key], row, keep=keep))
                # A training run's row does not say all that a replay finds out.
                is_same = replayed[-1].first is None if is_training else same_bytes(row, replayed[-1].row)
                if row["error"] is None:
                    compared, same = compared + 1, same + is_same
                differs = differs or not is_same
                on_row(replayed[-1].row)
        if rescored is not None:
            write(rescored, header, other, replayed, next(iter(envs.values())))
    how = "as far as a training run records them" if is_training else "byte for byte"
    if compared:
        say(console, f"{same} of {counted(compared, 'episode')} {'is' if compared == 1 else 'are'} the same, {how}.")
    if others := sum(not each.has_states for each in replayed):
        say(console, f"States of {counted(others, 'episode')} were not compared: the record has another form of them.")
    if errors := len(rows) - compared:
        say(console, f"{errors} of {counted(len(rows), 'episode')} ended with an error and could not be compared.")
    first = next((each.first for each in replayed if each.first is not None), None)
    if first is not None:
        say(console, f"The first difference: {first}")
    if args.rescore is not None:
        scored(console, rows, replayed)
        say(console, f"The episodes as they come out now are in {args.rescore}.")
    return int(differs or not compared)


def make_folder(path: Path) -> None:
    """Make a folder for a run; `ValueError` if there is a run in it."""
    path.mkdir(parents=True, exist_ok=True)
    check_new_run(path)


def write(path: Path, header: Mapping[str, Any], other: Mapping[str, Any], replayed: list[Any], env: Any) -> None:
    """Write a run's folder with the replayed rows.

    Args:
        env: In which they were replayed; of several the first.
    """
    config = {**header["config"], "settings": {**(header["config"].get("settings") or {}), **to_json(other)}}
    if several := config.get("environments"):
        config["environments"] = {
            name: {**each, "settings": {**each["settings"], **to_json(other)}} for name, each in several.items()
        }
    data = data_label.labelled(header)["data"]
    if config.get("env") is not None and not several:
        config["env_config"] = bench.words_of(env)
        data = data_label.of_env(env, (config.get("instances") or {}).get("num"))
    new = files.header(header["kind"], config, {}, bench.layers(), data=data) | {"replay_of": header["versions"]}
    rows = [each.row for each in replayed]
    files.write_json(path / files.RUN, new)
    files.write_rows(path / files.EPISODES, rows)
    files.write_json(path / files.REPORT, metrics.report(new, rows))


def scored(console: Console, rows: list[Any], replayed: list[Any]) -> None:
    """Show what changed with another grader."""
    again = [each.row for each in replayed]
    before, after = (sum(row["success"] is True for row in each) for each in (rows, again))
    moved = changed(rows, again)
    say(
        console,
        f"Success in {before} episodes as recorded, in {after} now: {moved['gained']} gained, {moved['lost']} lost.",
    )
    off = sum(each.off_prompt for each in replayed)
    if off:
        steps = sum(len(row["steps"]) for row in again)
        say(console, f"At {off} of {steps} steps the agent would now be shown another prompt than it answered.")
