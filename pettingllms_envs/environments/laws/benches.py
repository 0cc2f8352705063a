"""Two benches: a law of two halves, each of which shows itself at one bench only.

Rules: each bench has quantities a and b, a switch k and a meter of its own, and a law of its own, as in `rules`. An
experimenter varies the quantities of one bench, and does not see the readings of the other. The law to be named has
the laws of both benches. There is a budget of experiments for each bench.
Success: both halves. Potential: 1 with it, before that 0.5 of the bits found at both benches, as a share of all.
`told` 0.5, an experimenter's own: for a message that is the law of its bench, and nothing else.
Lone bound: both halves are drawn independently and uniformly among the n laws of the split, so who sees the readings
of one bench only, or of none, names both halves in 1 of n episodes at most, whatever it tries: `Benches.lone_bound()`,
for the smallest n of all splits and levels.
Outcome: as in `rules`, of both benches together; `lone_bound` of the instance.
Levels: the classes of `formulas.CLASSES` from the second to the fourth, for each bench.
Splits, oracle and source: as in `rules`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from copy import copy
from dataclasses import dataclass, field
from fractions import Fraction
from functools import cache
from typing import Any, ClassVar, NamedTuple

from pettingllms_envs.core import SPLITS, Unreadable, check_choice
from pettingllms_envs.environments.laws import formulas
from pettingllms_envs.environments.laws.rules import BITS_SHARE, LAW, SAY, TRY, DiscoveryMove, DiscoveryState, Laws
from pettingllms_envs.instances import seeded, split_of
from pettingllms_envs.tasks.base import OpenTask


BENCHES = (0, 1)
LEVELS = (1, 2, 3)
TOLD = 0.5

_LAWS = Laws()


class BenchesState(NamedTuple):
    """An instance: the law of each bench, and what was tried there."""

    split: str
    halves: tuple[DiscoveryState, DiscoveryState]
    is_found: bool = False


@cache
def rows_of(level: int, split: str) -> tuple[int, ...]:
    """The laws of a split, as rows of the class of a level of `Laws`."""
    names = formulas.laws_of(level).names
    return tuple(row for row, law in enumerate(names) if split_of(formulas.form_of(law)) == split)


@dataclass(frozen=True, slots=True)
class Benches(OpenTask[BenchesState]):
    """The task. Its state is a `BenchesState`, its move a `DiscoveryMove`, whose law has two halves."""

    turned: tuple[int, int] = field(default=(0, 0), init=False, repr=False)
    """Of `look_alikes`: by how many places the laws of the split are turned at each bench."""

    name: ClassVar[str] = "benches"
    single_agent: ClassVar[str] = "full"
    instance_fields: ClassVar[Mapping[str, tuple[object, ...]]] = {"split": SPLITS, "level": LEVELS}
    blind_replies: ClassVar[tuple[str, ...]] = (
        "Try: a=1 b=2 k=8",
        "Say: c=1 d=0 t=8 x=a z=ab",
        "Law: c=1 d=0 t=8 x=a z=ab; c=1 d=0 t=4 x=b z=a",
    )

    def lone_bound(self) -> Fraction:
        """The greatest share of successes of who sees one bench alone: 1 / n, see the top."""
        return Fraction(1, min(len(rows_of(level + 1, split)) for level in LEVELS for split in SPLITS))

    def look_alikes(self, state: BenchesState, settings: Mapping[str, Any]) -> Sequence[Benches]:
        """Tasks in which the bench that the lone agent cannot use has other laws, as many as the bound says."""
        other = 1 - settings["bench"]
        alike = [copy(self) for _ in range(self.lone_bound().denominator)]
        for by, task in enumerate(alike):
            object.__setattr__(task, "turned", (0, by) if other else (by, 0))
        return alike

    def generate(self, seed: int, split: str = "train", level: int = 1) -> BenchesState:
        """The instance of a seed in a split, at a level from 1 to 3."""
        check_choice("split", split, SPLITS)
        check_choice("level", level, LEVELS)
        rng, rows = seeded(self.name, f"v{self.version}", level, split, seed), rows_of(level + 1, split)
        first, second = (DiscoveryState(level + 1, rng.choice(rows)) for _ in BENCHES)
        return BenchesState(split, (first, second))

    def half(self, state: BenchesState, bench: int) -> DiscoveryState:
        half, by = state.halves[bench], self.turned[bench]
        rows = rows_of(half.level, state.split)
        return half._replace(truth=rows[(rows.index(half.truth) + by) % len(rows)]) if by else half

    def experiment(self, state: BenchesState, bench: int, move: DiscoveryMove) -> BenchesState:
        half = state.halves[bench]
        after = half._replace(tried=_LAWS.apply(half, move).tried)
        return state._replace(halves=(after, state.halves[1]) if bench == 0 else (state.halves[0], after))

    def is_open(self, state: BenchesState, bench: int) -> bool:
        """Whether more can be learned at a bench."""
        half = self.half(state, bench)
        return bool(_LAWS.budget(half)) and _LAWS.left(half) > 1

    def parse(self, reply: str) -> DiscoveryMove | Unreadable:
        """The experiment, the message, or the law of two halves of the last line."""
        move = _LAWS.parse(reply)
        if not isinstance(move, Unreadable):
            return Unreadable("its law has one half") if move.kind == LAW else move
        first, found, second = reply.strip().rpartition(";")
        if not found:
            return move
        one, two = _LAWS.parse(first), formulas.read_law(second.strip())
        if isinstance(one, Unreadable) or isinstance(two, Unreadable) or one.kind != LAW:
            return Unreadable("its law is not of the form c=1 d=0 t=1 x=a z=b; c=1 d=0 t=1 x=a z=b")
        return DiscoveryMove(LAW, (one.what, two))

    def apply(self, state: BenchesState, move: DiscoveryMove) -> BenchesState:
        """The state after a law; for experiments see `experiment`, which takes the bench."""
        if move.kind != LAW:
            return state
        right = [
            _LAWS.apply(self.half(state, bench), DiscoveryMove(LAW, what)).is_found
            for bench, what in zip(BENCHES, move.what, strict=True)
        ]
        return state._replace(is_found=all(right))

    def solved(self, state: BenchesState) -> bool:
        return state.is_found

    def value(self, state: BenchesState) -> float:
        """1 with the law, else half of the share of the bits that was found."""
        found = sum(_LAWS.bits(self.half(state, bench)) for bench in BENCHES)
        return 1.0 if state.is_found else BITS_SHARE * found / self._entropy(state)

    def _entropy(self, state: BenchesState) -> float:
        return sum(_LAWS.space(half.level).bits for half in state.halves)

    def told(self, state: BenchesState, bench: int, message: str) -> bool:
        """Whether a message is the law of a bench, and one law is left there."""
        half, law = self.half(state, bench), formulas.read_law(message)
        return _LAWS.left(half) == 1 and not isinstance(law, Unreadable) and _LAWS.fits(half, law)

    def rules(self) -> str:
        """The game in about 150 words."""
        return (
            f"There are two benches, 0 and 1, each with an apparatus and a law of its own. {_LAWS.rules()} The law to"
            " be named has two halves: the law of bench 0, then that of bench 1. Nobody sees the readings of a bench"
            " but who makes experiments there."
        )

    def reply_format(self) -> str:
        return (
            "When you are asked for the law, end your reply with one line: Law: c=1 d=0 t=1 x=a z=b; c=1 d=0 t=1 x=b"
            " z=a (bench 0; bench 1)."
        )

    def show(self, state: BenchesState) -> str:
        return f"At each bench: {_LAWS.kind.describe(state.halves[0].level)}"

    def readings(self, state: BenchesState, bench: int) -> str:
        """What was read at a bench, and how many experiments it has left."""
        lines = _LAWS.readings(self.half(state, bench))
        return "\n".join([f"Bench {bench}:", *lines])

    def write(self, move: DiscoveryMove) -> str:
        """Such as `Try: a=1 b=1 k=8`."""
        if move.kind != LAW:
            return _LAWS.write(move)
        return f"Law: {'; '.join(map(formulas.write_law, move.what))}"

    def oracle(self, state: BenchesState) -> DiscoveryMove:
        """Both halves; for experiments and messages see `wanted`."""
        return DiscoveryMove(LAW, tuple(self._law(state, bench) for bench in BENCHES))

    def wanted(self, state: BenchesState, bench: int, kind: str) -> DiscoveryMove:
        """The experiment that tells most at a bench, or a message that is its law."""
        if kind == TRY:
            return _LAWS.best(self.half(state, bench))
        return DiscoveryMove(SAY, formulas.write_law(self._law(state, bench)))

    def _law(self, state: BenchesState, bench: int) -> formulas.Law:
        half = self.half(state, bench)
        law: formulas.Law = _LAWS.space(half.level).names[half.truth]
        return law

    def outcome(self, state: BenchesState) -> Mapping[str, bool | int | float]:
        """`success`, and of both benches `experiments`, `bits` of `entropy`; the `lone_bound` of the instance."""
        return {
            "success": state.is_found,
            "experiments": sum(len(half.tried) for half in state.halves),
            "bits": sum(_LAWS.bits(self.half(state, bench)) for bench in BENCHES),
            "entropy": self._entropy(state),
            "lone_bound": 1 / len(rows_of(state.halves[0].level, state.split)),
        }
