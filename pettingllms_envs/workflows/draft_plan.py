"""Workflow `draft_plan`: in every turn a drafter proposes a move and a planner, who sees where it would lead, decides.

Roles: `drafter`, then `planner`. The drafter sees the task's state and what came of the last turn. The planner sees
the same and the drafter's proposal of this turn with its consequence (or that the draft was unreadable). Only the
planner's move is played.

Rewards, where V(x) is the task's potential plus 1 if x is solved:

* team, on the planner's step: `progress`, the change of the potential, and `success`, 1 when solved. Over an episode
  they add up to V(end) - V(start), which is at most 2.
* drafter, on its own step: `draft` = V(state the draft would lead to) - V(state), or `format` = -0.2 if unreadable;
  and the task's costs of the draft.
* drafter, on the planner's step: `settle` = V(state reached) - V(state that `draft` was paid for). So `draft` and
  `settle` too add up to V(end) - V(start) over an episode, and a draft cannot be farmed by repeating it.
* planner, on its own step: `format` = -0.2 if unreadable, or the task's costs of the move.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Generic

from pettingllms_envs.core import (
    UNREADABLE_PENALTY,
    Move,
    Observation,
    Reward,
    Role,
    State,
    Task,
    Transition,
    Unreadable,
    check_num_turns,
    play,
    prompt,
    worth,
)


DRAFTER = Role("drafter", "You are the drafter. Propose moves; the planner sees where they lead and decides.")
PLANNER = Role("planner", "You are the planner. You see the drafter's proposal and decide. Your moves are played.")


@dataclass(frozen=True, slots=True)
class Proposal:
    """A draft as the planner reads it, and the V that the drafter was paid up to."""

    words: str
    credited: float


@dataclass(frozen=True, slots=True)
class DraftPlanState(Generic[State]):
    """The task's state, the turn from 1, the words about the last turn, and the proposal to decide on, if any."""

    task: State
    turn: int = 1
    feedback: str = ""
    proposal: Proposal | None = None


@dataclass(frozen=True, slots=True)
class DraftPlan(Generic[State, Move]):
    """A drafter and a planner play the task together.

    Args:
        task: The task.
        num_turns: Turn budget, at least 1; both roles act once in a turn.

    Raises:
        ValueError: `num_turns` is not a whole number of at least 1.
    """

    task: Task[State, Move]
    num_turns: int = 4

    name: ClassVar[str] = "draft_plan"
    roles: ClassVar[tuple[Role, ...]] = (DRAFTER, PLANNER)

    def __post_init__(self) -> None:
        check_num_turns(self.num_turns)

    def start(self, task_state: State) -> DraftPlanState[State]:
        """Turn 1 on this instance, the drafter to act."""
        return DraftPlanState(task_state)

    def actor(self, state: DraftPlanState[State]) -> str:
        """The drafter until there is a proposal, then the planner."""
        return DRAFTER.name if state.proposal is None else PLANNER.name

    def observe(self, state: DraftPlanState[State], role: str) -> Observation:
        """The situation and what came of the last turn; for the planner also this turn's proposal, if made."""
        if role == DRAFTER.name or state.proposal is None:
            return prompt(self, state, DRAFTER if role == DRAFTER.name else PLANNER, state.feedback)
        return prompt(self, state, PLANNER, state.feedback, state.proposal.words)

    def step(self, state: DraftPlanState[State], reply: str) -> Transition[DraftPlanState[State]]:
        """Take the drafter's proposal, or play the planner's move and end the turn."""
        return self._draft(state, reply) if state.proposal is None else self._plan(state, state.proposal, reply)

    def _draft(self, state: DraftPlanState[State], reply: str) -> Transition[DraftPlanState[State]]:
        task, now = self.task, worth(self.task, state.task)
        move = task.parse(reply)
        if isinstance(move, Unreadable):
            proposal = Proposal(f"The drafter's reply was unreadable: {move.reason}.", now)
            rewards = [Reward("format", UNREADABLE_PENALTY, DRAFTER.name)]
        else:
            after = task.apply(state.task, move)
            words = task.describe(state.task, move, after, proposed=True)
            proposal = Proposal(f"The drafter proposes: {words}", worth(task, after))
            rewards = [Reward("draft", proposal.credited - now, DRAFTER.name)]
            rewards += [Reward(k, v, DRAFTER.name) for k, v in task.costs(state.task, move, after).items()]
        return Transition(
            DraftPlanState(state.task, state.turn, state.feedback, proposal),
            tuple(rewards),
            terminated=False,
            truncated=False,
        )

    def _plan(self, state: DraftPlanState[State], proposal: Proposal, reply: str) -> Transition[DraftPlanState[State]]:
        played = play(self.task, state.task, reply, PLANNER.name)
        settle = Reward("settle", worth(self.task, played.state) - proposal.credited, DRAFTER.name)
        solved = self.task.solved(played.state)
        truncated = not solved and state.turn == self.num_turns
        turn = state.turn if solved or truncated else state.turn + 1
        return Transition(
            DraftPlanState(played.state, turn, played.feedback), (*played.rewards, settle), solved, truncated
        )
