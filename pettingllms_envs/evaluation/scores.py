"""What runs are compared by: success, and where an environment reports none, what a team earns. And pooled seeds."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import fmean
from typing import Any

import pettingllms_envs
from pettingllms_envs.episodes.files import JsonObject, check_starts_nothing, problem


SUCCESS, RETURN = "success", "return"


@dataclass(frozen=True, slots=True)
class RunRows:
    """A run to compare.

    Args:
        folder: Where it is, for commands in errors; empty for `name`.
    """

    name: str
    header: Mapping[str, Any]
    rows: Sequence[JsonObject]
    folder: str = ""


def returns_by_problem(rows: Iterable[JsonObject]) -> dict[str, float]:
    """The mean return of each problem that has a result, over its samples and the agents of the team."""
    found: dict[str, list[float]] = defaultdict(list)
    for row in rows:
        if row["error"] is None and row["returns"]:
            found[problem(row)].append(fmean(row["returns"].values()))
    return {key: fmean(values) for key, values in found.items()}


def check_cooperative(config: Mapping[str, Any], folders: Sequence[str]) -> None:
    """Raise ValueError, with the command to use, unless the agents of a run without success have a common goal."""
    env, settings = str(config.get("env")), config.get("settings") or {}
    try:
        check_starts_nothing(settings, env)
        kind = pettingllms_envs.make(env, **settings).metadata.get("competitive")
    except (ValueError, TypeError, ImportError) as error:
        raise ValueError(
            f"{env} reports no success, and whether its agents compete is not known ({' '.join(str(error).split())}); "
            "expected an environment that can be made here. Install its package."
        ) from error
    if kind is not None:
        raise ValueError(
            f"the agents of {env} compete, so the returns of a run say nothing of who is better; expected a team. "
            f"Play the runs against each other: pettingllms crossplay {' '.join(folders)}"
        )


def pool_seeds(runs: Sequence[RunRows]) -> list[RunRows]:
    """The runs, those that differ in their seed alone joined into one of the first's name, with the samples of all.

    The problems are the same, as a run's seed decides the replies alone, so these are more replies to the same
    problems: intervals and tests resample problems, never samples.
    """
    alike: dict[str, list[RunRows]] = {}
    for run in runs:
        rest = {key: value for key, value in run.header["config"].items() if key != "seed"}
        alike.setdefault(json.dumps(rest, sort_keys=True), []).append(run)
    return [own[0] if len(own) == 1 else _joined(own) for own in alike.values()]


def is_pooled(run: RunRows) -> bool:
    """Whether it was joined by `pool_seeds`."""
    return isinstance(run.header["config"].get("seed"), list)


def _joined(runs: Sequence[RunRows]) -> RunRows:
    first, config = runs[0], runs[0].header["config"]
    rows: list[JsonObject] = []
    for number, run in enumerate(runs):
        rows += [{**row, "sample": row["sample"] + number * config.get("samples", 1)} for row in run.rows]
    seeds = [run.header["config"].get("seed") for run in runs]
    joined = {**config, "seed": seeds, "samples": len(runs) * config.get("samples", 1)}
    return replace(first, header={**first.header, "config": joined}, rows=rows)
