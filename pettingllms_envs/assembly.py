"""A task joined to its workflows: the three functions that an environment's module offers.

An environment's module, `<task>_v<N>.py`, is two lines:

    from pettingllms_envs.assembly import assemble
    raw_env, env, parallel_env = assemble(MyTask, __name__)

or, for a task that is played in workflows of its own, the default one first:

    raw_env, env, parallel_env = assemble(MyTask, __name__, (MyWorkflow, Single))
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any, NamedTuple

from pettingzoo.utils.conversions import turn_based_aec_to_parallel_wrapper

from pettingllms_envs.aec import TextEnv
from pettingllms_envs.core import Task, Workflow, check_choice
from pettingllms_envs.workflows.draft_plan import DraftPlan
from pettingllms_envs.workflows.single import Single
from pettingllms_envs.workflows.tool_plan import ToolPlan


GAMES = (DraftPlan, Single, ToolPlan)
"""The workflows of a task whose move can be proposed and played."""

_GIVEN = frozenset({"task", "num_turns"})


class Assembled(NamedTuple):
    """The functions that make an environment."""

    raw_env: Callable[..., TextEnv]
    env: Callable[..., TextEnv]
    parallel_env: Callable[..., Any]


def assemble(task: Callable[..., Task[Any, Any]], module: str, workflows: tuple[type[Any], ...] = GAMES) -> Assembled:
    """The functions `raw_env`, `env` and `parallel_env` of a task's environment; all take the same arguments.

    Args:
        task: The task's class; its fields are the environment's settings.
        module: `__name__` of the module that offers the functions, where a pickled one is found again.
        workflows: Classes of workflows over it, the default one first: frozen dataclasses with a class variable
            `name` and the fields `task` and `num_turns`; their other fields are settings, too.
    """
    by_name = {workflow.name: workflow for workflow in workflows}

    def raw_env(
        *,
        workflow: str = workflows[0].name,
        num_turns: int = 4,
        alpha: float = 1.0,
        render_mode: str | None = None,
        max_cycles: int | None = None,
        **settings: Any,
    ) -> TextEnv:
        """The task as a PettingZoo AEC environment.

        Args:
            workflow: Who plays, and in which order: the name of one of the environment's workflows.
            num_turns: Turn budget of an episode, at least 1; each role acts once in a turn.
            alpha: Weight of the team's rewards, at least 0.
            render_mode: None, `"ansi"`, `"human"` or `"rgb_array"`.
            max_cycles: PettingZoo's name for `num_turns`, which it overrides; `pettingzoo.make` passes it.
            **settings: The task's own and the workflow's; see their classes. `executor` runs the programs of a tool
                role; left out, it is `pettingllms_envs.sandbox.ToolExecutor()`, with the workflow's `imports`, if any.

        Raises:
            ValueError: A value is out of its range, or a setting is another workflow's.
            TypeError: Neither the task nor the workflow has such a setting.
        """
        turns = num_turns if max_cycles is None else max_cycles
        written = {name: value for name, value in settings.items() if isinstance(value, str | int | float | None)}
        made = TextEnv(_join(by_name, workflow, task, turns, settings), alpha=alpha, render_mode=render_mode)
        made.metadata["settings"] = {"workflow": workflow, "num_turns": turns, "alpha": alpha, **written}
        made.metadata["workflows"] = tuple(by_name)
        return made

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


def _join(
    workflows: dict[str, type[Any]], name: str, task: Callable[..., Task[Any, Any]], num_turns: int, settings: Any
) -> Workflow[Any]:
    check_choice("workflow", name, tuple(workflows))
    own = {key: settings.pop(key) for key in _settings(workflows[name]) & settings.keys()}
    for other, kind in workflows.items():
        if stray := sorted(_settings(kind) & settings.keys()):
            raise ValueError(
                f"the workflow {name!r} got {stray[0]}={settings[stray[0]]!r}, which is a setting of {other!r}."
                f" Leave it out, or take workflow={other!r}."
            )
    _refuse_unknown(settings, task, own={*_settings(workflows[name]), "workflow", "num_turns", "alpha", "render_mode"})
    if "executor" in _settings(workflows[name]) and own.get("executor") is None:
        from pettingllms_envs.sandbox import ToolExecutor  # only those pay for it who need it

        own["executor"] = ToolExecutor(imports=tuple(own.get("imports") or ()))
    joined: Workflow[Any] = workflows[name](task=task(**settings), num_turns=num_turns, **own)
    return joined


def _refuse_unknown(settings: dict[str, Any], task: Callable[..., Task[Any, Any]], own: set[str]) -> None:
    """Raise TypeError if there is a setting that the task, where it is a dataclass, does not have."""
    if not (isinstance(task, type) and dataclasses.is_dataclass(task)):
        return
    fields = _settings(task)
    for name in settings.keys() - fields:
        try:
            check_choice(f"the name of a setting of {task.__name__}", name, sorted(fields | own))
        except ValueError as error:
            raise TypeError(str(error)) from None


def _settings(workflow: type[Any]) -> set[str]:
    return {field.name for field in dataclasses.fields(workflow) if field.init} - _GIVEN
