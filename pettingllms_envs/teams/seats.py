"""The seats of a game of several players: which agent is which player, by the roles of a workflow in their order."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, ClassVar

from pettingllms_envs.core import Role, best_reply, system_prompt


class SeatWorkflow:
    """What workflows of games have in common. A subclass may name the roles, in the order of the players."""

    __slots__ = ()

    task: Any
    """The game."""
    name: ClassVar[str]
    job: ClassVar[str]
    """The job of each player where roles are not named."""
    cyclic: ClassVar[bool] = False
    state_form: ClassVar[int] = 2

    @property
    def num_agents(self) -> int:
        """How many players are agents: all."""
        return int(self.task.num_players)

    @property
    def roles(self) -> tuple[Role, ...]:
        """One role, with an agent for each player that is one."""
        return (Role("player", self.job, delayed=True, count=self.num_agents),)

    @property
    def members(self) -> tuple[str, ...]:
        """The agents as the workflow names them, in the order of the players."""
        return tuple(name for role in self.roles for name in role.members)

    def check_seats(self) -> None:
        """Raise ValueError unless there is an agent for each player."""
        if len(self.members) != self.num_agents:
            raise ValueError(
                f"the workflow {self.name!r} has the agents {', '.join(self.members)}; expected {self.num_agents},"
                " one for each player of the game. Change its roles, or their count."
            )

    def actor(self, state: Any) -> str:
        """The player whose turn it is."""
        return self.members[int(self.task.current_player(state.task))]

    def system(self, role: str) -> str:
        """The rules, the player's job, the reply format. It names the agent where others have the same job."""
        (own,) = (each for each in self.roles if role in each.members)
        agent = own.agents[own.members.index(role)]
        is_named = len(self.roles) > 1 and own.count == 1
        return system_prompt(self.task, own if is_named else replace(own, job=f"You are {agent}. {own.job}"))

    def oracle(self, state: Any) -> str:
        """The move of the game's oracle for the acting player."""
        return best_reply(self.task, state.task)

    def outcome(self, state: Any) -> Mapping[str, Any]:
        """How many replies were unreadable, and how many not allowed."""
        return dict(state.reported)
