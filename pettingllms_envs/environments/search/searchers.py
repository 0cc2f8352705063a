"""Workflows of search: a searcher and an answerer, or one agent that does both.

* `team`: in each turn the `searcher` searches once, then the `answerer`, who cannot search, reads what was found and
  either answers, which ends the episode, or asks for more in a message of at most 120 characters.
* `single`: one `searcher`, who in each turn searches or answers. By default it has as many replies as the team.

All agents see the question, the searches and the latest passages, at most `max_passages`, quoted. Passages
may say the answer, so all roles are `informed`. An episode ends with the answer, right or wrong.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

from pettingllms_envs.core import TEAM, UNREADABLE_PENALTY, Role, Transition, check_whole, part_ranges
from pettingllms_envs.environments.search.rules import ANSWER, ASK, MOST_QUERY, SEARCH, Search, SearchMove, SearchState
from pettingllms_envs.quoting import quote
from pettingllms_envs.retrieval import Passage
from pettingllms_envs.state_digest import Reported
from pettingllms_envs.teams.base import BaseWorkflow, move_of_kind
from pettingllms_envs.teams.channels import NO_MESSAGES, Channel, CountedMessages, Sent


SEARCHER, ANSWERER = "searcher", "answerer"
SEARCH_COST = -0.01
SEARCH_FORMAT = f"To search, end your reply with one line: Search: and at most {MOST_QUERY} characters."
CHANNEL = Channel(120)
ASK_FORMAT = (
    "To ask the searcher for something else, end your reply with one line: Ask: and at most"
    f" {CHANNEL.capacity} characters."
)
SEARCHER_JOB = "You are the searcher. You search, and the answerer answers from what you find."
ANSWERER_JOB = "You are the answerer. You cannot search. You answer from what the searcher finds."
LONE_JOB = "You are the searcher. You search and answer."


class SearchingState(NamedTuple):
    """A moment of an episode.

    Args:
        turn: The turn, from 1.
        answers: Whether the answerer is to act.
        asked: The answerer's last message, if any.
        feedback: For each agent, the words about its last reply if that was unreadable.
        reported: How many messages were sent, and their characters.
    """

    task: SearchState
    turn: int
    answers: bool
    asked: Sent | None
    feedback: tuple[str, ...]
    reported: Reported = NO_MESSAGES


@dataclass(frozen=True, slots=True)
class SearchWorkflow(CountedMessages, BaseWorkflow[SearchState, SearchMove]):
    """What the workflows of search share.

    Args:
        max_passages: Most passages in a prompt, the latest ones, 1 to 50.
    """

    task: Search
    max_passages: int = 6

    members: ClassVar[tuple[str, ...]]

    def __post_init__(self) -> None:
        BaseWorkflow.__post_init__(self)
        check_whole("max_passages", self.max_passages, 1, 50)

    def kinds(self, role: str) -> tuple[str, ...]:
        """What an agent's replies may be."""
        raise NotImplementedError

    def start(self, task_state: SearchState) -> SearchingState:
        """Turn 1, the searcher to act."""
        return SearchingState(task_state, 1, False, None, ("",) * len(self.members))

    def actor(self, state: SearchingState) -> str:
        """The searcher, then the answerer where there is one."""
        return self.members[state.answers]

    def observe(self, state: SearchingState, role: str) -> str:
        """The question, the searches, the latest passages, the answerer's message, and feedback."""
        lines = [f"Turn {state.turn} of {self.num_turns}.", self.task.show(state.task), *self._found(state.task)]
        if state.asked is not None:
            lines.append(state.asked.shown)
        return "\n".join([*lines, *filter(None, [state.feedback[self.members.index(role)]])])

    def step(self, state: SearchingState, reply: str) -> Transition[SearchingState]:
        """Search, ask or answer."""
        role = self.actor(state)
        move, why = move_of_kind(self.task.parse(reply), self.kinds(role))
        words = f"Your last reply was unreadable: {why}." if why else ""
        feedback = dict(zip(self.members, state.feedback, strict=True)) | {role: words}
        noted = state._replace(feedback=tuple(feedback.values()))
        if move is None:
            return self._next(noted, {role: {"format": UNREADABLE_PENALTY}})
        after = noted._replace(task=self.task.apply(state.task, move))
        if move.kind == ANSWER:
            team = {"progress": 1.0, "success": 1.0} if self.task.solved(after.task) else {}
            return after, {TEAM: team} if team else {}, True, False
        if move.kind == SEARCH:
            return self._next(after, {role: self._search_parts(state.task, after.task)})
        sent = CHANNEL.send(role, move.text)
        reported = state.reported.plus(messages=1, message_chars=len(sent.text))
        return self._next(after._replace(asked=sent, reported=reported), {})

    def oracle(self, state: SearchingState) -> str:
        """A search for what is missing, a request for it, or the answer."""
        kinds, best = self.kinds(self.actor(state)), self.task.oracle(state.task)
        if ANSWER in kinds and (best.kind == ANSWER or state.turn == self.num_turns):
            return self.task.write(SearchMove(ANSWER, state.task.problem.answers[0]))
        if SEARCH not in kinds:
            return self.task.write(SearchMove(ASK, best.text))
        query = best.text if best.kind == SEARCH else state.task.problem.statement[:MOST_QUERY]
        return self.task.write(SearchMove(SEARCH, query))

    def ranges(self) -> Mapping[str, tuple[float, float]]:
        """Progress, success, format and searches; support, if it is paid."""
        ranges = part_ranges(self.task) | {"searches": (SEARCH_COST, 0.0)}
        return ranges | ({"support": (0.0, 1.0)} if self.task.support_reward else {})

    def _search_parts(self, before: SearchState, after: SearchState) -> Mapping[str, float]:
        """The cost of a search and the share of the needed passages that it showed first."""
        cost = {"searches": SEARCH_COST}
        if not self.task.support_reward:
            return cost
        return cost | {"support": self.task.support(after) - self.task.support(before)}

    def _next(self, state: SearchingState, parts: Mapping[str, Mapping[str, float]]) -> Transition[SearchingState]:
        """The next agent's move, or the end of the episode without an answer."""
        if not state.answers and len(self.members) > 1:
            return state._replace(answers=True), parts, False, False
        if state.turn == self.num_turns:
            return state, parts, False, True
        return state._replace(answers=False, turn=state.turn + 1), parts, False, False

    def _found(self, state: SearchState) -> list[str]:
        """The searches, and the latest passages."""
        if not state.queries:
            return ["Nothing was searched yet."]
        lines = ["Searches so far:", *map(quote, state.queries)]
        if not state.passages:
            return [*lines, "They found nothing."]
        latest = state.passages[-self.max_passages :]
        which = "Passages" if len(latest) == len(state.passages) else f"The latest {len(latest)} passages"
        return [*lines, f"{which} that they found:", *map(_shown, latest)]


@dataclass(frozen=True, slots=True)
class SearchTeam(SearchWorkflow):
    """A searcher and an answerer."""

    name: ClassVar[str] = "team"
    members: ClassVar[tuple[str, ...]] = (SEARCHER, ANSWERER)

    @property
    def roles(self) -> tuple[Role, ...]:
        """The searcher, paid later if nothing is paid for what it finds, and the answerer."""
        delayed = not self.task.support_reward
        return (
            Role(SEARCHER, SEARCHER_JOB, delayed=delayed, informed=True),
            Role(ANSWERER, ANSWERER_JOB, informed=True),
        )

    @property
    def channel(self) -> Channel:
        """The channel of the answerer's messages."""
        return CHANNEL

    def kinds(self, role: str) -> tuple[str, ...]:
        """The searcher searches, the answerer asks and answers."""
        return (SEARCH,) if role == SEARCHER else (ASK, ANSWER)

    def system(self, role: str) -> str:
        """The rules, the job, how to reply."""
        if role == SEARCHER:
            return "\n".join([self.task.rules(), SEARCHER_JOB, SEARCH_FORMAT])
        return "\n".join([self.task.rules(), ANSWERER_JOB, self.task.reply_format(), ASK_FORMAT])


@dataclass(frozen=True, slots=True)
class LoneSearcher(SearchWorkflow):
    """One agent that searches and answers."""

    num_turns: int = 8

    name: ClassVar[str] = "single"
    members: ClassVar[tuple[str, ...]] = (SEARCHER,)
    roles: ClassVar[tuple[Role, ...]] = (Role(SEARCHER, LONE_JOB, informed=True),)

    def kinds(self, role: str) -> tuple[str, ...]:
        """It searches and answers."""
        return (SEARCH, ANSWER)

    def system(self, role: str) -> str:
        """The rules, the job, how to reply."""
        return "\n".join([self.task.rules(), LONE_JOB, self.task.reply_format(), SEARCH_FORMAT])


def _shown(passage: Passage) -> str:
    return quote(f"{passage.title}: {passage.text}" if passage.title else passage.text)
