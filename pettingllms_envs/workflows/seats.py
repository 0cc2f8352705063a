"""The seats of a game of several players: which agent is which player, by the roles of a workflow in their order."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from pettingllms_envs.core import Role, Task, system_prompt


def seats(roles: Sequence[Role]) -> tuple[str, ...]:
    """The agents as a workflow names them, in the order of the players."""
    return tuple(name for role in roles for name in role.members)


def check_seats(workflow: str, roles: Sequence[Role], num_players: int) -> None:
    """Raise ValueError unless there is an agent for each player."""
    if len(seats(roles)) != num_players:
        raise ValueError(
            f"the workflow {workflow!r} has the agents {', '.join(seats(roles))}; expected {num_players}, one for each"
            " player of the game. Change its roles, or their count."
        )


def seat_prompt(task: Task[Any, Any], roles: Sequence[Role], member: str) -> str:
    """The system prompt of an agent: rules, job, reply format. It names the agent where others have the same job."""
    (own,) = (role for role in roles if member in role.members)
    agent = own.agents[own.members.index(member)]
    is_named = len(roles) > 1 and own.count == 1
    return system_prompt(task, own if is_named else replace(own, job=f"You are {agent}. {own.job}"))
