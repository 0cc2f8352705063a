"""Workflows of HiddenBench: members of a group talk in turn, and vote in the last turn.

* `team`: a member for each hidden fact. In all turns but the last one each member writes a message, which is cut after
  `capacity` characters; it reads the latest message of each other member. In the last turn each votes.
* `cut`: the same, but no message arrives.
* `full`: one member, who knows all facts and votes at once.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

from pettingllms_envs.core import TEAM, UNREADABLE_PENALTY, Role, Transition, Unreadable, part_ranges
from pettingllms_envs.environments.hidden_bench.rows import MOST_MEMBERS
from pettingllms_envs.environments.hidden_bench.rules import HiddenBench, ProfileState
from pettingllms_envs.quoting import quote_inline
from pettingllms_envs.state_digest import Reported
from pettingllms_envs.teams.base import BaseWorkflow
from pettingllms_envs.teams.channels import NO_MESSAGES, CountedMessages, LimitedMessages, Sent


MEMBER = "member"
JOB = "You are one of the members."
MESSAGE_FORMAT = "When you are asked to write, your whole reply is your message to the others"


class DiscussionState(NamedTuple):
    """A moment of an episode.

    Args:
        turn: The turn, from 1.
        acting: Index of the acting member.
        messages: For each member, its latest message that arrived.
        reported: How many messages arrived, and their characters.
    """

    task: ProfileState
    turn: int
    acting: int
    messages: tuple[Sent | None, ...]
    reported: Reported = NO_MESSAGES


@dataclass(frozen=True, slots=True)
class Discussion(CountedMessages, BaseWorkflow[ProfileState, str]):
    """What the workflows of HiddenBench share.

    Args:
        num_turns: Turns, the last of which is for votes, at least 1.
    """

    task: HiddenBench
    num_turns: int = 3

    roles: ClassVar[tuple[Role, ...]] = (Role(MEMBER, JOB, count=MOST_MEMBERS, informed=True),)

    def deliver(self, sender: str, text: str) -> Sent | None:
        """The message as it arrives, or None if it does not, as here."""
        return None

    def start(self, task_state: ProfileState) -> DiscussionState:
        """The first member's first message, or vote."""
        return DiscussionState(task_state, 1, 0, (None,) * task_state.num_members)

    def present(self, state: DiscussionState) -> Sequence[str]:
        """As many members as there are hidden facts."""
        return self.roles[0].members[: state.task.num_members]

    def actor(self, state: DiscussionState) -> str:
        """The members in their order."""
        return self.roles[0].members[state.acting]

    def system(self, role: str) -> str:
        """The rules, and how to reply."""
        return "\n".join([self.task.rules(), f"{MESSAGE_FORMAT}.", self.task.reply_format()])

    def observe(self, state: DiscussionState, role: str) -> str:
        """The situation, the member's facts, the latest messages of the others, and what it is to do."""
        index = self.roles[0].members.index(role)
        lines = [f"Turn {state.turn} of {self.num_turns}.", self.task.show(state.task)]
        if index < state.task.num_members:
            facts = self.task.facts(state.task, index)
            lines += ["What you know:", *(f"- {quote_inline(fact)}" for fact in facts)]
        lines += [sent.shown for other, sent in enumerate(state.messages) if sent is not None and other != index]
        if role != self.actor(state):
            return "\n".join([*lines, "Another member is to act."])
        return "\n".join([*lines, "Write to the others now." if state.turn < self.num_turns else "Vote now."])

    def step(self, state: DiscussionState, reply: str) -> Transition[DiscussionState]:
        """Send the acting member's message, or take its vote; the episode ends with the last vote."""
        role = self.actor(state)
        if state.turn < self.num_turns:
            return self._next(self._said(state, role, reply)), {}, False, False
        vote = self.task.parse(reply)
        unreadable = isinstance(vote, Unreadable)
        after = self.task.apply(state.task, "" if isinstance(vote, Unreadable) else vote)
        is_right = float(after.num_right - state.task.num_right)
        parts: dict[str, Mapping[str, float]] = {
            role: {"format": UNREADABLE_PENALTY} if unreadable else {"correct": is_right}
        }
        if self.task.solved(after) and not self.task.solved(state.task):
            parts[TEAM] = {"progress": 1.0, "success": 1.0}
        is_over = len(after.votes) == after.num_members
        voted = state._replace(task=after)
        return voted if is_over else self._next(voted), parts, is_over, False

    def oracle(self, state: DiscussionState) -> str:
        """The hidden fact, then the right option."""
        if state.turn < self.num_turns:
            return state.task.problem.hidden[state.task.order[state.acting]]
        return self.task.write(self.task.oracle(state.task))

    def ranges(self) -> Mapping[str, tuple[float, float]]:
        """Progress, success, format and correct."""
        return part_ranges(self.task) | {"correct": (0.0, 1.0)}

    def _said(self, state: DiscussionState, role: str, reply: str) -> DiscussionState:
        sent = self.deliver(role, reply)
        if sent is None:
            return state
        index = state.acting
        return state._replace(
            messages=(*state.messages[:index], sent, *state.messages[index + 1 :]),
            reported=state.reported.plus(messages=1, message_chars=len(sent.text)),
        )

    def _next(self, state: DiscussionState) -> DiscussionState:
        is_last = state.acting == state.task.num_members - 1
        return state._replace(acting=0, turn=state.turn + 1) if is_last else state._replace(acting=state.acting + 1)


@dataclass(frozen=True, slots=True)
class GroupDiscussion(LimitedMessages, Discussion):
    """Members who hear each other."""

    capacity: int = 500

    name: ClassVar[str] = "team"


@dataclass(frozen=True, slots=True)
class SilentDiscussion(Discussion):
    """Members none of whose messages arrive."""

    name: ClassVar[str] = "cut"


@dataclass(frozen=True, slots=True)
class FullProfile(SilentDiscussion):
    """One member who knows all facts; its vote counts for all."""

    num_turns: int = 1

    name: ClassVar[str] = "full"
    roles: ClassVar[tuple[Role, ...]] = (Role(MEMBER, JOB, informed=True),)

    def start(self, task_state: ProfileState) -> DiscussionState:
        """The only member's vote."""
        return SilentDiscussion.start(self, task_state._replace(num_members=1))
