"""Laws: find the law of an apparatus by experiments.

Rules: an apparatus has two quantities a and b, a switch k, and a meter. The class of laws is finite and shown. A move
is an experiment, the values of a, b and k, after which the meter's reading is known; or a law, which ends the episode:
who could name one after another would need fewer readings. There is a budget of experiments. One that was made before
tells nothing, and counts.
Success: the law, or another one of the class that no experiment tells apart from it.
Potential: 1 with the law; before that 0.5 of the bits found, as a share of the class's entropy. The bits found are
log2 of how many times fewer laws are possible than at the start; they are exact, and add up to the entropy once one
law is left. Costs of a move: `wasted` -0.02 for an experiment that tells nothing; `wrong` -0.05 for a wrong law that
agrees with all readings, -0.1 for one that does not, so that guessing costs more than it earns.
Outcome: `success`; `experiments`; `bits` found of `entropy`; `left`, the laws that are still possible; `guesses`.
Classes and budgets are such that experiments which are all chosen at the start leave at least a quarter of the bits,
in expectation: see `formulas.Class.unplanned`. A threshold has to be searched.
Instances: a function of version, split, level and seed. The splits never share a law, nor a law with a and b renamed
or a quantity scaled.
Levels: by the size of the class, 93 to 9,168 laws.
Oracle: the experiment that leaves fewest bits in expectation, then the law.
Source: our own; experiments as questions about a version space as in T. Mitchell, "Generalization as search", 1982.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

from pettingllms_envs.core import SPLITS, Unreadable, check_choice
from pettingllms_envs.environments.laws import formulas
from pettingllms_envs.environments.laws.space import Space, best_experiment, left
from pettingllms_envs.instances import seeded, split_of
from pettingllms_envs.replies.moves import match_last_line
from pettingllms_envs.tasks.base import OpenTask


TRY, LAW, SAY = "try", "law", "say"
LEVELS = (1, 2, 3, 4, 5)
BITS_SHARE = 0.5
WASTED, WRONG, REFUTED = -0.02, -0.05, -0.1

_LINE = re.compile(rf"({TRY}|{LAW}|{SAY}):(.*)", re.I | re.A)


def read_message(words: str) -> str | Unreadable:
    """The words of a message."""
    return words or Unreadable("it has no words")


class DiscoveryMove(NamedTuple):
    """An experiment, a law, or a message.

    Args:
        kind: `"try"`, `"law"` or `"say"`.
        what: What names it, which need not be one of the class; the words of a message.
    """

    kind: str
    what: Any


class DiscoveryState(NamedTuple):
    """An instance, and what has been tried.

    Args:
        truth: The row of the law in the class of the level.
        tried: The columns of the experiments so far.
        guesses: Laws named so far.
    """

    level: int
    truth: int
    tried: tuple[int, ...] = ()
    guesses: int = 0
    is_found: bool = False


class Kind(NamedTuple):
    """What the hypotheses of a task are, and how they and the experiments are written.

    Args:
        form: What equivalent hypotheses have in common, for splits.
        describe: The class of a level for a prompt, with its experiments and its size.
        readers: By kind of move: what names the experiment or hypothesis that some words say, of the class or not.
        writers: By kind of move: the words.
        reading: How a reading is shown, with a place for its number.
    """

    space: Callable[[int], Space]
    form: Callable[[Any], bytes]
    describe: Callable[[int], str]
    readers: Mapping[str, Callable[[str], Any]]
    writers: Mapping[str, Callable[[Any], str]]
    reading: str


class Discovery(OpenTask[DiscoveryState]):
    """A task whose hypotheses are the rows of a table. Subclasses say what they are, and how they are written."""

    __slots__ = ()

    single_agent: ClassVar[str] = "single"
    instance_fields: ClassVar[Mapping[str, tuple[object, ...]]] = {"split": SPLITS, "level": LEVELS}

    kind: ClassVar[Kind]

    def space(self, level: int) -> Space:
        return self.kind.space(level)

    def generate(self, seed: int, split: str = "train", level: int = 1) -> DiscoveryState:
        """The instance of a seed in a split, at a level from 1 to 5."""
        check_choice("split", split, SPLITS)
        check_choice("level", level, self.instance_fields["level"])
        space, rng = self.space(level), seeded(self.name, f"v{self.version}", level, split, seed)
        while split_of(self.kind.form(space.names[truth := rng.randrange(len(space))])) != split:
            pass
        return DiscoveryState(level, truth)

    def parse(self, reply: str) -> DiscoveryMove | Unreadable:
        """The experiment, the law or the message of the last line."""
        found = match_last_line(_LINE, reply, "'Try:' with an experiment, or 'Law:' with a law")
        if isinstance(found, Unreadable):
            return found
        kind, words = found[1].lower(), found[2].strip()
        what = self.kind.readers[kind](words)
        return what if isinstance(what, Unreadable) else DiscoveryMove(kind, what)

    def left(self, state: DiscoveryState) -> int:
        """The number of hypotheses that agree with the readings."""
        return len(left(self.space(state.level), state.truth, state.tried))

    def budget(self, state: DiscoveryState) -> int:
        """The experiments that can still be made."""
        return self.space(state.level).budget - len(state.tried)

    def apply(self, state: DiscoveryState, move: DiscoveryMove) -> DiscoveryState:
        """The state after an experiment, which is not made if there is no such one or none is left, or after a law."""
        if move.kind == SAY:
            return state
        space = self.space(state.level)
        if move.kind == LAW:
            is_found = space.row_of.get(move.what) == state.truth
            return state._replace(guesses=state.guesses + 1, is_found=is_found)
        column = space.column_of.get(move.what)
        if column is None or not self.budget(state):
            return state
        return state._replace(tried=(*state.tried, column))

    def solved(self, state: DiscoveryState) -> bool:
        return state.is_found

    def bits(self, state: DiscoveryState) -> float:
        return self.space(state.level).bits - math.log2(self.left(state))

    def value(self, state: DiscoveryState) -> float:
        """1 with the law, else half of the share of the bits that was found, of those that are paid."""
        space = self.space(state.level)
        found = max(0.0, self.bits(state) - space.planned)
        return 1.0 if state.is_found else BITS_SHARE * found / (space.bits - space.planned)

    def ranges(self) -> Mapping[str, tuple[float, float]]:
        return {"value": (0.0, 1.0), "wasted": (WASTED, 0.0), "wrong": (REFUTED, 0.0)}

    def costs(self, before: DiscoveryState, move: DiscoveryMove, after: DiscoveryState) -> Mapping[str, float]:
        if move.kind == TRY:
            return {} if self.left(after) < self.left(before) else {"wasted": WASTED}
        if move.kind == SAY or after.is_found:
            return {}
        return {"wrong": WRONG if self.fits(before, move.what) else REFUTED}

    def fits(self, state: DiscoveryState, hypothesis: Any) -> bool:
        """Whether a hypothesis is of the class, and agrees with all readings."""
        space = self.space(state.level)
        row = space.row_of.get(hypothesis)
        return row is not None and bool((space.table[row] == space.table[state.truth])[list(state.tried)].all())

    def show(self, state: DiscoveryState) -> str:
        """The class, the readings, and how many experiments can still be made."""
        return "\n".join([self.kind.describe(state.level), *self.readings(state)])

    def readings(self, state: DiscoveryState) -> list[str]:
        """The lines of `show` that say what was read, and how many experiments can still be made."""
        space = self.space(state.level)
        found = [self._shown(space, state.truth, column) for column in state.tried]
        return ["Readings:" if found else "No readings yet.", *found, f"Experiments left: {self.budget(state)}."]

    def _shown(self, space: Space, truth: int, column: int) -> str:
        what = self.kind.writers[TRY](space.experiments[column])
        return f"{what}: {self.kind.reading.format(space.table[truth, column])}"

    def describe(
        self, before: DiscoveryState, move: DiscoveryMove, after: DiscoveryState, *, proposed: bool = False
    ) -> str:
        """What was read, or whether it is the law."""
        if move.kind == SAY:
            return "Nothing but a message."
        words = f"{self.write(move)}."
        if proposed:
            return words
        if move.kind == LAW:
            agrees = "agrees" if self.fits(before, move.what) else "does not agree"
            wrong = f"It is wrong, and {agrees} with the readings."
            return f"{words} {'It is the law.' if after.is_found else wrong}"
        if after is before:
            return f"{words} There is no such experiment, or none left."
        return self._shown(self.space(after.level), after.truth, after.tried[-1])

    def write(self, move: DiscoveryMove) -> str:
        """Such as `Try: a=2 b=1 k=8`."""
        return f"{move.kind.capitalize()}: {self.kind.writers[move.kind](move.what)}"

    def oracle(self, state: DiscoveryState) -> DiscoveryMove:
        """The experiment that tells most in expectation, or the hypothesis once it is the only one."""
        if self.left(state) == 1 or not self.budget(state):
            return DiscoveryMove(LAW, self.space(state.level).names[state.truth])
        return self.best(state)

    def best(self, state: DiscoveryState) -> DiscoveryMove:
        """The experiment that tells most in expectation."""
        space = self.space(state.level)
        return DiscoveryMove(TRY, space.experiments[best_experiment(space, state.truth, state.tried)])

    def outcome(self, state: DiscoveryState) -> Mapping[str, bool | int | float]:
        """`success`, `experiments`, `bits` of `entropy`, the hypotheses `left`, the `guesses`."""
        return {
            "success": state.is_found,
            "experiments": len(state.tried),
            "bits": self.bits(state),
            "entropy": self.space(state.level).bits,
            "left": self.left(state),
            "guesses": state.guesses,
        }


@dataclass(frozen=True, slots=True)
class Laws(Discovery):
    """The task. Its state is a `DiscoveryState`, its move a `DiscoveryMove`."""

    name: ClassVar[str] = "laws"
    blind_replies: ClassVar[tuple[str, ...]] = (
        "Try: a=1 b=1 k=1",
        "Try: a=1 b=2 k=8",
        "Law: c=1 d=0 t=8 x=a z=ab",
        "Law: c=1 d=0 t=4 x=b z=b",
    )

    kind: ClassVar[Kind] = Kind(
        formulas.laws_of,
        formulas.form_of,
        formulas.describe,
        {TRY: formulas.read_experiment, LAW: formulas.read_law, SAY: read_message},
        {TRY: formulas.write_experiment, LAW: formulas.write_law, SAY: str},
        reading="y={}",
    )

    def rules(self) -> str:
        """The game in about 110 words."""
        return (
            "Find the law of an apparatus by experiments. It has two quantities a and b, a switch k, and a meter"
            f" that shows y, rounded down to a whole number, and {formulas.MOST_SHOWN} if it is more. The law is"
            " y = c x + d while k is at most t, and y = c z + d when k is greater. x and z are each one of the terms"
            " that are listed: ab is a times b, a/b is a divided by b. An experiment sets a, b and k. Its reading"
            " never changes, so making it again tells nothing. You have a number of experiments. One that tells"
            " nothing costs a little, and a wrong law more. The law can be named once."
        )

    def reply_format(self) -> str:
        return "End your reply with one line: Try: a=1 b=1 k=1 to make an experiment, or Law: c=1 d=0 t=1 x=a z=b."
