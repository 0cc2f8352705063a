"""AnswerRounds: a base class for workflows whose members each answer a problem once in a turn.

In every turn each member replies with its answer in a box. What it reads of the others is the subclass's choice
(`heard`): at most `capacity` characters of a reply, and its answer. The last member's reply ends the turn, and the
team's answer is then what the subclass makes of all (`choose`). The episode ends after a turn in which all members
have the same answer (`agreed`), or with the last turn. Nobody is told whether an answer is right.

Rewards, every one of them the change of something, so that none can be had twice:

* member, on its own step: `correct` in [-1, 1], the change of "its answer is right" (0 or 1) since its last reply; or
  `format`, -0.2, for a reply without a box, after which its answer stays as it was.
* team, on the step of the last member: `progress` in [-1, 1], the change of "the team's answer is right"; and at the
  end of the episode `success`, 1 if it is right.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Generic, NamedTuple

from pettingllms_envs.core import (
    TEAM,
    UNREADABLE_PENALTY,
    Role,
    State,
    Transition,
    Unreadable,
    check_choice,
    part_ranges,
    situation,
)
from pettingllms_envs.quoting import quote_inline
from pettingllms_envs.tasks.base import AnsweringTask
from pettingllms_envs.teams.base import BaseWorkflow
from pettingllms_envs.teams.channels import LimitedMessages, Sent


class Answered(NamedTuple):
    """A member's last reply.

    Args:
        sent: What others can read of it.
        answer: Its answer, of this reply or an earlier one; None if it has given none.
        value: What the answer is worth, the task's potential with it.
    """

    sent: Sent
    answer: str | None = None
    value: float = 0.0


class RoundState(NamedTuple, Generic[State]):
    """A moment of an episode.

    Args:
        task: The task's state, with the team's answer.
        last: The replies of the turn before, in the order of the members; () in the first.
        replies: Those of this turn so far.
        unread: Why the reply of a member in the turn before was unreadable, by member.
    """

    task: State
    turn: int = 1
    last: tuple[Answered, ...] = ()
    replies: tuple[Answered, ...] = ()
    unread: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class AnswerRounds(LimitedMessages, BaseWorkflow[State, str]):
    """Members answer once in each turn; who they are, and what is made of the answers, is left to the subclass.

    Args:
        num_turns: Turn budget, at least 1; each member answers once in a turn.
        capacity: Most characters of a reply that others read; its answer is shown besides.
        until_agreed: Whether the episode ends early, after a turn in which all have the same answer.
    """

    task: AnsweringTask[State]
    capacity: int = 2000
    until_agreed: bool = True

    def __post_init__(self) -> None:
        LimitedMessages.__post_init__(self)
        check_choice("until_agreed", self.until_agreed, (True, False))

    @property
    def roles(self) -> tuple[Role, ...]:
        """The roles, the one whose reply ends a turn last."""
        raise NotImplementedError

    def heard(self, state: RoundState[State], role: str) -> Sequence[Answered]:
        """The replies that a member reads."""
        raise NotImplementedError

    def choose(self, state: RoundState[State], replies: tuple[Answered, ...]) -> str | None:
        """The team's answer after a turn; None if there is none."""
        raise NotImplementedError

    def agreed(self, state: RoundState[State], replies: tuple[Answered, ...]) -> bool:
        """Whether all members have the same answer."""
        first = replies[0].answer
        return first is not None and all(
            each.answer is not None and self.task.agree(state.task, first, each.answer) for each in replies[1:]
        )

    @property
    def members(self) -> list[str]:
        """The members, in the order in which they reply."""
        return [member for role in self.roles for member in role.members]

    def start(self, task_state: State) -> RoundState[State]:
        """Turn 1 on this instance, the first member to reply."""
        return RoundState(task_state)

    def actor(self, state: RoundState[State]) -> str:
        """The first member that has not replied in this turn."""
        return self.members[len(state.replies) % len(self.members)]

    def system(self, role: str) -> str:
        """The rules, the member's job, how to reply."""
        job = next(each.job for each in self.roles if role in each.members)
        return f"{self.task.rules()}\n{job}\n{self.task.reply_format()}"

    def observe(self, state: RoundState[State], role: str) -> str:
        """The situation, why its own last reply was unreadable, if it was, and the replies that it reads."""
        unread = [f"Your last reply was unreadable: {why}." for member, why in state.unread if member == role]
        return situation(self, state, *unread, *map(self._shown, self.heard(state, role)))

    def step(self, state: RoundState[State], reply: str) -> Transition[RoundState[State]]:
        """Take a member's answer; the last one's ends the turn."""
        members, index = self.members, len(state.replies)
        role = members[index]
        before = state.last[index] if state.last else Answered(Sent(role, ""))
        sent = self.channel.send(role, reply)
        answer = self.task.parse(reply)
        unread = tuple(pair for pair in state.unread if pair[0] != role)
        if isinstance(answer, Unreadable):
            now, local = before._replace(sent=sent), {"format": UNREADABLE_PENALTY}
            unread += ((role, answer.reason),)
        else:
            value = self.task.value(self.task.apply(state.task, answer))
            now, local = Answered(sent, answer, value), {"correct": value - before.value}
        replies = (*state.replies, now)
        parts: dict[str, Mapping[str, float]] = {role: local}
        if len(replies) < len(members):
            return state._replace(replies=replies, unread=unread), parts, False, False
        answer_of_team = self.choose(state, replies)
        task = state.task if answer_of_team is None else self.task.apply(state.task, answer_of_team)
        team = {"progress": self.task.value(task) - self.task.value(state.task)}
        agreed = self.until_agreed and self.agreed(state, replies)
        over = agreed or state.turn == self.num_turns
        if over and self.task.solved(task):
            team["success"] = 1.0
        after = RoundState(task, state.turn + (not over), replies, unread=unread)
        return after, {TEAM: team, **parts}, agreed, over and not agreed

    def ranges(self) -> Mapping[str, tuple[float, float]]:
        """Progress, success, format and correct."""
        ranges = part_ranges(self.task)
        return {**ranges, "correct": ranges["progress"]}

    def _shown(self, reply: Answered) -> str:
        if reply.answer is None:
            return f"{reply.sent.shown}\nIt gave no answer."
        return f"{reply.sent.shown}\nIts answer: {quote_inline(self.task.write(reply.answer))}."
