"""What the workflows with a proposer and a planner share: a move is proposed, the planner sees its end, and decides.

Only the planner's move is played. V(x) is the task's potential plus 1 if x is solved. Rewards:

* team, on the planner's step: `progress`, the change of the potential, and `success`, 1 when solved. Over an episode
  they add up to V(end) - V(start), which is at most 2.
* proposer, on its own step: `draft` = V(state the proposal would lead to) - V(state), and the task's costs of the
  proposal; or `format` = -0.2 if there is no readable proposal.
* proposer, on the planner's step: `settle` = V(state reached) - V(state) - what the proposer's own step was paid
  besides `format`. So `draft`, costs and `settle` too add up to V(end) - V(start) over an episode: a proposal cannot
  be farmed by repeating it, and a move that is only proposed costs nothing in the end: proposing less does not pay.
* planner, on its own step: `format` = -0.2 if unreadable, or the task's costs of the move.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, Generic, NamedTuple

from pettingllms_envs.core import (
    UNREADABLE_PENALTY,
    Move,
    Role,
    State,
    Transition,
    Unreadable,
    part_ranges,
    play,
    situation,
    system_prompt,
    team_return,
)
from pettingllms_envs.teams.base import BaseWorkflow


class Proposal(NamedTuple):
    """A proposal as the planner reads it, and the V that the proposer was paid up to, less the proposal's costs."""

    words: str
    credited: float


class ProposalState(NamedTuple, Generic[State]):
    """The task's state, the turn from 1, the words about the last turn, and the proposal to decide on, if any."""

    task: State
    turn: int = 1
    feedback: str = ""
    proposal: Proposal | None = None


@dataclass(frozen=True, slots=True)
class ProposalWorkflow(BaseWorkflow[State, Move]):
    """A proposer and a planner act once in each turn; how a proposal is read is left to the subclass."""

    roles: ClassVar[tuple[Role, ...]]

    def read(self, reply: str) -> tuple[Move | Unreadable, str]:
        """The move that the proposer's reply proposes, and what the planner is shown of how it came about."""
        raise NotImplementedError

    def start(self, task_state: State) -> ProposalState[State]:
        """Turn 1 on this instance, the proposer to act."""
        return ProposalState(task_state)

    def actor(self, state: ProposalState[State]) -> str:
        """The proposer until there is a proposal, then the planner."""
        return self.roles[state.proposal is not None].name

    def system(self, role: str) -> str:
        """The rules, the role's job, the reply format."""
        return system_prompt(self.task, self.roles[role != self.roles[0].name])

    def observe(self, state: ProposalState[State], role: str) -> str:
        """The situation and what came of the last turn; for the planner also this turn's proposal, if made."""
        if role == self.roles[0].name or state.proposal is None:
            return situation(self, state, state.feedback)
        return situation(self, state, state.feedback, state.proposal.words)

    def step(self, state: ProposalState[State], reply: str) -> Transition[ProposalState[State]]:
        """Take the proposal, or play the planner's move and end the turn."""
        return self._propose(state, reply) if state.proposal is None else self._decide(state, state.proposal, reply)

    def ranges(self) -> Mapping[str, tuple[float, float]]:
        """Progress, success, format, the task's costs, and the proposer's draft and settle."""
        ranges = dict(self.task.ranges())
        low, high = ranges.pop("value")
        change = high - low + 1
        costs = sum(least for least, _ in ranges.values())
        return {**part_ranges(self.task), "draft": (-change, change), "settle": (-change, change - costs)}

    def _propose(self, state: ProposalState[State], reply: str) -> Transition[ProposalState[State]]:
        task, proposer = self.task, self.roles[0].name
        now = team_return(task, state.task)
        move, shown = self.read(reply)
        if isinstance(move, Unreadable):
            proposal = Proposal(f"{shown}The {proposer}'s reply was unreadable: {move.reason}.", now)
            parts = {"format": UNREADABLE_PENALTY}
        else:
            after = task.apply(state.task, move)
            words = task.describe(state.task, move, after, proposed=True)
            parts = {"draft": team_return(task, after) - now, **task.costs(state.task, move, after)}
            proposal = Proposal(f"{shown}The {proposer} proposes: {words}", now + sum(parts.values()))
        after_state = ProposalState(state.task, state.turn, state.feedback, proposal)
        return after_state, {proposer: parts}, False, False

    def _decide(self, state: ProposalState[State], proposal: Proposal, reply: str) -> Transition[ProposalState[State]]:
        task_state, solved, parts, feedback = play(self.task, state.task, reply, self.roles[1].name)
        parts[self.roles[0].name] = {"settle": team_return(self.task, task_state) - proposal.credited}
        over = solved or state.turn == self.num_turns
        after = ProposalState(task_state, state.turn + (not over), feedback)
        return after, parts, solved, over and not solved
