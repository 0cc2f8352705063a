"""Workflow `single` (L0): one planner, whose every reply is played. The baseline that a team is compared with.

Roles: `planner`. It sees the task's state and what came of its last reply.
Rewards: team `progress` (change of the potential, sums to at most 1 over an episode) and `success` (1 once); to the
planner `format` (-0.2 for an unreadable reply) or the task's costs.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Generic, NamedTuple

from pettingllms_envs.core import Move, Role, State, Transition, play, situation, system_prompt
from pettingllms_envs.teams.base import BaseWorkflow


PLANNER = Role("planner", "You are the planner. Your moves are played.")


class SingleState(NamedTuple, Generic[State]):
    """The task's state, the turn from 1, and the words about the last turn (empty in the first)."""

    task: State
    turn: int = 1
    feedback: str = ""


@dataclass(frozen=True, slots=True)
class Single(BaseWorkflow[State, Move]):
    """One role plays the task."""

    name: ClassVar[str] = "single"
    roles: ClassVar[tuple[Role, ...]] = (PLANNER,)

    def start(self, task_state: State) -> SingleState[State]:
        """Turn 1 on this instance."""
        return SingleState(task_state)

    def actor(self, state: SingleState[State]) -> str:
        """Always the only role."""
        return self.roles[0].name

    def system(self, role: str) -> str:
        """The rules, the planner's job, the reply format."""
        return system_prompt(self.task, PLANNER)

    def observe(self, state: SingleState[State], role: str) -> str:
        """The situation and what came of the last turn."""
        return situation(self, state, state.feedback)

    def step(self, state: SingleState[State], reply: str) -> Transition[SingleState[State]]:
        """Play the reply; the episode ends when the task is solved or the turns are used up."""
        before, turn, _ = state
        after, solved, parts, feedback = play(self.task, before, reply, PLANNER.name)
        if solved or turn == self.num_turns:
            return SingleState(after, turn, feedback), parts, solved, not solved
        return SingleState(after, turn + 1, feedback), parts, False, False
