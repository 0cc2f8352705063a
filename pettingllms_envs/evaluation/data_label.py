"""Labels of a run's data, so that results on this package's own rows are not taken for benchmark results.

A label is `{"name": "own:aime", "note": "8 problems written for this package, not AIME"}`, under the key `data` of
`run.json` and `report.json`; the note is empty if the data are what their name says. It is null without a data set.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pettingllms_envs
from pettingllms_envs.episodes.files import check_starts_nothing


Label = Mapping[str, str]


def of_env(env: Any, num: int | None = None) -> dict[str, str] | None:
    """The label of an environment's problems, of which `num` are played; None if its `metadata` has no `data`."""
    data = env.metadata.get("data")
    if data is None:
        return None
    return {"name": data["name"], "note": _counted(data["note"], num)}


def labelled(header: Mapping[str, Any]) -> dict[str, Any]:
    """A `run.json` with its label; if an earlier version wrote none, the environment is made to get it."""
    if "data" in header:
        return dict(header)
    config = header["config"]
    settings = config.get("settings") or {}
    try:
        check_starts_nothing(settings, config.get("env") or "")
        env = pettingllms_envs.make(config.get("env") or "", **settings)
    except (ValueError, TypeError, ImportError):  # it is not installed here, or has other settings now
        return {**header, "data": None}
    return {**header, "data": of_env(env, (config.get("instances") or {}).get("num"))}


def note_of(header: Mapping[str, Any]) -> str:
    """The note about a run's problems, `"8 problems written for this package, not AIME"`, or an empty string."""
    return str((header.get("data") or {}).get("note", ""))


def problem_set(config: Mapping[str, Any]) -> str:
    """The problems of a run: `"200 of the published test set"`, `"seeds 0-199"`, `"30 of the data set"`; or empty."""
    found = config.get("instances")
    if not isinstance(found, Mapping) or "num" not in found:
        return ""
    num, source = found["num"], found.get("source")
    if source == "seeds":
        return "seed 0" if num == 1 else f"seeds 0-{num - 1}"
    return f"{num} of the {source}{' test set' if source == 'published' else ''}" if source else str(num)


def first_line(env: Any, num: int) -> str:
    """A line about the data to show before a run, with the option that selects the benchmark itself; may be empty."""
    label = of_env(env, num)
    if label is None:
        return ""
    remedy = env.metadata["data"]["remedy"]
    return "".join(
        [f"data: {label['name']}", f", {label['note']}" * bool(label["note"]), f"; {remedy}" * bool(remedy)]
    )


def run_name(env: str, note: str) -> str:
    """Name of an environment in a run's name: `"aime-own-v0"` for `"aime_v0"` on rows of this package."""
    name, _, version = env.rpartition("_v")
    return f"{name}-own-v{version}" if note and name else env


def _counted(note: str, num: int | None) -> str:
    if not note or num is None:
        return note
    return f"{num} {note}" if num != 1 else f"1 {note.replace('problems', 'problem', 1)}"
