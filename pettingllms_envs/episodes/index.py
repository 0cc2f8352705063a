"""An index of runs, from the small files of each alone: no episode is read, but the first line of an unfinished run's.

So thousands of runs take about a second.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import date, datetime
from pathlib import Path
from typing import Any

from pettingllms_envs.episodes import files
from pettingllms_envs.episodes.players import player_of


COMPLETE, UNFINISHED, BROKEN = "complete", "unfinished", "broken"

LATEST = 250_000_000_000
"""Seconds since 1970 in the year 9892; `datetime` has none after 9999."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """A run of the index.

    Args:
        state: `COMPLETE`, `UNFINISHED` or `BROKEN`.
        fault: Why it cannot be read; empty unless it is broken.
        kind: As `run.json` says: `"bench"`, `"rollouts"` of a training, or another word.
        env: The environment's name; several are separated by commas.
        player: The model or team, see `players.player_of`.
        note: What its problems are, if they are not what the environment is called after.
        began: Seconds since 1970; None if no episode says so.
        report: Its `report.json`; None if there is none.
    """

    path: Path
    state: str
    fault: str = ""
    kind: str = ""
    env: str = ""
    player: str = ""
    note: str = ""
    began: float | None = None
    report: Mapping[str, Any] | None = None
    config: Mapping[str, Any] = field(default_factory=dict)

    @property
    def day(self) -> date | None:
        """The local date at which it began."""
        return None if self.began is None else datetime.fromtimestamp(self.began).date()


def run_folders(folder: Path) -> Iterator[Path]:
    """Every folder with a `run.json`, at any depth below a folder or the folder itself, in the order of names."""
    waiting = [folder]
    while waiting:
        current = waiting.pop()
        try:
            with os.scandir(current) as found:
                entries = sorted(found, key=lambda each: each.name, reverse=True)
        except OSError:  # another user's, or too deep
            if current is folder:
                raise
            continue
        if any(each.name == files.RUN for each in entries):
            yield current
        else:
            waiting += [Path(each.path) for each in entries if each.is_dir(follow_symlinks=False)]


def entry_of(folder: Path) -> Entry:
    """The entry of a run's folder; it never raises for what is in it."""
    try:
        header, report = files.read_header(folder), files.read_report(folder)
        config = header["config"]
        began = ((report or {}).get("timing") or {}).get("began")
        began = _first_began(folder) if began is None else began
        if began is not None and not 0 <= began < LATEST:
            raise ValueError(f"timing.began is {began}; expected seconds since 1970")
        return Entry(
            path=folder,
            state=_state(header, report),
            kind=header["kind"],
            env=str(config.get("env") or ", ".join(config.get("environments") or {})),
            player="training" if header["kind"] == "rollouts" else player_of(config),
            note=str((header.get("data") or {}).get("note", "")),
            began=began,
            report=report,
            config=config,
        )
    except (ValueError, TypeError, KeyError, AttributeError, OSError) as error:
        return Entry(path=folder, state=BROKEN, fault=" ".join(str(error).split()))


def _state(header: Mapping[str, Any], report: Mapping[str, Any] | None) -> str:
    if report is None:
        return UNFINISHED if header["kind"] == "bench" else COMPLETE  # a training writes no report
    episodes = report["episodes"]
    return COMPLETE if episodes["ended"] >= episodes.get("planned", 0) else UNFINISHED


def _first_began(folder: Path) -> float | None:
    """When the first episode of the file began."""
    try:
        return float(json.loads(next(files.lines(folder / files.EPISODES), b""))["timing"]["began"])
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return None
