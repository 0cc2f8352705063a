"""Benchmarks that compare teams on the same problems: mixed teams, replaced roles, and a single agent.

| question                                                | cells                                                  |
|---------------------------------------------------------|--------------------------------------------------------|
| crossplay: do roles of two runs go together?            | role of run i with the other roles of run j            |
| ablation: what does a role contribute?                  | the team with a role played by oracle, null, another   |
| solo: does one agent do as well at the same budget?     | the workflow `single`, with as many calls and tokens   |
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import fields, replace

import pettingllms_envs
from pettingllms_envs.agents.spec import AgentSpec
from pettingllms_envs.episodes.observing import roles_of, workflow_of
from pettingllms_envs.evaluation.bench import Bench


SOLO = "single"


def check_alike(benches: Mapping[str, Bench]) -> None:
    """Raise ValueError unless the runs have the same environment, settings, problems and limits."""
    (first, one), *others = benches.items()
    for name, other in others:
        for what in ("env", "settings", "chosen", "samples", "rules"):
            if getattr(one, what) != getattr(other, what):
                raise ValueError(
                    f"{first} and {name} differ in {what}; expected runs of the same environment, problems and rules. "
                    "Play them with the same `pettingllms bench` options, but for the agents."
                )


def matrix(benches: Mapping[str, Bench], role: str) -> dict[tuple[str, str], Bench]:
    """The benchmarks of all mixed teams, by (run of the role's agent, run of all other agents).

    Args:
        role: A role, or the agent that is to be another one in a team of equals.
    """
    check_alike(benches)
    of_role = _agents_of_role(next(iter(benches.values())), role)
    return {
        (row, column): replace(
            other, agents={agent: (one if agent in of_role else other).agents[agent] for agent in other.agents}
        )
        for row, one in benches.items()
        for column, other in benches.items()
    }


def ablation(bench: Bench, partners: Mapping[str, AgentSpec]) -> dict[tuple[str, str], Bench]:
    """The benchmarks of the team with one role replaced, by (role, replacement).

    A replacement of the same kind as the original agent inherits the options that it does not set, such as the server.
    """
    roles = roles_of(bench.make())
    found: dict[tuple[str, str], Bench] = {}
    for role in dict.fromkeys(roles.values()):
        for name, partner in partners.items():
            agents = dict(bench.agents)
            for agent in _agents_of_role(bench, role):
                there = agents[agent]
                agents[agent] = partner.with_defaults(there.options) if partner.kind == there.kind else partner
            found[role, name] = replace(bench, agents=agents)
    return found


def solo(
    bench: Bench, role: str | None = None, *, episode_tokens: int | None = None, num_calls: int | None = None
) -> Bench:
    """One agent alone, on the same problems, with as many calls as the team had, and a given number of tokens.

    Args:
        role: The role whose agent plays; None: that of the workflow `single` or, if the team lacks it, the last one.
        num_calls: Most replies of the team in an episode; needed and used where agents do not act once in each turn.
    """
    team = bench.make()
    roles = roles_of(team)
    workflow = workflow_of(team)
    if len(roles) < 2 or workflow is None:
        raise ValueError(f"the run has the roles {', '.join(roles.values())}; expected a team. Name another run.")
    lone = pettingllms_envs.make(bench.env, workflow=SOLO).unwrapped.workflow
    of_team = {field.name for field in fields(workflow)} - {field.name for field in fields(lone)}
    dropped = {"workflow", "num_turns", "max_cycles", *of_team}
    settings = {key: value for key, value in bench.settings.items() if key not in dropped}
    own = lone.roles[0].name
    if role is None:
        role = own if own in roles.values() else list(roles.values())[-1]
    tools = settings.get("role_tools")
    if isinstance(tools, Mapping):
        settings["role_tools"] = {own: tools[role]} if role in tools else {}
    calls = workflow.num_turns * len(roles) if workflow.cyclic else num_calls
    if calls is None:
        raise ValueError(
            f"the agents of {bench.env} do not act once in each turn, so that its turns do not tell how many calls "
            "the team had; expected num_calls. Give the most replies of an episode."
        )
    alone = replace(bench, settings={**settings, "workflow": SOLO, "num_turns": calls}, agents={})
    agents = roles_of(alone.make())
    player = bench.agents[_agents_of_role(bench, role)[0]]
    rules = bench.rules if episode_tokens is None else replace(bench.rules, episode_tokens=episode_tokens)
    return replace(alone, agents=dict.fromkeys(agents, player), rules=rules)


def last_role(bench: Bench) -> str:
    """The role that acts last in a turn, which in this package's teams is the one that makes the move.

    Where all agents have one role it is the last agent.
    """
    roles = roles_of(bench.make())
    agent, role = list(roles.items())[-1]
    return agent if len(roles) > 1 == len(set(roles.values())) else role


def _agents_of_role(bench: Bench, role: str) -> Sequence[str]:
    """The agents of a role, or the one of that name; `ValueError` if there is none, or no other agent."""
    roles = roles_of(bench.make())
    agents = [agent for agent, each in roles.items() if role in (each, agent)]
    if not agents or len(agents) == len(roles):
        several = dict.fromkeys(roles.values())
        known = ", ".join(several if len(several) > 1 else roles)
        raise ValueError(f"the role is {role!r}; expected one of several: {known}. Choose one, or a run of a team.")
    return agents
