"""plan_path_v0: Plan-Path (`pettingllms_envs.tasks.plan_path`) joined to a workflow, by default `draft_plan`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from pettingzoo.utils.conversions import turn_based_aec_to_parallel_wrapper

from pettingllms_envs.aec import OrderedTextEnv, TextEnv
from pettingllms_envs.core import Workflow
from pettingllms_envs.tasks.plan_path import PlanPath
from pettingllms_envs.workflows.draft_plan import DraftPlan
from pettingllms_envs.workflows.single import Single


WORKFLOWS: dict[str, Callable[[PlanPath, int], Workflow[Any]]] = {"draft_plan": DraftPlan, "single": Single}


def raw_env(
    *,
    size: int = 10,
    blocked: float = 0.22,
    min_distance: int = 2,
    max_distance: int | None = None,
    workflow: str = "draft_plan",
    num_turns: int = 4,
    alpha: float = 1.0,
    render_mode: str | None = None,
    max_cycles: int | None = None,
) -> TextEnv:
    """Plan-Path without the wrapper that enforces the order of calls.

    Args:
        size: Rows and columns of the grid, 3 to 100.
        blocked: Share of blocked cells, in [0, 1).
        min_distance: Least number of steps from start to goal, at least 1.
        max_distance: Greatest number of steps, or None.
        workflow: `"draft_plan"` (drafter and planner) or `"single"` (planner alone).
        num_turns: Turn budget of an episode, at least 1; each role acts once in a turn.
        alpha: Weight of the team's rewards, at least 0.
        render_mode: None, `"ansi"` or `"human"`.
        max_cycles: PettingZoo's name for `num_turns`, which it overrides; `pettingzoo.make` passes it.

    Raises:
        ValueError: A value is out of its range.
    """
    if workflow not in WORKFLOWS:
        raise ValueError(f"no workflow {workflow!r} for plan_path; expected one of {', '.join(WORKFLOWS)}.")
    task = PlanPath(size, blocked, min_distance, max_distance)
    turns = num_turns if max_cycles is None else max_cycles
    return TextEnv(WORKFLOWS[workflow](task, turns), alpha=alpha, render_mode=render_mode)


def env(**kwargs: Any) -> OrderedTextEnv:
    """Plan-Path as a PettingZoo AEC environment. For the keyword arguments see `raw_env`."""
    return OrderedTextEnv(raw_env(**kwargs))


def parallel_env(**kwargs: Any) -> turn_based_aec_to_parallel_wrapper[str, dict[str, str], str | None]:
    """The same game through PettingZoo's parallel interface, still one role at a time.

    Each step uses the action of the one agent that is to act and ignores the others; `infos[agent]["active_agent"]`
    names it from the first step on (a drafter or only planner begins). Stop when `agents` is empty: PettingZoo's
    `step` returns four values after that.
    """
    return turn_based_aec_to_parallel_wrapper(env(**kwargs))
