"""A task joined to the workflows: the three functions that an environment's module offers.

An environment's module, `<task>_v<N>.py`, is two lines:

    from pettingllms_envs.assembly import assemble
    raw_env, env, parallel_env = assemble(MyTask, __name__)
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from pettingzoo.utils.conversions import turn_based_aec_to_parallel_wrapper

from pettingllms_envs.aec import TextEnv
from pettingllms_envs.core import PythonExecutor, Task, Workflow, check_choice
from pettingllms_envs.workflows.draft_plan import DraftPlan
from pettingllms_envs.workflows.single import Single
from pettingllms_envs.workflows.tool_plan import ToolPlan


WORKFLOWS = ("draft_plan", "single", "tool_plan")


class Assembled(NamedTuple):
    """The functions that make an environment."""

    raw_env: Callable[..., TextEnv]
    env: Callable[..., TextEnv]
    parallel_env: Callable[..., Any]


def assemble(task: Callable[..., Task[Any, Any]], module: str) -> Assembled:
    """The functions `raw_env`, `env` and `parallel_env` of a task's environment; all take the same arguments.

    Args:
        task: The task's class; its fields are the environment's settings.
        module: `__name__` of the module that offers the functions, where a pickled one is found again.
    """

    def raw_env(
        *,
        workflow: str = "draft_plan",
        num_turns: int = 4,
        alpha: float = 1.0,
        executor: PythonExecutor | None = None,
        render_mode: str | None = None,
        max_cycles: int | None = None,
        **settings: Any,
    ) -> TextEnv:
        """The task as a PettingZoo AEC environment.

        Args:
            workflow: `"draft_plan"` (drafter and planner), `"tool_plan"` (tool and planner) or `"single"` (planner).
            num_turns: Turn budget of an episode, at least 1; each role acts once in a turn.
            alpha: Weight of the team's rewards, at least 0.
            executor: Runs the tool's programs; for `"tool_plan"` only.
            render_mode: None, `"ansi"`, `"human"` or `"rgb_array"`.
            max_cycles: PettingZoo's name for `num_turns`, which it overrides; `pettingzoo.make` passes it.
            **settings: The task's own; see its class.

        Raises:
            ValueError: A value is out of its range.
            TypeError: The task has no such setting.
        """
        played = _join(workflow, task(**settings), num_turns if max_cycles is None else max_cycles, executor)
        return TextEnv(played, alpha=alpha, render_mode=render_mode)

    def env(**kwargs: Any) -> TextEnv:
        """The same as `raw_env`: a `TextEnv` enforces the order of calls itself and needs no wrapper."""
        return raw_env(**kwargs)

    def parallel_env(**kwargs: Any) -> turn_based_aec_to_parallel_wrapper[str, dict[str, str], str | None]:
        """The same game through PettingZoo's parallel interface, still one role at a time.

        Each step uses the action of the one agent that is to act and ignores the others; `infos[agent]
        ["active_agent"]` names it from the first step on. Stop when `agents` is empty: PettingZoo's `step` returns
        four values after that. Arguments: see `raw_env`.
        """
        return turn_based_aec_to_parallel_wrapper(raw_env(**kwargs))

    for function in (raw_env, env, parallel_env):
        function.__module__, function.__qualname__ = module, function.__name__
    return Assembled(raw_env, env, parallel_env)


def _join(workflow: str, task: Task[Any, Any], num_turns: int, executor: PythonExecutor | None) -> Workflow[Any]:
    check_choice("workflow", workflow, WORKFLOWS)
    if workflow == "tool_plan":
        return ToolPlan(task, num_turns, executor)
    if executor is not None:
        raise ValueError(f"the workflow {workflow!r} got an executor, which only 'tool_plan' uses. Leave it out.")
    return DraftPlan(task, num_turns) if workflow == "draft_plan" else Single(task, num_turns)
