"""Workflows of archives: librarians of one archive each who tell each other, and one agent with one or both archives.

In each turn one librarian first searches, then sees what was found and tells the others: two replies. The librarians
take turns. With `order="question"` the one whose archive has the first fact begins, and after as many turns as the
question has hops (or more, `num_turns`) it is answered; the order then says which archive each hop needs. With
`order="seed"` who begins is drawn by the seed, and there is one turn more: who cannot go on passes the name on.
Messages are cut after `capacity` characters; the last two are shown.

* `team`: `librarian_0` and `librarian_1`, each with the archive of its number, and an `answerer`, who is shown the
  question and messages, never a passage.
* `pair`: two librarians; the one who searches last answers instead of telling.
* `cut`, `cut_pair`: the same two, but no message arrives. The answer can only be guessed: right in `lone_bound` of the
  episodes.
* `alone`: one `librarian` with one archive, who tells itself; as many replies as the team, or as a pair
  (`answers_last`). It is right at most in `lone_bound` of the episodes, if it sees its prompts and no rewards.
* `full`: the same with both archives: what messages cannot add to. It begins at once, and its turn more is the last.
* `directed`: the same with both archives, but each request to search names the archive that has the step's fact.
* `routed`: the same, but in each turn it searches one archive, that of the team's librarian of that turn.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

from pettingllms_envs.core import TEAM, UNREADABLE_PENALTY, Role, Transition, check_choice, part_ranges
from pettingllms_envs.environments.archives.rules import (
    ANSWER,
    MOST_QUERY,
    SAY,
    SEARCH,
    Archives,
    ArchivesMove,
    ArchivesState,
)
from pettingllms_envs.environments.archives.world import ARCHIVES, archive_of, drawn_archive
from pettingllms_envs.features import Form, Forms
from pettingllms_envs.state_digest import Reported
from pettingllms_envs.teams.base import move_of_kind
from pettingllms_envs.teams.channels import NO_MESSAGES, CountedMessages, LimitedMessages, Sent


Librarians = Mapping[str, tuple[int, ...]]
"""The librarians, in the order of their archives, with the archives that each can search."""

LIBRARIAN, ANSWERER = "librarian", "answerer"
ORDERS = ("question", "seed")
BOTH: Librarians = {f"{LIBRARIAN}_{archive}": (archive,) for archive in ARCHIVES}
MESSAGES_SHOWN = 2
LIBRARIAN_JOB = "First you search, then you see what was found, and tell in a message what is needed next."
LATE_JOB = "The first turn may be of the archive that the first step does not need; then pass on the name as it is."
EARLY_JOB = "There is one turn more than the question has steps; in it pass on the name as it is."
ANSWERER_JOB = "You are the answerer. You cannot search. The librarians tell you what they find, and you answer."
SEARCH_FORMAT = (
    f"When you are asked to search, end your reply with one line: Search: and at most {MOST_QUERY} characters."
)


class LibraryState(NamedTuple):
    """A moment of an episode.

    Args:
        turn: The librarians' turn, from 1; while the question is answered it is the last one.
        phase: What the acting agent is to do: `"search"`, `"say"` or `"answer"`.
        results: For each librarian, the passages that its last search showed; None if there was none.
        messages: The last messages that arrived.
        feedback: For each agent, the words about its last reply if that was unreadable.
        reported: How many messages arrived, and their characters.
    """

    task: ArchivesState
    turn: int
    phase: str
    results: tuple[tuple[str, ...] | None, ...]
    messages: tuple[Sent, ...]
    feedback: tuple[str, ...]
    reported: Reported = NO_MESSAGES


@dataclass(frozen=True, slots=True)
class LibraryWorkflow(CountedMessages):
    """What the workflows of archives share.

    Args:
        num_turns: Turns of librarians, at least the hops of a question, and one more if the seed draws who begins; 0
            for as many as that.
        order: `"question"` or `"seed"`: what decides who begins.
    """

    task: Archives
    num_turns: int = 0
    order: str = "seed"

    name: ClassVar[str]
    cyclic: ClassVar[bool] = False
    spare_turn: ClassVar[str] = LATE_JOB
    """What librarians are told of the additional turn if the seed draws who begins."""
    answers_last = False
    """Whether the one who searches last answers instead of telling."""

    def __post_init__(self) -> None:
        check_choice("order", self.order, ORDERS)
        least, why = self.task.hops, "a turn for each hop"
        if self.order == "seed":
            least, why = least + 1, f"{why} and one for who cannot begin"
        if not isinstance(self.num_turns, int) or 0 != self.num_turns < least:
            raise ValueError(f"num_turns is {self.num_turns!r}; expected 0 or at least {least}, {why}. Leave it out.")
        object.__setattr__(self, "num_turns", self.num_turns or least)

    @property
    def librarians(self) -> Librarians:
        """By default one for each archive."""
        return BOTH

    @property
    def members(self) -> tuple[str, ...]:
        """All agents: the librarians, and the answerer where there is one."""
        return (*self.librarians,) if self.answers_last or len(self.librarians) == 1 else (*self.librarians, ANSWERER)

    @property
    def roles(self) -> tuple[Role, ...]:
        """Librarians, paid later if nothing is paid for searches and messages, and the answerer where there is one."""
        delayed = not self.task.communication_reward
        librarian = Role(LIBRARIAN, LIBRARIAN_JOB, delayed=delayed, count=len(self.librarians))
        return (librarian, Role(ANSWERER, ANSWERER_JOB)) if ANSWERER in self.members else (librarian,)

    def deliver(self, sender: str, text: str) -> Sent | None:
        """The message as it arrives, or None if it does not, as here."""
        return None

    def start(self, task_state: ArchivesState) -> LibraryState:
        """The first turn, whose librarian is to search."""
        return LibraryState(task_state, 1, SEARCH, (None,) * len(self.librarians), (), ("",) * len(self.members))

    def actor(self, state: LibraryState) -> str:
        """The librarian of the turn, or who answers."""
        if state.phase == ANSWER and ANSWERER in self.members:
            return ANSWERER
        return tuple(self.librarians)[ARCHIVES.index(self._archive(state)) % len(self.librarians)]

    def system(self, role: str) -> str:
        """The rules, the job, how to reply."""
        formats = [SEARCH_FORMAT, self.say_format()] if role in self.librarians else []
        answers = [self.task.reply_format()] if role == ANSWERER or ANSWERER not in self.members else []
        return "\n".join([self.task.rules(), self._job(role), *answers, *formats])

    def say_format(self) -> str:
        """How a message is written."""
        return "When you are asked to tell, end your reply with one line: Say: and your message."

    def observe(self, state: LibraryState, role: str) -> str:
        """The question, the last messages, what the agent's last search found, and what it is to do now."""
        lines = [self.task.show(state.task), *(sent.shown for sent in state.messages)]
        if role in self.librarians and (found := state.results[list(self.librarians).index(role)]) is not None:
            lines += ["Your last search found:" if found else "Your last search found nothing.", *found]
        lines += filter(None, [state.feedback[self.members.index(role)]])
        return "\n".join([*lines, self._request(state, role)])

    def step(self, state: LibraryState, reply: str) -> Transition[LibraryState]:
        """Search, tell or answer; the episode ends with the answer."""
        role = self.actor(state)
        move, why = move_of_kind(self.task.parse(reply), (state.phase,))
        feedback = f"Your last reply was unreadable: {why}." if why else ""
        after = state._replace(feedback=_with(state.feedback, self.members.index(role), feedback))
        if move is not None:
            after = {SEARCH: self._search, SAY: self._say, ANSWER: self._answer}[state.phase](after, role, move)
        elif state.phase == SEARCH:
            after = self._with_results(after, role, None)
        own = {"format": UNREADABLE_PENALTY} if why else self._communicated(state, after)
        parts: dict[str, Mapping[str, float]] = {role: own} if own else {}
        if state.phase == ANSWER:
            if self.task.solved(after.task):
                parts[TEAM] = {"progress": 1.0, "success": 1.0}
            return after, parts, True, False
        return self._next(after), parts, False, False

    def oracle(self, state: LibraryState) -> str:
        """The name to search, to tell or to answer."""
        if state.phase == ANSWER:
            return self.task.write(self.task.oracle(state.task))
        own = self.searched(state, self.actor(state))
        return self.task.write(self.task.wanted(state.task, own, state.phase, self._hop(state, own)))

    def searched(self, state: LibraryState, role: str) -> tuple[int, ...]:
        """The archives that a librarian can search in the turn: always the same but in `routed`."""
        return self.librarians[role]

    def _hop(self, state: LibraryState, own: tuple[int, ...]) -> int:
        """The hop that is due in the turn of who can search these archives: -1 before the first."""
        return state.turn - 1 - self._is_late(state, own)

    def _is_late(self, state: LibraryState, own: tuple[int, ...]) -> bool:
        """Whether the first turn is of the archive that the first hop does not need."""
        return own != ARCHIVES and self._begins(state) != archive_of(self.task.world(state.task).chain.relations[0])

    def _begins(self, state: LibraryState) -> int:
        """The archive of the first turn."""
        if self.order == "seed":
            return drawn_archive(state.task.split, state.task.seed)
        return archive_of(self.task.world(state.task).chain.relations[0])

    def _archive(self, state: LibraryState) -> int:
        """The archive of the turn: they take turns."""
        return ARCHIVES[(ARCHIVES.index(self._begins(state)) + state.turn - 1) % len(ARCHIVES)]

    def ranges(self) -> Mapping[str, tuple[float, float]]:
        """Progress, success and format; found and told, if they are paid."""
        ranges = part_ranges(self.task)
        return ranges | ({"found": (0.0, 1.0), "told": (0.0, 1.0)} if self.task.communication_reward else {})

    def _search(self, state: LibraryState, role: str, move: ArchivesMove) -> LibraryState:
        task_state, passages = self.task.search(state.task, self.searched(state, role), move.text)
        return self._with_results(state._replace(task=task_state), role, tuple(each.text for each in passages))

    def _say(self, state: LibraryState, role: str, move: ArchivesMove) -> LibraryState:
        sent = self.deliver(role, move.text)
        if sent is None:
            return state
        return state._replace(
            task=self.task.tell(state.task, self.searched(state, role), sent.text),
            messages=(*state.messages, sent)[-MESSAGES_SHOWN:],
            reported=state.reported.plus(messages=1, message_chars=len(sent.text)),
        )

    def _answer(self, state: LibraryState, role: str, move: ArchivesMove) -> LibraryState:
        return state._replace(task=self.task.apply(state.task, move))

    def _communicated(self, before: LibraryState, after: LibraryState) -> Mapping[str, float]:
        """What was newly found or told, in shares of the hops."""
        if not self.task.communication_reward or before.phase == ANSWER:
            return {}
        if before.phase == SEARCH:
            return {"found": (sum(after.task.found) - sum(before.task.found)) / self.task.hops}
        told = sum(after.task.told) - sum(before.task.told) + self._passed_on(before, after)
        return {"told": told / self.task.hops}

    def _passed_on(self, before: LibraryState, after: LibraryState) -> float:
        """What passing the name on is worth: in one turn of an episode, the one that no step needs."""
        own = self.searched(before, self.actor(before))
        hop = self._hop(before, own)
        no_step = self.order == "seed" and hop == (-1 if self._is_late(before, own) else self.task.hops)
        is_told = after.reported != before.reported
        return self.task.passed_on(before.task, hop, after.messages[-1].text) if no_step and is_told else 0.0

    def _next(self, state: LibraryState) -> LibraryState:
        """The phase after a search or a message."""
        is_last = state.turn == self.num_turns
        if state.phase == SEARCH:
            return state._replace(phase=ANSWER if is_last and self.answers_last else SAY)
        return state._replace(phase=ANSWER) if is_last else state._replace(phase=SEARCH, turn=state.turn + 1)

    def _with_results(self, state: LibraryState, role: str, results: tuple[str, ...] | None) -> LibraryState:
        return state._replace(results=_with(state.results, list(self.librarians).index(role), results))

    def _request(self, state: LibraryState, role: str) -> str:
        """What the agent is asked to do."""
        if role != self.actor(state):
            return "Another agent is to act."
        if state.phase == SEARCH:
            return f"Search {_archives(self.searched(state, role))} now."
        return "Tell what you know now." if state.phase == SAY else "Answer the question now."

    def _job(self, role: str) -> str:
        if role == ANSWERER:
            return ANSWERER_JOB
        name = f"You are {role}." if len(self.librarians) > 1 else f"You are the {role}."
        spare = "" if self.order == "question" else f" {self.spare_turn}"
        return f"{name} You can search {_archives(self.librarians[role])}. {LIBRARIAN_JOB}{spare}"


@dataclass(frozen=True, slots=True)
class TalkingLibrarians(LimitedMessages, LibraryWorkflow):
    """What the workflows with messages share."""

    capacity: int = 60

    def say_format(self) -> str:
        """How a message is written, and its length."""
        return (
            f"When you are asked to tell, end your reply with one line: Say: and at most {self.capacity} characters."
        )


@dataclass(frozen=True, slots=True)
class LibrarianTeam(TalkingLibrarians):
    """Two librarians and an answerer."""

    name: ClassVar[str] = "team"

    @property
    def forms(self) -> Forms:
        """With as many turns and replies. The answerer alone is shown what it is shown in `cut`."""
        own = {"num_turns": self.num_turns, "order": self.order}
        as_many = {**own, "answers_last": self.answers_last}
        members = list(BOTH)
        return Forms(
            full=Form({"workflow": FullLibrarian.name, **as_many}, members[0]),
            routed=Form({"workflow": RoutedLibrarian.name, **as_many}, members[0]),
            cut=Form({"workflow": SilentPair.name if self.answers_last else SilentLibrarians.name, **own}),
            alone=[
                Form({"workflow": LoneLibrarian.name, "archive": archive, **as_many}, member)
                for member, archive in zip(members, ARCHIVES, strict=True)
            ],
        )


@dataclass(frozen=True, slots=True)
class LibrarianPair(LibrarianTeam):
    """Two librarians, the last of whom answers."""

    name: ClassVar[str] = "pair"
    answers_last = True


@dataclass(frozen=True, slots=True)
class SilentLibrarians(LibraryWorkflow):
    """Two librarians and an answerer, none of whose messages arrive."""

    name: ClassVar[str] = "cut"


@dataclass(frozen=True, slots=True)
class SilentPair(SilentLibrarians):
    """Two librarians, the last of whom answers, and no message arrives."""

    name: ClassVar[str] = "cut_pair"
    answers_last = True


@dataclass(frozen=True, slots=True)
class LoneLibrarian(TalkingLibrarians):
    """One librarian of one archive.

    Args:
        archive: 0 or 1.
        answers_last: Whether it answers after the last search, as in a pair, instead of telling first.
    """

    archive: int = ARCHIVES[0]
    answers_last: bool = False

    name: ClassVar[str] = "alone"

    def __post_init__(self) -> None:
        TalkingLibrarians.__post_init__(self)
        check_choice("archive", self.archive, ARCHIVES)

    @property
    def librarians(self) -> Librarians:
        """One, with its archive."""
        return {LIBRARIAN: (self.archive,)}


@dataclass(frozen=True, slots=True)
class FullLibrarian(TalkingLibrarians):
    """One librarian of both archives.

    Args:
        answers_last: Whether it answers after the last search, as in a pair, instead of telling first.
    """

    answers_last: bool = False

    name: ClassVar[str] = "full"
    spare_turn: ClassVar[str] = EARLY_JOB

    @property
    def librarians(self) -> Librarians:
        """One, with both archives."""
        return {LIBRARIAN: ARCHIVES}


@dataclass(frozen=True, slots=True)
class DirectedLibrarian(FullLibrarian):
    """One librarian of both archives, who searches both and is told which one has the fact of the turn's step.

    Beside `full` it shows what knowing the archive is worth, beside `routed` what being shown the other one costs.
    """

    name: ClassVar[str] = "directed"

    def _request(self, state: LibraryState, role: str) -> str:
        relations = self.task.world(state.task).chain.relations
        if state.phase == SEARCH and state.turn <= len(relations):
            return f"Search archive {archive_of(relations[state.turn - 1])} now."
        return LibraryWorkflow._request(self, state, role)


@dataclass(frozen=True, slots=True)
class RoutedLibrarian(FullLibrarian):
    """One librarian of both archives, who in each turn searches the one that the team would search.

    It is told that in the request, and nothing else; so beside `full` it shows what the team's order is worth.
    """

    name: ClassVar[str] = "routed"
    spare_turn: ClassVar[str] = LATE_JOB

    def searched(self, state: LibraryState, role: str) -> tuple[int, ...]:
        """The archive of the team's librarian of the turn."""
        return (self._archive(state),)


def _archives(archives: tuple[int, ...]) -> str:
    return " and ".join(f"archive {archive}" for archive in archives)


def _with(items: tuple[Any, ...], index: int, item: Any) -> tuple[Any, ...]:
    return (*items[:index], item, *items[index + 1 :])


WORKFLOWS = (
    *(LibrarianTeam, LibrarianPair, SilentLibrarians, SilentPair),
    *(LoneLibrarian, FullLibrarian, DirectedLibrarian, RoutedLibrarian),
)
"""The workflows of the environment, the default one first."""
