"""Runs as a pandas data frame, for notebooks. pandas is imported on use, and no dependency of this package."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pettingllms_envs.episodes import files
from pettingllms_envs.episodes.index import BROKEN, Entry, entry_of, run_folders
from pettingllms_envs.evaluation.metrics import sum_of_tokens, tokens


if TYPE_CHECKING:
    import pandas as pd


def frame(folder: Path | str, per: str = "episode") -> pd.DataFrame:
    """All runs in a folder as a pandas data frame.

    Args:
        folder: A folder with runs at any depth, or a run's.
        per: `"episode"`: a row is an episode, with the columns `run`, `env`, `player`, `problem` (equal in runs on the
            same problem), `index`, `sample`, `success` (None without a verdict), `error` (its kind), `end`, `turns`,
            `tokens`, `seconds`, and one for each option of the problems (`option.level`), value of the outcome
            (`outcome.regret`) and agent (`return.planner_0`).
            `"run"`: a row is a run, with the columns `run`, `state`, `kind`, `env`, `player`, `note` (what the
            problems are, if not the benchmark's), `began` (a time, UTC), `success`, `low`, `high`, `problems`,
            `episodes`, `planned`, `tokens_in`, `tokens_out`, `seconds`, `fault`. Episodes are not read.

    Returns:
        The frame. Runs that cannot be read are in that of runs, with a `fault`; in that of episodes they are left out.

    Raises:
        ImportError: pandas is not installed.
        ValueError: `per` is neither, or a line of an `episodes.jsonl` is no episode.
        OSError: There is no such folder.
    """
    if per not in ("episode", "run"):
        raise ValueError(f"per is {per!r}; expected 'episode' or 'run'.")
    try:
        import pandas as pd
    except ImportError as error:
        raise ImportError("frame() needs pandas, which is not installed. Run pip install pandas.") from error
    entries = [entry_of(path) for path in run_folders(Path(folder))]
    if per == "episode":
        return pd.DataFrame(row for entry in entries if entry.state != BROKEN for row in _episodes(entry))
    found = pd.DataFrame(map(_run, entries))
    if len(found):
        found["began"] = pd.to_datetime(found["began"], unit="s", utc=True)
    return found


def _run(entry: Entry) -> dict[str, Any]:
    report: Mapping[str, Any] = entry.report or {}
    success, episodes = report.get("success") or {}, report.get("episodes") or {}
    used = (sum_of_tokens(report) if report else None) or (None, None)
    return {
        "run": str(entry.path),
        **{name: getattr(entry, name) for name in ("state", "kind", "env", "player", "note", "began")},
        "success": success.get("mean"),
        **{name: success.get(name) for name in ("low", "high", "problems")},
        "episodes": episodes.get("ended"),
        "planned": episodes.get("planned"),
        "tokens_in": used[0],
        "tokens_out": used[1],
        "seconds": (report.get("timing") or {}).get("seconds"),
        "fault": entry.fault,
    }


def _episodes(entry: Entry) -> Iterator[dict[str, Any]]:
    if not (entry.path / files.EPISODES).exists():
        return
    for row in files.stream(entry.path):
        yield {
            "run": str(entry.path),
            "env": row["instance"]["env"],
            "player": entry.player,
            "problem": files.problem(row),
            "index": row["instance"]["index"],
            "sample": row["sample"],
            "success": row["success"],
            "error": None if row["error"] is None else row["error"]["kind"],
            "end": row["end"],
            "turns": row["turns"],
            "tokens": tokens(row),
            "seconds": (row.get("timing") or {}).get("seconds"),
            **{f"option.{name}": value for name, value in row["instance"]["options"].items()},
            **{f"outcome.{name}": value for name, value in (row["outcome"] or {}).items() if name != "success"},
            **{f"return.{agent}": value for agent, value in row["returns"].items()},
        }
