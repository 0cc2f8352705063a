"""What a report says of the problems behind its numbers: which data, and that rows of our own are no benchmark.

A label is `{"name": "own:aime", "note": "8 problems written for this package, not AIME"}`, under the key `data` of
`run.json` and `report.json`; the note is empty where the data are what their name says. There is none (null) where no
data set is played.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pettingllms_envs


Label = Mapping[str, str]


def of_env(env: Any, num: int | None = None) -> dict[str, str] | None:
    """The label of an environment's problems.

    Args:
        env: The environment; only one whose `metadata` has `data` has a label.
        num: How many of its problems are played, if that is known.
    """
    data = env.metadata.get("data")
    if data is None:
        return None
    return {"name": data["name"], "note": _counted(data["note"], num)}


def labelled(header: Mapping[str, Any]) -> dict[str, Any]:
    """A `run.json` with its label, which is found by making the environment where an earlier version wrote none."""
    if "data" in header:
        return dict(header)
    config = header["config"]
    try:
        env = pettingllms_envs.make(config.get("env") or "", **(config.get("settings") or {}))
    except (ValueError, TypeError, ImportError):  # it is not installed here, or has other settings now
        return {**header, "data": None}
    return {**header, "data": of_env(env, (config.get("instances") or {}).get("num"))}


def note_of(header: Mapping[str, Any]) -> str:
    """What has to be said of a run's problems: `"8 problems written for this package, not AIME"`, or nothing."""
    return str((header.get("data") or {}).get("note", ""))


def first_line(env: Any, num: int) -> str:
    """What is said of the data before anything is played, with what to give for the benchmark itself; or nothing."""
    label = of_env(env, num)
    if label is None:
        return ""
    remedy = env.metadata["data"]["remedy"]
    return "".join(
        [f"data: {label['name']}", f", {label['note']}" * bool(label["note"]), f"; {remedy}" * bool(remedy)]
    )


def run_name(env: str, note: str) -> str:
    """What a run of an environment is called after: `"aime-own-v0"` for `"aime_v0"` on rows of this package."""
    name, _, version = env.rpartition("_v")
    return f"{name}-own-v{version}" if note and name else env


def _counted(note: str, num: int | None) -> str:
    if not note or num is None:
        return note
    return f"{num} {note}" if num != 1 else f"1 {note.replace('problems', 'problem', 1)}"
