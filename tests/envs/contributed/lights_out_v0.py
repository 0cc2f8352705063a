"""Lights Out: an adviser and a player switch off all lamps of a 3 x 3 grid.

Rules: pressing a cell switches its lamp and those of its neighbours above, below, left and right. A move is a list of
cells, each at most once. Success is that all lamps are off.
Potential: 1 - presses that are needed / presses that were needed at the start, both exact. Costs: `presses`, -0.01 for
each. Instances: grids that need three presses or more; those that are alike but for rotations and reflections are in
one split.
Workflow `advise`: the adviser writes a note, the player reads it and moves. The adviser is paid later, as the team is.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache, reduce
from itertools import combinations
from operator import xor
from typing import ClassVar, NamedTuple

import numpy as np

from pettingllms_envs.assembly import assemble
from pettingllms_envs.core import SPLITS, Role, Unreadable, check_choice
from pettingllms_envs.instances import seeded, split_of
from pettingllms_envs.replies.moves import last_line
from pettingllms_envs.tasks.base import OpenTask
from pettingllms_envs.teams.base import TurnWorkflow
from pettingllms_envs.teams.single import Single


CELLS = range(9)
PRESS_COST = -0.01
SWITCHED = [
    sum(1 << other for other in CELLS if abs(cell // 3 - other // 3) + abs(cell % 3 - other % 3) <= 1)
    for cell in CELLS
]
"""For each cell the lamps that it switches: bit c is lamp c."""

SOLUTIONS = {
    reduce(xor, [SWITCHED[cell] for cell in cells], 0): cells
    for size in range(10)
    for cells in combinations(CELLS, size)
}
"""For each of the 512 grids the cells that switch it off; there is one such set for each."""


class LightsOutState(NamedTuple):
    """The lamps that are on, as bits, and the presses that were needed at the start."""

    lit: int
    needed: int


@dataclass(frozen=True, slots=True)
class LightsOut(OpenTask[LightsOutState]):
    """The task; its move is a tuple of cells from 0."""

    name: ClassVar[str] = "lights_out"
    blind_replies: ClassVar[tuple[str, ...]] = (*(f"Press: {cell + 1}" for cell in CELLS), "Press: 1 2 3 4 5 6 7 8 9")

    def generate(self, seed: int, *, split: str = "train") -> LightsOutState:
        check_choice("split", split, SPLITS)
        lit = seeded(self.name, self.version, split, seed).choice(grids_of(split))
        return LightsOutState(lit, len(SOLUTIONS[lit]))

    def rules(self) -> str:
        return (
            "Lamps on a 3 x 3 grid, the cells numbered 1 to 9 row by row; * is on, . is off. Pressing a cell switches "
            "its lamp and those above, below, left and right of it. You succeed when all lamps are off."
        )

    def reply_format(self) -> str:
        return "End your reply with one line: Press: and then the cells, separated by spaces."

    def show(self, state: LightsOutState) -> str:
        lamps = ["*" if state.lit >> cell & 1 else "." for cell in CELLS]
        return "\n".join(" ".join(lamps[row : row + 3]) for row in (0, 3, 6))

    def parse(self, reply: str) -> tuple[int, ...] | Unreadable:
        found = re.fullmatch(r"press:((?:[ ,]*[1-9])+) *", last_line(reply), re.I | re.A)
        if found is None:
            return Unreadable("its last line is not 'Press:' and cells from 1 to 9")
        cells = tuple(int(digit) - 1 for digit in re.findall(r"\d", found[1]))
        return cells if len(set(cells)) == len(cells) else Unreadable("it presses a cell twice")

    def write(self, move: tuple[int, ...]) -> str:
        return "Press: " + " ".join(str(cell + 1) for cell in move)

    def apply(self, state: LightsOutState, move: tuple[int, ...]) -> LightsOutState:
        return state._replace(lit=reduce(xor, (SWITCHED[cell] for cell in move), state.lit))

    def solved(self, state: LightsOutState) -> bool:
        return state.lit == 0

    def value(self, state: LightsOutState) -> float:
        return 1 - len(SOLUTIONS[state.lit]) / state.needed

    def costs(self, before: LightsOutState, move: tuple[int, ...], after: LightsOutState) -> Mapping[str, float]:
        return {"presses": PRESS_COST * len(move)}

    def ranges(self) -> Mapping[str, tuple[float, float]]:
        return {"value": (-2.0, 1.0), "presses": (9 * PRESS_COST, 0.0)}

    def oracle(self, state: LightsOutState) -> tuple[int, ...]:
        return SOLUTIONS[state.lit]


@lru_cache
def grids_of(split: str) -> list[int]:
    """The grids of a split that need three presses or more."""
    return [lit for lit in SOLUTIONS if len(SOLUTIONS[lit]) >= 3 and split_of(form(lit)) == split]


def form(lit: int) -> bytes:
    """What a grid has in common with its rotations and reflections."""
    grid = np.array([lit >> cell & 1 for cell in CELLS], dtype=np.uint8).reshape(3, 3)
    return min(np.rot90(each, turns).tobytes() for each in (grid, grid.T) for turns in range(4))


@dataclass(frozen=True, slots=True)
class Advise(TurnWorkflow):
    """An adviser, and a player who moves."""

    name: ClassVar[str] = "advise"
    roles: ClassVar[tuple[Role, ...]] = (
        Role("adviser", "You are the adviser. Write a short note that helps the player.", delayed=True),
        Role("player", "You are the player. You read the adviser's note and move."),
    )


raw_env, env, parallel_env = assemble(LightsOut, __name__, (Advise, Single))
