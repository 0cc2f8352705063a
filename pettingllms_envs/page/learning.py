"""What a team learned in a training: its first and last evaluation side by side, for each role, with one sentence.

The evaluations are those of `metrics.jsonl`, which the trainer writes beside its rollouts. Where it has fewer than
two, the rollouts of the first and the last tenth of the steps take their place.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from itertools import product
from pathlib import Path
from statistics import fmean
from typing import Any, NamedTuple

from pettingllms_envs.episodes import files
from pettingllms_envs.episodes.figures import AGENT_FIGURES, mean_by_problem, words
from pettingllms_envs.evaluation.statistics import mean_interval, wilson


FILE = "metrics.jsonl"
RUNTIME = "_runtime"  # every evaluation logs `eval_runtime`, or `eval_NAME_runtime` of several data sets

Table = Mapping[str, Sequence[Any]]
"""Columns of `page.read.INDEX`, by name."""


class Look(NamedTuple):
    """The team at one time.

    Args:
        when: Such as `"step 40"`.
        figures: Means by name, such as `"reward of planner_0"`.
    """

    when: str
    success: tuple[float, float, float] | None
    figures: Mapping[str, float]


def read_log(file: Path) -> list[dict[str, Any]]:
    """The logs of a training; none where the file is not there. An incomplete last line is left out."""
    if not file.is_file():
        return []
    return [json.loads(line) for line in files.lines(file) if line.endswith(b"\n")]


def learned(
    log: Sequence[Mapping[str, Any]], table: Table, agents: Sequence[str], *, is_tree: bool = False
) -> dict[str, Any] | None:
    """The comparison as plain data for the page: `sentence`, `source`, `heads` and `rows`. None for a run that is no
    training, or has one step alone.

    Args:
        is_tree: Whether the rollouts went on from the best of several candidates.
    """
    looks, is_chosen = _evaluations(log, agents), False
    source = "Two evaluations of the team, without choosing between candidates."
    if looks is None:
        looks, is_chosen = _rollouts(table, agents), is_tree
        source = (
            f"Training rollouts{', the path of best candidates' * is_tree}, for there are no two evaluations: set "
            "eval_strategy and eval_on_start to have some."
        )
    if looks is None:
        return None
    first, last = looks
    names = [name for name in first.figures if name in last.figures]
    rows = [
        [name, _short(a := first.figures[name]), _short(b := last.figures[name]), f"{b - a:+.3g}"] for name in names
    ]
    if first.success and last.success:
        points = f"{100 * (last.success[0] - first.success[0]):+.1f} points"
        rows.insert(0, ["success", _rate(first.success), _rate(last.success), points])
    return {
        "sentence": sentence(first, last, is_chosen=is_chosen),
        "source": source,
        "heads": ["", first.when, last.when, "change"],
        "rows": rows,
    }


def sentence(first: Look, last: Look, *, is_chosen: bool = False) -> str:
    """What can be said of two looks; a difference within the intervals is not called learning.

    `is_chosen`: they are of best candidates, whose success a team may gain or lose without learning.
    """
    changes = {name: last.figures[name] - value for name, value in first.figures.items() if name in last.figures}
    most = max(changes, key=lambda name: abs(changes[name]), default=None)
    role = ""
    if most is not None and changes[most]:
        role = f" Most changed is the {most}, from {_short(first.figures[most])} to {_short(last.figures[most])}."
    if first.success is None or last.success is None:
        return f"No success is reported, so whether it learned is for the figures to say.{role}"
    (before, low, high), (after, new_low, new_high) = first.success, last.success
    went = f"success went from {before:.1%} ({first.when}) to {after:.1%} ({last.when})"
    if is_chosen:
        return f"What the team does when nothing is chosen for it was not measured. Of best candidates, {went}.{role}"
    if new_low > high:
        return f"The team learned: {went}.{role}"
    if new_high < low:
        return f"The team got worse: {went}.{role}"
    return f"That the team learned is not shown: {went}, and the 95% intervals overlap.{role}"


def _evaluations(log: Sequence[Mapping[str, Any]], agents: Sequence[str]) -> tuple[Look, Look] | None:
    """The first and the last evaluation on the first data set."""
    prefix, *_ = [
        key.removesuffix("runtime")
        for logs in log
        for key in logs
        if key.startswith("eval_") and key.endswith(RUNTIME)
    ] or [""]
    found = [logs for logs in log if prefix and f"{prefix}runtime" in logs]
    if len({logs["step"] for logs in found}) < 2:
        return None
    first, last = (_look(logs, prefix, agents) for logs in (found[0], found[-1]))
    return first, last


def _look(logs: Mapping[str, Any], prefix: str, agents: Sequence[str]) -> Look:
    rate, number = logs.get(f"{prefix}outcome/success"), logs.get(f"{prefix}rollout/instances")
    success = None if rate is None or not number else (rate, *wilson(rate * number, round(number)))
    figures = {
        f"{words(name)} of {agent}": logs[key]
        for agent in agents
        for name in ("reward", *AGENT_FIGURES)
        if (key := f"{prefix}agent/{agent}/{name}") in logs
    }
    return Look(f"step {logs['step']}", success, figures)


def _rollouts(table: Table, agents: Sequence[str]) -> tuple[Look, Look] | None:
    """The first and the last tenth of a training's steps."""
    steps = sorted({step for step in table["step"] if step is not None})
    if len(steps) < 2:
        return None
    tenth = max(1, len(steps) // 10)
    first, last = (_of_steps(table, part, agents) for part in (steps[:tenth], steps[-tenth:]))
    return first, last


def _of_steps(table: Table, steps: Sequence[int], agents: Sequence[str]) -> Look:
    places = [at for at, step in enumerate(table["step"]) if step in steps and table["error"][at] is None]
    judged = [(table["problem"][at], table["success"][at]) for at in places if table["success"][at] is not None]
    shares = mean_by_problem(judged)
    success = (fmean(shares), *mean_interval(shares)) if shares else None
    figures = {}
    for agent, name in product(agents, AGENT_FIGURES):
        own = [table["figures"][at].get(agent, {}) for at in places]
        if values := [each[name] for each in own if name in each]:
            figures[f"{words(name)} of {agent}"] = fmean(values)
    when = f"step {steps[0]}" if len(steps) == 1 else f"steps {steps[0]} to {steps[-1]}"
    return Look(when, success, figures)


def _rate(success: tuple[float, float, float]) -> str:
    rate, low, high = (100 * value for value in success)
    return f"{rate:.1f}% [{low:.1f}, {high:.1f}]"


def _short(value: float) -> str:
    return f"{value:.3g}"
