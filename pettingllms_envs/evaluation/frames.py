"""Runs as rows: of a pandas data frame, for notebooks, and of the index's CSV.

pandas is imported on use, and no dependency of this package.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pettingllms_envs.episodes import files
from pettingllms_envs.episodes.index import BROKEN, COMPLETE, Entry, entry_of, run_folders
from pettingllms_envs.episodes.players import options_of
from pettingllms_envs.evaluation.data_label import problem_set
from pettingllms_envs.evaluation.metrics import sum_of_tokens, tokens
from pettingllms_envs.settings import STRICT_FORMAT


if TYPE_CHECKING:
    import pandas as pd


def frame(folder: Path | str | Sequence[Path | str], per: str = "episode") -> pd.DataFrame:
    """All runs in folders as a pandas data frame.

    Rows of both kinds say of their run: `run` (its folder), `env`, `settings` (`"size=9, workflow=single"`; empty:
    the defaults), `problem_set` (`"200 of the published test set"`), `samples`, `player`, `finished`, and the seed and
    the options of its agents (`player.seed`, `player.temperature`, `player.base_url`). Several runs may have the same
    problems: group by `run`, or by all that tells yours apart.

    Args:
        folder: A folder with runs at any depth, or a run's; or several.
        per: `"episode"`: a row is an episode, with the columns `problem` (equal in runs on the same problem), `index`,
            `sample`, `success` (None without a verdict), `error` (its kind), `end`, `turns`, `tokens`, `seconds`, and
            one for each option of the problems (`option.level`), value of the outcome (`outcome.regret`) and agent
            (`return.planner_0`).
            `"run"`: a row is a run, with the columns `state`, `kind`, `note` (what the problems are, if not the
            benchmark's), `began` (a time, UTC), `success`, `low`, `high` (all None unless the run is finished),
            `least` and `most` (of an unfinished one: success if all that is missing failed, or succeeded), `problems`,
            `episodes`, `planned`, `tokens_in`, `tokens_out`, `seconds`, `fault`. Episodes are not read.

    Returns:
        The frame. Runs that cannot be read are in that of runs, with a `fault`; in that of episodes they are left out.
    """
    if per not in ("episode", "run"):
        raise ValueError(f"per is {per!r}; expected 'episode' or 'run'.")
    try:
        import pandas as pd
    except ImportError as error:
        raise ImportError("frame() needs pandas, which is not installed. Run pip install pandas.") from error
    folders = [folder] if isinstance(folder, Path | str) else folder
    entries = list(map(entry_of, dict.fromkeys(path for each in folders for path in run_folders(Path(each)))))
    if per == "episode":
        return pd.DataFrame(row for entry in entries if entry.state != BROKEN for row in _episodes(entry))
    found = pd.DataFrame(map(row_of_run, entries))
    if len(found):
        found["began"] = pd.to_datetime(found["began"], unit="s", utc=True)
    return found


def settings_of(entry: Entry) -> str:
    """`"size=9, workflow=single"`; empty for the defaults."""
    settings = entry.config.get("settings")
    given = settings if isinstance(settings, Mapping) else {}
    return ", ".join(f"{name}={value}" for name, value in given.items() if (name, value) != (STRICT_FORMAT, False))


def _about(entry: Entry) -> dict[str, Any]:
    """The columns that say what was played, and by whom."""
    return {
        "run": str(entry.path),
        "env": entry.env,
        "settings": settings_of(entry),
        "problem_set": problem_set(entry.config),
        "samples": entry.config.get("samples"),
        "player": entry.player,
        "finished": entry.state == COMPLETE,
    }


def _options(entry: Entry) -> dict[str, str]:
    return {f"player.{name}": value for name, value in options_of(entry.config).items()}


def row_of_run(entry: Entry) -> dict[str, Any]:
    """The columns of a run, see `frame`; `began` in seconds since 1970."""
    report: Mapping[str, Any] = entry.report or {}
    success, episodes = report.get("success") or {}, report.get("episodes") or {}
    partial = dict(success) if "least" in success else {}
    used = (sum_of_tokens(report) if report else None) or (None, None)
    return {
        **_about(entry),
        **{name: getattr(entry, name) for name in ("state", "kind", "note", "began")},
        "success": None if partial else success.get("mean"),
        **{name: None if partial else success.get(name) for name in ("low", "high")},
        **{name: success.get(name) for name in ("least", "most", "problems")},
        "episodes": episodes.get("ended"),
        "planned": episodes.get("planned"),
        "tokens_in": used[0],
        "tokens_out": used[1],
        "seconds": (report.get("timing") or {}).get("seconds"),
        "fault": entry.fault,
        **_options(entry),
    }


def _episodes(entry: Entry) -> Iterator[dict[str, Any]]:
    if not (entry.path / files.EPISODES).exists():
        return
    about, options = _about(entry), _options(entry)
    for row in files.stream(entry.path):
        yield {
            **about,
            "env": row["instance"]["env"],
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
            **options,
        }
