"""Creates agents from their specifications (`pettingllms_envs.agents.spec`), by kind.

A package adds kinds by entry points of the group `pettingllms.agents`, each an `AgentFactory`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from typing import Any

from pettingllms_envs.agents.base import Agent, Bot, Null, Oracle, Random, from_file
from pettingllms_envs.agents.spec import AgentFactory, AgentPool, AgentSpec, StatelessAgents
from pettingllms_envs.episodes.files import read
from pettingllms_envs.episodes.observing import roles_of, workflow_of
from pettingllms_envs.episodes.recorded import Recorded
from pettingllms_envs.features import HasBotRoles
from pettingllms_envs.installing import install_command
from pettingllms_envs.suggestions import did_you_mean


GROUP = "pettingllms.agents"
WITHOUT_MODEL = ("oracle", "bot", "random", "null", "scripted", "recorded")
"""Kinds of agents that need no model."""


def open_all(specs: Mapping[str, AgentSpec], concurrency: int) -> AgentPools:
    """Create the agents of the specs; the factory of each kind is called once."""
    by_kind: dict[str, dict[str, AgentSpec]] = {}
    for agent, spec in specs.items():
        by_kind.setdefault(spec.kind, {})[agent] = spec
    openers = {kind: _opener(kind) for kind in by_kind}
    opened: list[AgentPool] = []
    try:
        opened.extend(openers[kind](own, concurrency) for kind, own in by_kind.items())
    except BaseException:
        for each in opened:
            each.close()
        raise
    return AgentPools(opened)


def check_bots(agents: Mapping[str, AgentSpec], env: Any) -> None:
    """Raise ValueError if a bot is to play an agent that it cannot."""
    workflow, roles = workflow_of(env), roles_of(env)
    for agent, name in ((agent, spec.target) for agent, spec in agents.items() if spec.kind == "bot"):
        plays = not isinstance(workflow, HasBotRoles) or roles[agent] in workflow.bot_roles
        known = env.metadata.get("bots", ()) if plays else ()
        if name is not None and name not in known:
            raise ValueError(
                f"{agent} is to be played by the bot {name!r}; expected one of {env.metadata['name']} for the "
                f"{roles[agent]}: {', '.join(known) or 'it has none'}. Choose another agent."
            )


class AgentPools:
    """The agents of several kinds; see `AgentPool`."""

    def __init__(self, opened: Sequence[AgentPool]) -> None:
        self._opened = opened
        self.agents = {agent: each for kind in opened for agent, each in kind.agents.items()}
        self.versions = {name: version for kind in opened for name, version in kind.versions.items()}

    def close(self) -> None:
        for each in self._opened:
            each.close()


def kinds() -> tuple[str, ...]:
    """All available kinds of agents."""
    return (*_OWN, *_plug_ins())


def _opener(kind: str) -> AgentFactory:
    if kind in _OWN:
        return _OWN[kind]
    points = _plug_ins()
    if kind == "team":
        raise ValueError(
            "team: is an agent of `pettingllms bench` alone, which knows the roles. Play the team there, and name "
            "that run here."
        )
    if kind not in points:
        hint = did_you_mean(kind, kinds())
        known = ", ".join(kinds())
        raise ValueError(f"there is no agent of the kind {kind!r}; expected one of: {known}.{hint}")
    try:
        opener: AgentFactory = points[kind].load()
    except ModuleNotFoundError as error:
        raise ValueError(
            f"agents of the kind {kind!r} need {error.name}, which is not installed; expected the trainer's "
            f"libraries. Run {install_command('vllm' if kind == 'vllm' else 'trl')}."
        ) from error
    return opener


def _plug_ins() -> dict[str, EntryPoint]:
    return {point.name: point for point in entry_points(group=GROUP)}


def _simple(make: Callable[[], Agent]) -> AgentFactory:
    def open_them(specs: Mapping[str, AgentSpec], concurrency: int) -> AgentPool:
        for spec in specs.values():
            spec.refuse_unknown((), target=None)
        return StatelessAgents({agent: make() for agent in specs})

    return open_them


def _open_bots(specs: Mapping[str, AgentSpec], concurrency: int) -> AgentPool:
    for spec in specs.values():
        spec.refuse_unknown((), target="NAME")
    return StatelessAgents({agent: Bot(spec.target or "") for agent, spec in specs.items()})


def _of_files(target: str, make: Callable[[Path], Agent]) -> AgentFactory:
    def open_them(specs: Mapping[str, AgentSpec], concurrency: int) -> AgentPool:
        made: dict[str, Agent] = {}
        for agent, spec in specs.items():
            spec.refuse_unknown((), target=target)
            made[agent] = make(Path(spec.target or ""))
        return StatelessAgents(made)

    return open_them


def _open_apis(specs: Mapping[str, AgentSpec], concurrency: int) -> AgentPool:
    from pettingllms_envs.agents.openai import open_apis  # with an HTTP client, which the others do without

    return open_apis(specs, concurrency)


_OWN: Mapping[str, AgentFactory] = {
    "oracle": _simple(Oracle),
    "bot": _open_bots,
    "random": _simple(Random),
    "null": _simple(Null),
    "scripted": _of_files("FILE", from_file),
    "recorded": _of_files("RUN", lambda file: Recorded(read(file))),
    "api": _open_apis,
}
