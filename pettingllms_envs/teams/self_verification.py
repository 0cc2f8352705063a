"""Workflow `self_verification`: one solver answers, then verifies its own solution and corrects it, or confirms it.

Role: `solver`, as the single agent of several turns in the code of arXiv:2510.11062. In every turn but the first it
reads its last reply, checks it, and answers again. The episode ends when two answers in succession are the same, or
with the last turn. It is the counterpart for one agent of `debate`, and a baseline of teams with as many replies.

Rewards: see `pettingllms_envs.teams.answer_rounds`. A correction pays, a right answer that is given up costs as
much, and an answer that is confirmed changes nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from pettingllms_envs.core import Role, State
from pettingllms_envs.teams.answer_rounds import Answered, AnswerRounds, RoundState


SOLVER = Role(
    "solver",
    "You are the solver. In the first turn solve the problem. In each later turn you read your last solution: verify"
    " it step by step, and give the corrected answer, or the same one if it is right.",
)


@dataclass(frozen=True, slots=True)
class SelfVerification(AnswerRounds[State]):
    """One solver who verifies its own solution; a turn is a reply."""

    num_turns: int = 3

    name: ClassVar[str] = "self_verification"

    @property
    def roles(self) -> tuple[Role, ...]:
        """The solver."""
        return (SOLVER,)

    def heard(self, state: RoundState[State], role: str) -> Sequence[Answered]:
        """Its own last reply."""
        return state.last

    def choose(self, state: RoundState[State], replies: tuple[Answered, ...]) -> str | None:
        """The solver's answer."""
        return replies[-1].answer

    def agreed(self, state: RoundState[State], replies: tuple[Answered, ...]) -> bool:
        """Whether its answer is the one of the turn before."""
        return bool(state.last) and AnswerRounds.agreed(self, state, (*state.last, *replies))
