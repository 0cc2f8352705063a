"""Workflow `ensemble`: several solvers answer on their own, and an aggregator, who reads all of them, decides.

Roles: `solver`, `num_solvers` of them, then `aggregator`, as in the aggregation of the math tasks in the code of
arXiv:2510.11062, and as in a layer of Mixture-of-Agents (arXiv:2406.04692). A solver does not see the others' replies
of the turn, so the solvers of one policy are samples of it. The aggregator's answer is the team's. With more than one
turn, solvers read all replies of the turn before. With `role_tools={"solver": ["python"]}` solvers run programs before
they answer.

Rewards: see `pettingllms_envs.teams.answer_rounds`. A solver is paid for its own answer, right or wrong, and not
for being followed; so an aggregator that ignores a solver does not keep it from learning.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from pettingllms_envs.core import Role, State, check_whole
from pettingllms_envs.teams.answer_rounds import Answered, AnswerRounds, RoundState


SOLVER_JOB = "You are a solver. Others solve the same problem; an aggregator reads all solutions and decides."
AGGREGATOR = Role(
    "aggregator",
    "You are the aggregator. You read the solutions of several solvers, any of which may be wrong, and decide. Your"
    " answer is the team's.",
)
MOST_SOLVERS = 16


@dataclass(frozen=True, slots=True)
class Ensemble(AnswerRounds[State]):
    """Solvers and an aggregator.

    Args:
        num_solvers: How many solvers there are, 1 to 16.
    """

    num_turns: int = 1
    num_solvers: int = 3

    name: ClassVar[str] = "ensemble"

    def __post_init__(self) -> None:
        AnswerRounds.__post_init__(self)
        check_whole("num_solvers", self.num_solvers, 1, MOST_SOLVERS)

    @property
    def roles(self) -> tuple[Role, ...]:
        """The solvers, then the aggregator."""
        return (Role("solver", SOLVER_JOB, count=self.num_solvers), AGGREGATOR)

    def heard(self, state: RoundState[State], role: str) -> Sequence[Answered]:
        """For the aggregator the solutions of this turn; for solvers all replies of the turn before."""
        return state.replies if role == AGGREGATOR.name and state.replies else state.last

    def choose(self, state: RoundState[State], replies: tuple[Answered, ...]) -> str | None:
        """The aggregator's answer."""
        return replies[-1].answer
