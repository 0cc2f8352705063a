"""Note taking: readings pass once, notes hold a few digits, and at the end one of the readings is asked for.

Rules: `readings` numbers pass one after another, each shown once to one agent, who may then rewrite its notes: at most
`digits` digits, and nothing else. After the last one, one reading is asked for. Nobody can look back, so all that an
agent knows of earlier readings are its notes. The agents are those of the workflows: two note takers with a stream
and notes each (`team`, and `cut` without messages), or one for all readings (`alone`, and `full`, which sees
everything).
Replies: the last line, `Notes: 04170932`, `Say: 0417` or `Answer: 0417`; spaces between digits do not matter.
Rewards: team `progress` and `success`, both 1 for the right answer. To the agent that writes, in its own scope, what
its reader can now answer and could not before: `noted`, the change of the share of all readings that its notes have
in their places (reading k of its stream in the k-th group of as many digits as a number has), and `told`, 1 for a
message with the reading that was asked for. Both are changes of a potential, so repeating or rewriting earns nothing.
Without them (`communication_reward=False`) only the answer is paid, and the roles are declared as paid later.
Outcome: `noted`, the share of all readings that notes have; `told`; `lone_bound`, of agents that see prompts only,
see below.
Lone bound: two note takers can be right always if both have room for their streams. One with the same room and
the same number of replies is right at most in `NoteTaking.lone_bound()` of the episodes, whatever it writes:
`bound` has the proof. With 16 readings of 10,000 values and 32 digits that is
56.3%, with 8 of 1,000 and 12 digits 50.8%. It is a bound of notes that are written when all readings are known, and
is not known to be reached by an agent that reads in order: who writes readings down as they come is right in 50.0%
and 50.0%; with 4 of 10 and 2 digits in 55.0%, the best that a search found in 57.8%, where the
bound is 60.5% (docs/cooperation.md). It is a law about bounded notes and data that pass
once, such as meetings or logs, and not about intelligence: an agent that may read again does not need a team. It holds
for agents that see their prompts and nothing else: rewards, and `noted` and `told` in the outcome, say more about the
readings than notes do.
Instances: a seed decides the readings and the question, all independent and uniform. That is what the proof needs, so
nothing is rejected to keep splits apart: they have different random numbers, and the same instance in two of them has
a probability of one in `values ** readings` for each pair.
Oracle: notes are the readings in order, from what their agent can see; the answer is right in any case, also in
workflows where no agent could know it.
Source: our own. The bound is Hamming's.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from functools import partial
from typing import ClassVar, NamedTuple

from pettingllms_envs.bounds import BlindPolicy, Memory, always
from pettingllms_envs.core import SPLITS, Unreadable, check_choice, check_whole
from pettingllms_envs.environments.note_taking.bound import count_notes, counting_bound
from pettingllms_envs.instances import seeded
from pettingllms_envs.replies.moves import match_last_line
from pettingllms_envs.tasks.base import OpenTask


NOTES, SAY, ANSWER = "notes", "say", "answer"
NUM_NOTE_TAKERS = 2
MOST_READINGS, MOST_VALUES, MOST_DIGITS = 100, 10**6, 500
MOST_GUESSES = 100
"""Most values whose constant answers are all played; of more, each is right in less than 1%."""

_LINE = re.compile(rf"({NOTES}|{SAY}|{ANSWER}):([ \t0-9]*)\.?", re.I | re.A)


class DigitsMove(NamedTuple):
    """What a reply writes.

    Args:
        kind: `"notes"`, which replace the old ones, `"say"` or `"answer"`.
        digits: Digits from 0 to 9; of notes perhaps none.
    """

    kind: str
    digits: str


class NoteTakingState(NamedTuple):
    """An episode: what passes, and what was written.

    Args:
        readings: In the order in which they pass. With k note takers, reading i is shown to note taker i % k.
        question: The index of the reading that is asked for.
        notes: Digits, of each note taker.
        message: What was told about the reading asked for; empty if nothing was.
    """

    readings: tuple[int, ...]
    question: int
    notes: tuple[str, ...] = ("",)
    num_passed: int = 0
    message: str = ""
    answer: str = ""


@dataclass(frozen=True, slots=True)
class NoteTaking(OpenTask[NoteTakingState]):
    """The task. Its state is a `NoteTakingState`, its move a `DigitsMove`.

    Args:
        readings: How many readings pass, an even number from 2 to 100.
        values: How many values a reading can have, 2 to 1,000,000; they are numbers from 0.
        digits: Most digits of an agent's notes, up to 500: at least what half of the readings take.
        communication_reward: Whether notes and messages are paid for what they carry, by `noted` and `told`.
    """

    readings: int = 16
    values: int = 10_000
    digits: int = 32
    communication_reward: bool = True

    name: ClassVar[str] = "note_taking"
    single_agent: ClassVar[str] = "full"
    blind_replies: ClassVar[tuple[str, ...]] = ("Notes:", "Notes: 0", "Say: 0", "Say: 1", "Answer: 0", "Answer: 1")

    def __post_init__(self) -> None:
        check_whole("readings", self.readings, 2, MOST_READINGS)
        if self.readings % NUM_NOTE_TAKERS:
            raise ValueError(f"readings is {self.readings}; expected an even number, half of it for each note taker.")
        check_whole("values", self.values, 2, MOST_VALUES)
        check_whole("digits", self.digits, self.width * self.readings // NUM_NOTE_TAKERS, MOST_DIGITS)

    @property
    def width(self) -> int:
        """Digits of a reading, with zeros in front."""
        return len(str(self.values - 1))

    def lone_bound(self) -> Fraction:
        """The greatest share of right answers of one note taker that sees no rewards; proof in `bound`."""
        return counting_bound(self.readings, self.values, count_notes(self.digits))

    def blind_bound(self) -> Fraction:
        """The greatest share of right answers of agents that read no reading: each value is equally likely."""
        return Fraction(1, self.values)

    @property
    def blind_policies(self) -> Mapping[str, BlindPolicy]:
        """Those who always give the same answer, one for each value; none if there are more than `MOST_GUESSES`."""
        values = range(self.values) if self.values <= MOST_GUESSES else ()
        replies = [f"Answer: {self.write_reading(value)}" for value in values]
        return {f"always {reply!r}": partial(always, reply) for reply in replies}

    def lone_memory(self) -> Memory:
        """All readings, and the notes of one."""
        return Memory((self.values,) * self.readings, count_notes(self.digits))

    def asked(self, state: NoteTakingState) -> list[NoteTakingState]:
        """The same readings, with each of them asked for."""
        return [state._replace(question=question) for question in range(self.readings)]

    def generate(self, seed: int, split: str | None = None) -> NoteTakingState:
        """The readings and the question of a seed, independent and uniform; None is the split `"train"`."""
        split = SPLITS[0] if split is None else split
        check_choice("split", split, SPLITS)
        rng = seeded(self.name, f"v{self.version}", self.readings, self.values, split, seed)
        readings = tuple(rng.randrange(self.values) for _ in range(self.readings))
        return NoteTakingState(readings, rng.randrange(self.readings))

    def parse(self, reply: str) -> DigitsMove | Unreadable:
        """The digits after `Notes:`, `Say:` or `Answer:` in the last line, without spaces between them."""
        found = match_last_line(_LINE, reply, "'Notes:', 'Say:' or 'Answer:' with digits")
        if isinstance(found, Unreadable):
            return found
        kind, digits = found[1].lower(), found[2].replace(" ", "").replace("\t", "")
        most = self.digits if kind == NOTES else self.width
        if len(digits) > most:
            return Unreadable(f"it has {len(digits)} digits, and at most {most} are allowed")
        if not digits and kind != NOTES:
            return Unreadable("it has no digits")
        return DigitsMove(kind, digits)

    def apply(self, state: NoteTakingState, move: DigitsMove | None) -> NoteTakingState:
        """The state after the move; None lets the reading pass without a note, or the question without an answer."""
        if state.num_passed < len(state.readings):
            taker = state.num_passed % len(state.notes)
            notes = state.notes
            if move is not None and move.kind == NOTES:
                notes = (*notes[:taker], move.digits, *notes[taker + 1 :])
            return state._replace(notes=notes, num_passed=state.num_passed + 1)
        if move is None or move.kind == NOTES:
            return state
        return state._replace(message=move.digits) if move.kind == SAY else state._replace(answer=move.digits)

    def solved(self, state: NoteTakingState) -> bool:
        """Whether the answer is the reading that was asked for."""
        return self.is_asked_for(state, state.answer)

    def is_asked_for(self, state: NoteTakingState, digits: str) -> bool:
        """Whether the digits are the reading asked for; zeros in front may be left out."""
        return bool(digits) and int(digits) == state.readings[state.question]

    def noted(self, state: NoteTakingState, taker: int) -> float:
        """The share of all readings that a note taker's notes have in their places, in [0, 1]."""
        stream = state.readings[taker :: len(state.notes)]
        places = range(0, len(stream) * self.width, self.width)
        groups = [state.notes[taker][at : at + self.width] for at in places]
        right = sum(group == self.write_reading(each) for group, each in zip(groups, stream, strict=True))
        return right / len(state.readings)

    def write_reading(self, reading: int) -> str:
        """A reading as it is shown, such as `"0417"`."""
        return f"{reading:0{self.width}d}"

    def rules(self) -> str:
        """The game in about 70 words."""
        return (
            f"{self.readings} readings pass one after another. Each is a number of {self.width} digits, is shown once,"
            " and cannot be looked at again. All that an agent remembers are its notes: up to"
            f" {self.digits} digits, and nothing but digits. After the last reading, one of them is asked for."
        )

    def reply_format(self) -> str:
        return (
            "While readings pass, end your reply with one line: Notes: and then all digits of your new notes, which"
            " replace the old ones. When you are asked, end it with one line: Answer: and the digits of the reading."
        )

    def show(self, state: NoteTakingState) -> str:
        """How many readings have passed, and the notes."""
        notes = "\n".join(f"Notes {number + 1}: {digits or 'none'}" for number, digits in enumerate(state.notes))
        return f"{state.num_passed} of {len(state.readings)} readings have passed.\n{notes}"

    def describe(
        self, before: NoteTakingState, move: DigitsMove, after: NoteTakingState, *, proposed: bool = False
    ) -> str:
        return f"{self.write(move)}."

    def write(self, move: DigitsMove) -> str:
        """Such as `Notes: 04170932`."""
        return f"{move.kind.capitalize()}: {move.digits}".rstrip()

    def oracle(self, state: NoteTakingState) -> DigitsMove:
        """Notes with the current reading in its place, if it has room; then the answer."""
        if state.num_passed == len(state.readings):
            return DigitsMove(ANSWER, self.write_reading(state.readings[state.question]))
        taker = state.num_passed % len(state.notes)
        at = state.num_passed // len(state.notes) * self.width
        notes = state.notes[taker]
        if at + self.width > self.digits:
            return DigitsMove(NOTES, notes)
        reading = self.write_reading(state.readings[state.num_passed])
        return DigitsMove(NOTES, notes[:at].ljust(at, "0") + reading + notes[at + self.width :])

    def outcome(self, state: NoteTakingState) -> Mapping[str, bool | int | float]:
        """`success`; the share of readings in notes; whether the reading was told; the bound of a lone agent."""
        return {
            "success": self.solved(state),
            "noted": sum(self.noted(state, taker) for taker in range(len(state.notes))),
            "told": self.is_asked_for(state, state.message),
            "lone_bound": float(self.lone_bound()),
        }
