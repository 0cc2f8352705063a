"""Reads what an environment exposes: states, reward parts, problems, answers; of a third-party one, what it has."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any


MOST_PROBLEMS, MOST_REPEATS = 100_000, 200
"""Most problems that are looked through of a data set that does not say how many it has."""


def workflow_of(env: Any) -> Any:
    """The environment's workflow, without the tools that its roles may call; None of a third-party environment."""
    workflow = getattr(env.unwrapped, "workflow", None)
    has_tools = "tools" in getattr(env, "metadata", {})
    return getattr(workflow, "workflow", workflow) if has_tools else workflow


def task_of(env: Any) -> Any:
    """The task of an environment that has one in `unwrapped.workflow`, or None."""
    return getattr(workflow_of(env), "task", None)


def roles_of(env: Any) -> dict[str, str]:
    """The role of each agent, `{"planner_0": "planner"}`; where `metadata["roles"]` has none, it is its own role."""
    known = env.metadata.get("roles", {})
    return {agent: known.get(agent, agent) for agent in env.possible_agents}


def state_hash(env: Any) -> str | None:
    """The environment's own hash of its state, or None."""
    found = getattr(env.unwrapped, "state_hash", None)
    return None if found is None else str(found())


def state_fields(metadata: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of a row that say what its states are: their form, if it is not 1, and whether they are histories."""
    form = metadata.get("state_form", 1)
    is_history = metadata.get("state") == "history"
    return {**({} if form == 1 else {"state_form": form}), **({"states": "history"} if is_history else {})}


def has_states_of(row: Mapping[str, Any], metadata: Mapping[str, Any]) -> bool:
    """Whether the states of a record may be compared with those of an environment. Form 1 did not tell histories."""
    now = state_fields(metadata)
    names = ("state_form", "states") if "state_form" in now else ("state_form",)
    return all(row.get(name) == now.get(name) for name in names)


Infos = Mapping[str, Mapping[str, Any]]
"""An environment's infos by agent."""


def infos_of(env: Any) -> Infos:
    """The environment's infos, by agent; those that are no mappings are left out."""
    return {agent: info for agent, info in env.infos.items() if isinstance(info, Mapping)}


def parts_of(env: Any, infos: Infos) -> dict[str, dict[str, float]] | None:
    """The named parts of the last step's reward by scope: `"parts"` of an info, or those of the snapshots."""
    parts = _stated(infos, "parts", Mapping)
    if parts is None or not all(isinstance(named, Mapping) for named in parts.values()):
        snapshot = getattr(env.unwrapped, "snapshot", None)
        parts = None if snapshot is None else getattr(snapshot(), "parts", None)
    if parts is None:
        return None
    return {scope: {name: float(value) for name, value in named.items()} for scope, named in parts.items()}


def reading_of(env: Any) -> str | None:
    """How the last reply was read, see `TextEnv.reading`; None where the environment does not say."""
    reading = getattr(env.unwrapped, "reading", None)
    return reading if isinstance(reading, str) else None


def problem_of(env: Any) -> str | None:
    """The id of the data set's problem: `"problem"` of an info, or `state.problem.id` of the task."""
    found = _stated(infos_of(env), "problem", str | int)
    if found is None:
        found = getattr(getattr(_task_state(env), "problem", None), "id", None)
    return None if found is None else str(found)


def problem_seeds(env: Any, options: Mapping[str, Any], *, most: int = MOST_PROBLEMS) -> Sequence[int] | None:
    """The first seed of each problem of a data set's environment; None for others, and if `most` seeds show not all.

    All are found, if `metadata["num_instances"]` does not say how many, once no new one comes for a while. One comes
    again after all of them, or sooner: where it stands in for those that cannot be played, or where seeds draw.
    """
    num = env.metadata.get("num_instances")
    num = num.get(options.get("split")) if isinstance(num, Mapping) else num
    if num is not None:
        return range(num)
    seeds: dict[str, int] = {}
    newest = 0
    for seed in range(most):
        env.reset(seed=seed, options=dict(options) or None)
        problem = problem_of(env)
        if problem is None:
            return None
        if seeds.setdefault(problem, seed) == seed:
            newest = seed
        if seed - newest >= MOST_REPEATS:
            return list(seeds.values())
    return None


def content_of(env: Any) -> str | None:
    """The digest of the content of the data set's problem, or the problem's id if it has none."""
    found: str | None = getattr(getattr(_task_state(env), "problem", None), "digest", None)
    return problem_of(env) if found is None else found


def success_of(outcome: Mapping[str, Any]) -> bool | None:
    """Whether an outcome is a success; None if it does not say. `ValueError` for what is neither, such as a share."""
    found = plain(outcome.get("success"))
    if found is not None and found not in (0, 1):
        raise ValueError(
            f"the environment's outcome has the success {found!r}; expected true, false or none. Have it say whether "
            "the episode succeeded, such as score >= 1, and give a score under another name."
        )
    return None if found is None else bool(found)


def answer_of(env: Any, infos: Infos, outcome: Mapping[str, Any] | None) -> str | None:
    """The answer so far, to be counted for a majority: the outcome's, `"answer"` of an info, or the task state's."""
    found = (outcome or {}).get("answer")
    if found is None:
        found = _stated(infos, "answer", str | int | float)
    if found is None and "answer" not in (outcome or {}):
        found = getattr(_task_state(env), "answer", None)
    return None if found is None else str(found)


def _stated(infos: Infos, name: str, kind: Any) -> Any:
    """What the first info that has such a value says; None if there is none."""
    return next((info[name] for info in infos.values() if isinstance(info.get(name), kind)), None)


def _task_state(env: Any) -> Any:
    snapshot = getattr(env.unwrapped, "snapshot", None)
    return None if snapshot is None else getattr(getattr(snapshot(), "play", None), "task", None)


def plain(value: Any) -> bool | int | float | str | None:
    """A value of an outcome as plain data: NaN becomes None, other objects become text."""
    if value is None or isinstance(value, bool | str):
        return value
    if hasattr(value, "item"):
        value = value.item()
    if isinstance(value, int):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    return str(value)
