"""Workflow `draft_plan`: in every turn a drafter proposes a move and a planner, who sees where it would lead, decides.

Roles: `drafter`, then `planner`. The drafter sees the task's state and what came of the last turn. The planner sees
the same and the drafter's proposal of this turn with its consequence (or that the draft was unreadable). Only the
planner's move is played. Rewards: see `pettingllms_envs.teams.proposal`; the drafter is the proposer. With
`step_rewards=False` the team is paid `progress` and `success` at the end of the episode and nothing before, and a role
only `format`; then both roles are paid later.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

from pettingllms_envs.core import TEAM, Move, Role, State, Transition, Unreadable, check_choice
from pettingllms_envs.teams.proposal import ProposalState, ProposalWorkflow


DRAFTER = Role("drafter", "You are the drafter. Propose moves; the planner sees where they lead and decides.")
PLANNER = Role("planner", "You are the planner. You see the drafter's proposal and decide. Your moves are played.")
ROLES = (DRAFTER, PLANNER)
PAID_LATER = tuple(replace(role, delayed=True) for role in ROLES)


@dataclass(frozen=True, slots=True)
class DraftPlan(ProposalWorkflow[State, Move]):
    """A drafter and a planner play the task together.

    Args:
        step_rewards: Whether each step is paid for how far it leads, or the end of the episode alone.
    """

    step_rewards: bool = True

    name: ClassVar[str] = "draft_plan"

    def __post_init__(self) -> None:
        ProposalWorkflow.__post_init__(self)
        check_choice("step_rewards", self.step_rewards, (True, False))

    def __repr__(self) -> str:
        # A state's hash depends on it, so the default is left out.
        own = "" if self.step_rewards else ", step_rewards=False"
        return f"{type(self).__qualname__}(task={self.task!r}, num_turns={self.num_turns!r}{own})"

    @property
    def roles(self) -> tuple[Role, ...]:  # type: ignore[override]
        """The drafter and the planner, paid later if steps are not paid."""
        return ROLES if self.step_rewards else PAID_LATER

    def step(self, state: ProposalState[State], reply: str) -> Transition[ProposalState[State]]:
        """Take the proposal, or play the planner's move and end the turn."""
        after, parts, solved, is_cut = ProposalWorkflow.step(self, state, reply)
        if not self.step_rewards:
            parts = {scope: {"format": own["format"]} for scope, own in parts.items() if "format" in own}
            if solved or is_cut:
                parts[TEAM] = {"progress": self.task.value(after.task), **({"success": 1.0} if solved else {})}
        return after, parts, solved, is_cut

    def read(self, reply: str) -> tuple[Move | Unreadable, str]:
        """The drafter's reply is the move."""
        return self.task.parse(reply), ""
