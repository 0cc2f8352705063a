"""Workflow `debate`: debaters answer, read each other's last answers, and answer again; the majority counts.

Roles: `debater`, `num_debaters` of them, as in multiagent debate (arXiv:2305.14325) and in MAPoRL (arXiv:2502.18439),
which trains it on GSM8K. In the first turn nobody reads anything; later each debater reads all replies of the turn
before, its own among them, and none of this turn, in which all answer at once. The team's answer is that of the most
debaters; of several such the one whose first debater comes first.

Rewards: see `pettingllms_envs.teams.answer_rounds`. MAPoRL pays a debater also for what its reply brings others
to in later turns. Here the returns have that: `credit={"at_grpo": {"value": "return_to_go"}}`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from pettingllms_envs.core import Role, State, check_whole
from pettingllms_envs.teams.answer_rounds import Answered, AnswerRounds, RoundState


JOB = (
    "You are a debater. All debaters solve the same problem, read each other's solutions, and answer again. Correct"
    " yourself where another is right, and keep your answer where you are. The answer of most debaters is the team's."
)
MOST_DEBATERS = 16


@dataclass(frozen=True, slots=True)
class Debate(AnswerRounds[State]):
    """Debaters of whom the majority counts.

    Args:
        num_debaters: How many debaters there are, 2 to 16.
    """

    num_turns: int = 3
    num_debaters: int = 2

    name: ClassVar[str] = "debate"

    def __post_init__(self) -> None:
        AnswerRounds.__post_init__(self)
        check_whole("num_debaters", self.num_debaters, 2, MOST_DEBATERS)

    @property
    def roles(self) -> tuple[Role, ...]:
        """The debaters."""
        return (Role("debater", JOB, count=self.num_debaters),)

    def heard(self, state: RoundState[State], role: str) -> Sequence[Answered]:
        """All replies of the turn before."""
        return state.last

    def choose(self, state: RoundState[State], replies: tuple[Answered, ...]) -> str | None:
        """The answer that most debaters gave; of several such the first."""
        answers = [each.answer for each in replies if each.answer is not None]
        votes = [sum(self.task.agree(state.task, one, other) for other in answers) for one in answers]
        return answers[votes.index(max(votes))] if answers else None
