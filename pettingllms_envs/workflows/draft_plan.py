"""Workflow `draft_plan`: in every turn a drafter proposes a move and a planner, who sees where it would lead, decides.

Roles: `drafter`, then `planner`. The drafter sees the task's state and what came of the last turn. The planner sees
the same and the drafter's proposal of this turn with its consequence (or that the draft was unreadable). Only the
planner's move is played. Rewards: see `pettingllms_envs.workflows.proposal`; the drafter is the proposer.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from pettingllms_envs.core import Move, Role, State, Unreadable
from pettingllms_envs.workflows.proposal import ProposalWorkflow


DRAFTER = Role("drafter", "You are the drafter. Propose moves; the planner sees where they lead and decides.")
PLANNER = Role("planner", "You are the planner. You see the drafter's proposal and decide. Your moves are played.")


@dataclass(frozen=True, slots=True)
class DraftPlan(ProposalWorkflow[State, Move]):
    """A drafter and a planner play the task together."""

    name: ClassVar[str] = "draft_plan"
    roles: ClassVar[tuple[Role, ...]] = (DRAFTER, PLANNER)

    def read(self, reply: str) -> tuple[Move | Unreadable, str]:
        """The drafter's reply is the move."""
        return self.task.parse(reply), ""
