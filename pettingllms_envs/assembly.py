"""A task joined to its workflows: the three functions that an environment's module offers.

An environment's module, `<task>_v<N>.py`, is two lines:

    from pettingllms_envs.assembly import assemble
    raw_env, env, parallel_env = assemble(MyTask, __name__)

or, for a task that is played in workflows of its own, the default one first:

    raw_env, env, parallel_env = assemble(MyTask, __name__, (MyWorkflow, Single))

The environment is called after its module, and not after its task: `council_v0.py` with `assemble(PlanPath, __name__,
(Council,))` makes `council_v0`, which is recorded, benchmarked and replayed under that name.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, TypeGuard

from pettingzoo.utils.conversions import turn_based_aec_to_parallel_wrapper

from pettingllms_envs.aec import TextEnv
from pettingllms_envs.core import TOOL_CALLS, Task, Tool, Workflow, check_choice
from pettingllms_envs.doors import VERSIONED
from pettingllms_envs.features import HasLeastAlpha, HasSimulator
from pettingllms_envs.replies.reading import with_reading
from pettingllms_envs.settings import SIMULATOR_BUILD, check_survives, in_files, restored
from pettingllms_envs.teams import Later
from pettingllms_envs.views import VIEWS


GAMES = (
    Later("draft_plan", "pettingllms_envs.teams.proposal", "DraftPlan"),
    Later("single", "pettingllms_envs.teams.single", "Single"),
    Later("tool_plan", "pettingllms_envs.teams.tool_plan", "ToolPlan"),
)
"""The workflows of a task whose move can be proposed and played."""

DESCRIBER_SOLVER = Later("describer_solver", "pettingllms_envs.teams.describer_solver", "DescriberSolver")
DESIGNED = Later("designed", "pettingllms_envs.teams.designed", "Designed")

DEFAULT_NUM_TURNS = 4
"""Of a workflow whose field `num_turns` has no default of its own."""

RoleTools = Mapping[str, Sequence[str | Mapping[str, Any] | Tool]] | Sequence[str | Mapping[str, Any] | Tool]

_COMMON_SETTINGS = (
    *("workflow", "num_turns", "alpha", "view", "render_mode", "strict_format"),
    *("role_tools", "tool_calls", "max_tool_calls"),
)
"""Settings of every environment, for suggestions."""

_GIVEN = frozenset({"task", "num_turns"})


class Assembled(NamedTuple):
    """The functions that make an environment."""

    raw_env: Callable[..., TextEnv]
    env: Callable[..., TextEnv]
    parallel_env: Callable[..., Any]


def assemble(
    task: Callable[..., Task[Any, Any]],
    module: str,
    workflows: Sequence[type[Any] | Later] = GAMES,
    *,
    name: str | None = None,
    role_tools: Mapping[str, Sequence[str | Mapping[str, Any] | Tool]] | None = None,
) -> Assembled:
    """The functions `raw_env`, `env` and `parallel_env` of a task's environment; all take the same arguments.

    Args:
        task: The task's class; its fields are the environment's settings.
        module: `__name__` of the module that offers the functions, where a pickled one is found again.
        workflows: Classes of workflows over it, the default one first: frozen dataclasses with a class variable
            `name` and the fields `task` and `num_turns`; their other fields are settings, too. A field left out of
            the `repr`, such as `executor`, is a resource and no setting: no file holds it. Or a
            `pettingllms_envs.teams.Later`, which says where the class is.
        name: The environment's name with its version, such as `"council_v0"`; None takes the last part of `module`
            if it has that form, else the task's name and version.
        role_tools: Tools of the environment's own, by role, as `raw_env` takes them; it has them unless others are
            given. A workflow without such a role is played without them.
    """
    own_tools = role_tools or {}
    by_name = {workflow.name: workflow for workflow in workflows}
    of_all: dict[str, Any] = {"workflow": workflows[0].name, "num_turns": DEFAULT_NUM_TURNS, "alpha": 1.0}
    of_all |= {"strict_format": False, **({"view": VIEWS[0]} if hasattr(task, "tiles") else {})}
    last = module.rpartition(".")[2]
    own_name = last if name is None and VERSIONED.fullmatch(last) else name

    def raw_env(
        *,
        workflow: str = workflows[0].name,
        num_turns: int | None = None,
        alpha: float = 1.0,
        view: str = VIEWS[0],
        render_mode: str | None = None,
        max_cycles: int | None = None,
        strict_format: bool = False,
        role_tools: RoleTools | None = None,
        tool_calls: str = "text",
        max_tool_calls: int = 4,
        **settings: Any,
    ) -> TextEnv:
        """The task as a PettingZoo AEC environment.

        Args:
            workflow: The roles and the order in which they act: the name of one of the environment's workflows.
            num_turns: Turn budget of an episode, at least 1; None is the workflow's own default.
            alpha: Weight of the team's rewards, at least 0.
            view: What agents are shown of a task's board: `"text"`, `"image"` or `"both"`.
            render_mode: None, `"ansi"`, `"human"` or `"rgb_array"`.
            max_cycles: PettingZoo's name for `num_turns`, which it overrides; `pettingzoo.make` passes it. A cycle is
                a turn, in which every agent acts once; a workflow without such turns has no `max_cycles`.
            strict_format: Whether a reply counts only in the form that is asked for. Else, where it cannot be read
                strictly, it is read once more without marks, fences, thoughts and end tokens; see
                `pettingllms_envs.replies.reading`.
            role_tools: Tools that roles may call before they reply, by role: names of installed tools, mappings with
                their settings, or tools, see `pettingllms_envs.tools.make_tool`. A list is for every role. None
                stands for the environment's own tools, `[]` for no tools.
            tool_calls: How they are called: `"text"`, by a fenced block, or `"native"`, by the chat template.
            max_tool_calls: Most replies with calls before each reply to the workflow, at least 1.
            **settings: The task's own and the workflow's; see their classes. Where a field is a tuple, a list will
                do, as JSON and YAML have it. `executor` runs the programs of a tool role; left out, they
                run as in `pettingllms_envs.sandbox.ToolExecutor()`, with the workflow's `imports`, if any.

        Raises:
            ValueError: A value is out of its range, JSON cannot hold it, a setting is another workflow's, there is
                no such tool, or `max_cycles` was given to a workflow that is not cyclic.
            TypeError: Neither the task nor the workflow has such a setting.
        """
        check_choice("workflow", workflow, tuple(by_name))
        kinds = (task, _class_of(by_name[workflow]))
        settings = restored(settings, *kinds)
        written = {key: value for key, value in settings.items() if all(in_files(kind, key) for kind in kinds)}
        turns = num_turns if max_cycles is None else max_cycles
        joined = _join(by_name, workflow, task, turns, settings, strict=strict_format)
        forms = joined.forms if hasattr(joined, "forms") else None
        _check_alpha(joined, alpha)
        check_survives(written, *kinds)
        own: dict[str, Any] = {"workflow": workflow, "num_turns": joined.num_turns, "strict_format": strict_format}
        check_choice("tool_calls", tool_calls, TOOL_CALLS)
        if own_tools and role_tools is not None and not role_tools:
            own["role_tools"] = {}  # without it, an environment made of the settings would have its own tools
        if role_tools is None:
            role_tools = {role.name: own_tools[role.name] for role in joined.roles if role.name in own_tools}
        if role_tools:
            joined, named = _with_tools(joined, role_tools, tool_calls, max_tool_calls)
            own |= {
                "tool_calls": tool_calls,
                "max_tool_calls": max_tool_calls,
                **({"role_tools": named} if named else {}),
            }
        if max_cycles is not None and not joined.cyclic:
            raise ValueError(
                f"max_cycles is {max_cycles!r}, but in the workflow {workflow!r} agents do not act once in every "
                "turn, so there are no cycles to count. Give num_turns."
            )
        made = TextEnv(joined, name=own_name, alpha=alpha, render_mode=render_mode, view=view)
        own |= {"alpha": made.alpha, **({} if view == VIEWS[0] else {"view": view})}
        if role_tools:
            made.metadata["tools"] = joined.described()  # type: ignore[attr-defined]
        made.metadata["settings"] = {**own, **written, **_build_of(joined.task)}
        made.metadata["defaults"] = {**of_all, **_defaults(task), **_defaults(kinds[1])}
        made.metadata["workflows"] = tuple(by_name)
        if forms is not None:
            from pettingllms_envs.teams.forms import cooperation_of  # only those pay for it who have some

            given = {key: value for key, value in made.metadata["settings"].items() if key != "num_turns"}
            made.metadata["cooperation"] = cooperation_of(
                forms, given, lambda name: _settings(_class_of(by_name[name]))
            )
        return made

    def env(**kwargs: Any) -> TextEnv:
        """The same as `raw_env`: a `TextEnv` enforces the order of calls itself and needs no wrapper."""
        return raw_env(**kwargs)

    def parallel_env(**kwargs: Any) -> turn_based_aec_to_parallel_wrapper[str, dict[str, Any], str | None]:
        """The same game through PettingZoo's parallel interface, for workflows of one agent.

        In a parallel environment all agents act in every step. Those of a team see what the others just did, so they
        cannot. Stop when `agents` is empty: PettingZoo's `step` returns four values after that. Arguments: see
        `raw_env`.

        Raises:
            ValueError: The workflow has several agents.
        """
        made = raw_env(**kwargs)
        if len(made.possible_agents) > 1:
            alone = [each.name for each in workflows if _is_alone(_class_of(each))]
            remedy = f", or take workflow={alone[0]!r}" if alone else ""
            raise ValueError(
                f"{made.metadata['name']} has no parallel form with the agents {', '.join(made.possible_agents)}: "
                f"they act one after another, and PettingZoo's parallel agents at once. Use env(){remedy}."
            )
        return turn_based_aec_to_parallel_wrapper(made)

    for function in (raw_env, env, parallel_env):
        function.__module__, function.__qualname__ = module, function.__name__
    return Assembled(raw_env, env, parallel_env)


def _with_tools(
    workflow: Workflow[Any], role_tools: RoleTools, style: str, max_calls: int
) -> tuple[Workflow[Any], Mapping[str, Any] | None]:
    """The workflow with tools, and the tools as a setting; None if they are no data."""
    from pettingllms_envs.teams.tool_calls import ToolCalls  # only those pay for it who need it
    from pettingllms_envs.tools import make_tool

    lists = role_tools.values() if isinstance(role_tools, Mapping) else (role_tools,)
    if any(isinstance(each, str | Mapping) for each in lists):
        raise ValueError(f"role_tools is {role_tools!r}; expected a list of tools, or one for each role: ['python'].")
    if not isinstance(role_tools, Mapping):
        role_tools = {role.name: role_tools for role in workflow.roles}
    tools = {role: tuple(map(make_tool, each)) for role, each in role_tools.items()}
    is_data = all(isinstance(tool, str | Mapping) for each in role_tools.values() for tool in each)
    named = {role: list(each) for role, each in role_tools.items()} if is_data else None
    return ToolCalls(workflow, tools, style=style, max_calls=max_calls), named


def _join(
    workflows: Mapping[str, type[Any] | Later],
    name: str,
    task: Callable[..., Task[Any, Any]],
    num_turns: int | None,
    settings: dict[str, Any],
    *,
    strict: bool,
) -> Workflow[Any]:
    """The workflow of that name over the task; takes the workflow's own settings out of `settings`."""
    kind = _class_of(workflows[name])
    _check_types(settings, task, kind)
    own = {key: settings.pop(key) for key in _settings(kind) & settings.keys()}
    is_known = _is_class(task) and settings.keys() <= _settings(task)
    for other in () if is_known else workflows:
        if stray := sorted(_settings(_class_of(workflows[other])) & settings.keys()):
            raise ValueError(
                f"the workflow {name!r} got {stray[0]}={settings[stray[0]]!r}, which is a setting of {other!r}."
                f" Leave it out, or take workflow={other!r}."
            )
    _refuse_unknown(settings, task, own={*_settings(kind), *_COMMON_SETTINGS})
    if "executor" in _settings(kind) and own.get("executor") is None:
        from pettingllms_envs.teams.tools import DefaultExecutor  # only those pay for it who need it

        own["executor"] = DefaultExecutor(tuple(own.get("imports") or ()))
    (field,) = (each for each in dataclasses.fields(kind) if each.name == "num_turns")
    if num_turns is not None or field.default is dataclasses.MISSING:
        own["num_turns"] = DEFAULT_NUM_TURNS if num_turns is None else num_turns
    joined: Workflow[Any] = kind(task=with_reading(task(**settings), strict=strict), **own)
    return joined


def _build_of(task: Task[Any, Any]) -> dict[str, Any]:
    """The version of the task's simulator, a setting that records need although nobody gives it."""
    build = task.simulator_build if isinstance(task, HasSimulator) else ""
    return {SIMULATOR_BUILD: build} if build else {}


def _class_of(workflow: type[Any] | Later) -> type[Any]:
    return workflow.load() if isinstance(workflow, Later) else workflow


def _check_types(settings: Mapping[str, Any], *kinds: Any) -> None:
    """Raise ValueError for a flag that is neither True nor False, and for a number that is one of them, or a text."""
    fields = [field for kind in kinds if dataclasses.is_dataclass(kind) for field in dataclasses.fields(kind)]
    for name, annotation in ((field.name, field.type) for field in fields if field.name in settings):
        value, kind = settings[name], getattr(annotation, "__name__", annotation)
        is_flag = isinstance(value, bool)
        if kind == "bool" and not is_flag:
            raise ValueError(f"{name} is {value!r}; expected one of True, False.")
        if (kind in ("int", "float") and is_flag) or (kind == "float" and not isinstance(value, int | float)):
            raise ValueError(f"{name} is {value!r}; expected a number. Choose another.")


def _check_alpha(workflow: Workflow[Any], alpha: float) -> None:
    """Raise ValueError unless a success is worth more than what the workflow's costs can add up to."""
    is_number = isinstance(alpha, int | float)  # else `TextEnv` raises
    if is_number and isinstance(workflow, HasLeastAlpha) and alpha <= workflow.least_alpha:
        raise ValueError(
            f"alpha is {alpha!r}; expected more than {workflow.least_alpha:g}, the costs of {workflow.name!r}, or "
            "failing cheaply could pay more than succeeding. Raise it, or lower the costs."
        )


def _is_alone(workflow: type[Any]) -> bool:
    """Whether a workflow has a single agent, whatever its settings. Roles that depend on them are a property."""
    return isinstance(workflow.roles, tuple) and sum(role.count for role in workflow.roles) == 1


def _is_class(task: Any) -> TypeGuard[type[Any]]:
    """Whether the task's settings are known: they are the fields of a dataclass."""
    return isinstance(task, type) and dataclasses.is_dataclass(task)


def _refuse_unknown(settings: dict[str, Any], task: Callable[..., Task[Any, Any]], own: set[str]) -> None:
    """Raise TypeError if there is a setting that the task, where it is a dataclass, does not have."""
    if not _is_class(task):
        return
    fields = _settings(task)
    for name in settings.keys() - fields:
        try:
            check_choice(f"the name of a setting of {task.__name__}", name, sorted(fields | own))
        except ValueError as error:
            raise TypeError(str(error)) from None


def _defaults(kind: Any) -> dict[str, Any]:
    """The values of the settings of a task or workflow that are not given, as far as files contain them."""
    fields = dataclasses.fields(kind) if dataclasses.is_dataclass(kind) else ()
    known = {each.name: each.default for each in fields if each.init and each.repr and each.name != "task"}
    return {name: value for name, value in known.items() if value is not dataclasses.MISSING}


def _settings(workflow: type[Any]) -> set[str]:
    return {field.name for field in dataclasses.fields(workflow) if field.init} - _GIVEN
