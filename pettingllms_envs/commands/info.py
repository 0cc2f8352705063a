"""Show an environment: roles, settings, reset options, rewards, published test set, the prompts of an instance."""

from __future__ import annotations

import argparse
import dataclasses
import importlib
import inspect
import re
import sys
from collections.abc import Callable, Iterable
from typing import Any

from rich.console import Console

import pettingllms_envs
from pettingllms_envs.aec import TextEnv
from pettingllms_envs.commands import add_environment, made, say, say_table, user_errors
from pettingllms_envs.prompts import read_observation, text_of
from pettingllms_envs.published import published_files
from pettingllms_envs.teams.tool_calls import ToolCalls


Line = tuple[str, ...]
_ARGS = re.compile(r"^Args:\n((?:[ ]+.*\n?|\n)+)", re.M)
_ARGUMENT = re.compile(r" {4}\**(\w+)(?: \([^)]*\))?: (.*)")

COMPETITIONS = {
    "zero_sum": "Zero-sum: every agent plays for itself, and their returns add up to 0 in every episode.",
    "mixed": "Mixed motives: every agent plays for itself, and their returns may rise or fall together.",
}
"""What is said of an environment's returns, by `metadata["competitive"]`."""


def add(parser: argparse.ArgumentParser) -> None:
    """Add the options of `info`: the environment, and the seed of the instance shown."""
    add_environment(parser)
    parser.add_argument(
        "--seed", type=int, default=0, metavar="N", help="seed of the instance whose prompts are shown (0)"
    )


def run(args: argparse.Namespace, console: Console) -> int:
    """Print everything about an environment that is known before the first episode."""
    from pettingllms_envs.programs import ProgramEnv

    env = made(args).unwrapped
    entry = pettingllms_envs.find(args.env)
    module = importlib.import_module(entry.module)
    workflow = env.workflow if isinstance(env, TextEnv) else None
    if isinstance(workflow, ToolCalls):  # its fields are not settings: `role_tools` and others make it
        workflow = workflow.workflow
    task = None if workflow is None else workflow.task
    doc = module.__doc__ if task is None else sys.modules[type(task).__module__].__doc__
    say(console, f"{env.metadata['name']} ({entry.origin}, module {entry.module})\n\n{inspect.cleandoc(doc or '')}")
    say_table(console, "Agents", ("agent", "job"), agents(env))
    program = env.program if isinstance(env, ProgramEnv) else None
    rows = settings(module, program or task, workflow)
    say_table(console, "Settings (--set KEY=VALUE)", ("name", "default", "meaning"), rows)
    options, parts = env.metadata.get("reset_options", {}), env.metadata.get("reward_ranges", {})
    rows = [(name, listed(values)) for name, values in options.items()]
    say_table(console, "Reset options", ("name", "values"), rows)
    ranges = [(name, f"{low:.4g}", f"{high:.4g}") for name, (low, high) in parts.items()]
    say_table(console, "Parts of a step's reward", ("part", "least", "greatest"), ranges)
    if line := return_line(env):
        say(console, f"\n{line}")
    say(console, f"Published test set: {published(entry.full_name)}")
    if line := data_line(env):
        say(console, line)
    with user_errors():
        env.reset(seed=args.seed)
    for agent in env.possible_agents:
        seen = env.observe(agent)
        parts = seen.items() if isinstance(seen, dict) else [("text", seen)]
        if isinstance(seen, dict) and seen.keys() & {"messages", "parts"}:
            messages = read_observation(seen, agent=agent).messages
            parts = [(message["role"], text_of(message["content"])) for message in messages]
        for part, text in parts:
            say(console, f"\n--- {agent}, {part}, seed {args.seed} ---", style="bold")
            say(console, str(text))
    env.close()  # the run of a program
    return 0


def return_line(env: Any) -> str:
    """A line about the returns of an episode: a team's greatest, or how those of opponents are related; or empty."""
    if kind := env.metadata.get("competitive"):
        return COMPETITIONS[kind]
    most = env.metadata.get("max_return")
    return "" if most is None else f"The team's parts add up to at most {most:.4g} over an episode."


def data_line(env: Any) -> str:
    """A line about the data of an environment with these settings, if they are not a benchmark's; else empty."""
    data = env.metadata.get("data") or {}
    parts = [f"Data: {data['name']}" + (f", {data['note']}" if data["note"] else ""), data["remedy"]] if data else []
    return "; ".join(filter(None, parts))


def published(full_name: str) -> str:
    """A line with the SHA-256 of the published test set of an environment such as `"sokoban_v0"`, if it has one."""
    file, digest = published_files().get(full_name, (None, ""))
    return f"{file.name}, SHA-256 {digest}" if file is not None else "none"


def documented(doc: str | None) -> dict[str, str]:
    """Each argument of a docstring's section "Args:" with its meaning, on one line."""
    section = _ARGS.search(inspect.cleandoc(doc or ""))
    meanings: dict[str, str] = {}
    name = ""
    for line in section[1].splitlines() if section else []:
        starts = _ARGUMENT.fullmatch(line)
        if starts:
            name = starts[1]
            meanings[name] = starts[2]
        elif name:
            meanings[name] = f"{meanings[name]} {line.strip()}".strip()
    return meanings


def agents(env: Any) -> list[Line]:
    """Table rows: each agent with the job of its role."""
    if not isinstance(env, TextEnv):
        return [(agent, "") for agent in env.possible_agents]
    return [(agent, role.job) for role in env.workflow.roles for agent in role.agents]


def settings(module: Any, task: Any, workflow: Any) -> Iterable[Line]:
    """Table rows: the task's settings, the workflow's, then those that all environments of its kind have."""
    for part in (task, workflow):
        if dataclasses.is_dataclass(part):
            kinds = reversed(inspect.getmro(type(part)))  # a class has the last word
            meanings = {name: text for kind in kinds for name, text in documented(vars(kind).get("__doc__")).items()}
            for field in dataclasses.fields(part):
                if field.init and field.repr and field.name not in ("task", "num_turns"):
                    made = field.default_factory
                    default = field.default if made is dataclasses.MISSING else made()
                    yield field.name, _default(default), meanings.get(field.name, "")
    if "env" not in vars(module):  # a program's package
        return
    make: Callable[..., Any] = module.raw_env if "raw_env" in vars(module) else module.env
    meanings = documented(make.__doc__)
    for parameter in inspect.signature(make).parameters.values():
        if parameter.kind not in (parameter.VAR_KEYWORD, parameter.VAR_POSITIONAL):
            yield parameter.name, _default(parameter.default), meanings.get(parameter.name, "")


def _default(value: object) -> str:
    return "(no default)" if value is dataclasses.MISSING or value is inspect.Parameter.empty else repr(value)


def listed(values: tuple[object, ...]) -> str:
    """The legal values of a reset option, in words."""
    return ", ".join(map(repr, values)) or "open"
