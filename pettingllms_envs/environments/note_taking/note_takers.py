"""Workflows of note taking: two note takers with and without messages, one alone, and one that is shown everything.

The readings pass one by one, and the agent that is shown one may rewrite its notes: `readings` replies, however many
agents there are. Then one reading is asked for. All agents act in one order, and what each is shown depends on nothing
but its own notes once the question is known; whether its last reply was unreadable is shown only before.

* `team`: `left` and `right` have a stream and notes each. One of them is asked for a reading of the other's stream, so
  the other one, who knows the question, first tells it in a message of as many digits as a reading has. With
  `answerer="watcher"` the one who saw the reading is asked, and nobody needs a message.
* `cut`: the same, but the message does not arrive. The answer can only be guessed: right in 1 of `values` episodes.
* `alone`: one `watcher` sees all readings, one by one, with the notes of one. It is right at most in `lone_bound` of
  the episodes.
* `full`: the same, and every prompt has all readings so far: what communication and notes cannot add to.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

from pettingllms_envs.core import TEAM, UNREADABLE_PENALTY, Role, Transition, Unreadable, check_choice, part_ranges
from pettingllms_envs.environments.note_taking.rules import ANSWER, NOTES, SAY, DigitsMove, NoteTaking, NoteTakingState
from pettingllms_envs.features import Form, Forms


ANSWERERS = ("other", "watcher")
SAY_FORMAT = "When another agent is asked about your stream, end it with one line: Say: and the digits of the reading."


class NotesState(NamedTuple):
    """A moment of an episode.

    Args:
        turn: The number of the reply, from 1.
        feedback: For each agent, the words about its last reply if that was unreadable.
    """

    task: NoteTakingState
    turn: int = 1
    feedback: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class NoteTakingWorkflow:
    """What the workflows of note taking share.

    Args:
        num_turns: Replies of an episode; 0 is what it takes, and nothing else will do.
    """

    task: NoteTaking
    num_turns: int = 0

    name: ClassVar[str]
    cyclic: ClassVar[bool] = False
    members: ClassVar[tuple[str, ...]]
    delivers: ClassVar[bool] = True
    """Whether messages arrive."""
    remembers: ClassVar[bool] = False
    """Whether all readings so far are shown."""

    def __post_init__(self) -> None:
        needed = self.task.readings + 1 + self.tells
        if self.num_turns not in (0, needed):
            raise ValueError(f"num_turns is {self.num_turns!r}; expected {needed}, which it takes. Leave it out.")
        object.__setattr__(self, "num_turns", needed)

    @property
    def tells(self) -> bool:
        """Whether a message comes before the answer."""
        return len(self.members) > 1

    @property
    def roles(self) -> tuple[Role, ...]:
        """One role for each note taker; paid later if nothing is paid for notes and messages."""
        delayed = not self.task.communication_reward
        return tuple(Role(member, self._job(member), delayed=delayed) for member in self.members)

    def start(self, task_state: NoteTakingState) -> NotesState:
        """The first reading, nothing noted."""
        empty = ("",) * len(self.members)
        return NotesState(task_state._replace(notes=empty), feedback=empty)

    def actor(self, state: NotesState) -> str:
        """Whose reading it is; then who saw the one that is asked for, if it tells; then who is asked."""
        if (at := state.task.num_passed) < self.task.readings:
            return self.members[at % len(self.members)]
        asked = state.task.question + (self.tells and state.turn == self.num_turns)
        return self.members[asked % len(self.members)]

    def system(self, role: str) -> str:
        """The rules, the job, how to reply."""
        say = SAY_FORMAT if self.tells else ""
        return "\n".join(filter(None, (self.task.rules(), self._job(role), self.task.reply_format(), say)))

    def observe(self, state: NotesState, role: str) -> str:
        """The agent's reading, or the question, and its notes."""
        member = self.members.index(role)
        notes = f"Your notes: {state.task.notes[member] or 'none'}"
        is_acting = role == self.actor(state)
        shown = self._readings(state) if self.remembers else ""
        if state.task.num_passed < self.task.readings:
            reading = self._reading(state) if is_acting else "Another agent's reading passes."
            return "\n".join(filter(None, (shown, reading, notes, state.feedback[member])))
        question = self._question(state, role) if is_acting else "All readings have passed."
        return "\n".join(filter(None, (shown, question, notes, self._message(state, role))))

    def step(self, state: NotesState, reply: str) -> Transition[NotesState]:
        """Take the notes, the message or the answer; the episode ends with the answer."""
        task, role, kind = self.task, self.actor(state), self._kind(state)
        move, reason = self._read(reply, kind)
        after = task.apply(state.task, move)
        feedback = f"Your last reply was unreadable: {reason}. Your notes are as they were." if reason else ""
        member = self.members.index(role)
        own = {"format": UNREADABLE_PENALTY} if reason else self._communicated(state.task, after, kind)
        following = NotesState(
            after,
            min(state.turn + 1, self.num_turns),
            (*state.feedback[:member], feedback, *state.feedback[member + 1 :]),
        )
        parts: dict[str, Mapping[str, float]] = {role: own} if own else {}
        is_over = kind == ANSWER
        if is_over and task.solved(after):
            parts[TEAM] = {"progress": 1.0, "success": 1.0}
        return following, parts, is_over, False

    def oracle(self, state: NotesState) -> str:
        """Notes in order, the reading that is asked for as the message, and as the answer."""
        move = self.task.oracle(state.task)
        return self.task.write(move._replace(kind=self._kind(state)))

    def ranges(self) -> Mapping[str, tuple[float, float]]:
        """Progress, success and format; noted and told, if they are paid."""
        ranges = part_ranges(self.task)
        if self.task.communication_reward:
            ranges["noted"] = (-1.0, 1.0)
            if self.tells and self.delivers:
                ranges["told"] = (0.0, 1.0)
        return ranges

    def _kind(self, state: NotesState) -> str:
        """What the acting agent is to write."""
        if state.task.num_passed < self.task.readings:
            return NOTES
        return SAY if self.tells and state.turn < self.num_turns else ANSWER

    def _read(self, reply: str, kind: str) -> tuple[DigitsMove | None, str]:
        """The move, or None and why the reply is unreadable."""
        move = self.task.parse(reply)
        if isinstance(move, Unreadable):
            return None, move.reason
        if move.kind != kind:
            return None, f"its last line is not {kind.capitalize()!r} with digits"
        return move, ""

    def _communicated(self, before: NoteTakingState, after: NoteTakingState, kind: str) -> Mapping[str, float]:
        """What the writer is paid for notes or a message."""
        if not self.task.communication_reward:
            return {}
        if kind == NOTES:
            member = before.num_passed % len(self.members)
            return {"noted": self.task.noted(after, member) - self.task.noted(before, member)}
        if kind == SAY and self.delivers:
            return {"told": float(self.task.is_asked_for(after, after.message))}
        return {}

    def _job(self, role: str) -> str:
        if len(self.members) == 1:
            return f"You are the {role}. You see all readings."
        other = self.members[1 - self.members.index(role)]
        end = "The one who did not see it is asked, after a message from the one who did."
        return (
            f"You are {role}, one of two note takers. The readings pass in turn for you and for {other}, each with"
            f" notes of its own. {end if self.tells else 'The one who saw it is asked.'}"
        )

    def _reading(self, state: NotesState) -> str:
        """The acting agent's current reading."""
        at, count = state.task.num_passed, len(self.members)
        reading = self.task.write_reading(state.task.readings[at])
        return f"Your reading {at // count + 1} of {self.task.readings // count}: {reading}"

    def _readings(self, state: NotesState) -> str:
        """All earlier readings, of a workflow with one agent."""
        seen = state.task.readings[: state.task.num_passed]
        return "\n".join(f"Reading {at}: {self.task.write_reading(each)}" for at, each in enumerate(seen, 1))

    def _question(self, state: NotesState, role: str) -> str:
        number, member = divmod(state.task.question, len(self.members))
        whose = "your" if self.members[member] == role else f"{self.members[member]}'s"
        if self._kind(state) == SAY:
            other = self.members[1 - member]
            return f"All readings have passed. {other.capitalize()} is asked for your reading {number + 1}."
        return f"All readings have passed. You are asked for {whose} reading {number + 1}."

    def _message(self, state: NotesState, role: str) -> str:
        """The message, for the one that it is for."""
        if not (self.tells and self.delivers and state.turn == self.num_turns):
            return ""
        sender = self.members[state.task.question % len(self.members)]
        return "" if sender == role else f"{sender.capitalize()} tells you: {state.task.message or 'nothing'}"


@dataclass(frozen=True, slots=True)
class NoteTakers(NoteTakingWorkflow):
    """Two note takers, one of whom tells the other.

    Args:
        answerer: Who is asked: `"other"`, the one who did not see the reading, or `"watcher"`, who did.
    """

    answerer: str = ANSWERERS[0]

    name: ClassVar[str] = "team"
    members: ClassVar[tuple[str, ...]] = ("left", "right")

    def __post_init__(self) -> None:
        check_choice("answerer", self.answerer, ANSWERERS)
        NoteTakingWorkflow.__post_init__(self)

    @property
    def tells(self) -> bool:
        """Whether the one who is asked did not see the reading."""
        return self.answerer == ANSWERERS[0]

    @property
    def forms(self) -> Forms:
        """`cut` is a form only where there are messages. A lone watcher has the notes of either."""
        cut = Form({"workflow": SilentNoteTakers.name}) if self.tells else None
        player = f"{self.members[0]}_0"
        full, alone = (Form({"workflow": workflow.name}, player) for workflow in (FullView, LoneNoteTaker))
        return Forms(full=full, cut=cut, alone=(alone,))


@dataclass(frozen=True, slots=True)
class SilentNoteTakers(NoteTakingWorkflow):
    """Two note takers whose messages do not arrive."""

    name: ClassVar[str] = "cut"
    members: ClassVar[tuple[str, ...]] = ("left", "right")
    delivers: ClassVar[bool] = False


@dataclass(frozen=True, slots=True)
class LoneNoteTaker(NoteTakingWorkflow):
    """One note taker for all readings."""

    name: ClassVar[str] = "alone"
    members: ClassVar[tuple[str, ...]] = ("watcher",)


@dataclass(frozen=True, slots=True)
class FullView(LoneNoteTaker):
    """One agent whose prompts have all readings so far."""

    name: ClassVar[str] = "full"
    remembers: ClassVar[bool] = True
