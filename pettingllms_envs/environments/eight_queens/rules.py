"""Eight Queens: move queens until none attacks another; some are fixed.

Rules: a board of 8 x 8 with a queen in each row. A move is a list of squares, at most one in each row, to which the
queens of these rows are put. Some queens are fixed: a reply that moves one is not played at all.
Success: no two queens are in one column or on one diagonal.
Potential: 1 - distance / distance at the start, not below -1. The distance is the number of queens that have to be
moved to the nearest solution with the fixed queens, exact, since all 92 solutions are known. Costs of a reply: `fixed`
-0.1 if it moves a fixed queen, `steps` -0.01 for each queen that is moved.
Outcome: `success`; `regret` = 1 - optimal / max(moves, optimal), 1 without success; `moves`, queens moved; `optimal`;
`distance`; `attacks`, pairs of queens that attack each other.
Instances: a function of version, split, level and seed. The splits never share the fixed queens, turned or mirrored.
Levels, by fixed queens and distance: 1: five, 1 to 2; 2: four, 2 to 3; 3: three, 3; 4: three, 4 or 5; 5: two, 4 to 6.
Source: the Eight Queens task of arXiv:2510.11062, with fixed queens, so that no solution is right everywhere; I. Gent,
C. Jefferson and P. Nightingale, "Complexity of n-queens completion", JAIR 59 (2017).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

from pettingllms_envs.boards import Tile
from pettingllms_envs.core import SPLITS, Unreadable, check_choice
from pettingllms_envs.environments.eight_queens.solutions import (
    SIZE,
    Placement,
    attacks,
    distance,
    draw,
    nearest,
    solutions,
)
from pettingllms_envs.instances import seeded
from pettingllms_envs.replies.moves import match_last_line
from pettingllms_envs.tasks.grid import STEP, DistanceTask


FIXED = -0.1
PAPERS, FIXED_INK, INK, ATTACKED = ("#f4f1ea", "#dcd6c8"), "#1c1c1c", "#2f6fde", "#c62828"
LEVELS = ((5, 1, 2), (4, 2, 3), (3, 3, 3), (3, 4, 5), (2, 4, 6))
"""Fixed queens, and the least and greatest distance, of each level."""

_SQUARE = rf"r([1-{SIZE}])c([1-{SIZE}])"
_ONE = re.compile(_SQUARE, re.I | re.A)
_LINE = re.compile(rf"queens:[ \t]*(r[1-{SIZE}]c[1-{SIZE}](?:[ \t,]+r[1-{SIZE}]c[1-{SIZE}])*)", re.I | re.A)

QueensMove = tuple[tuple[int, int], ...]
"""Rows and the columns to which their queens are put, sorted by row."""


class QueensState(NamedTuple):
    """A placement and how far it is from a solution.

    Args:
        fixed: Bit r is set when the queen of row r is fixed.
        most: The distance at the start.
    """

    placed: Placement
    fixed: int
    most: int
    left: int
    moves: int = 0


@dataclass(frozen=True, slots=True)
class EightQueens(DistanceTask[QueensState]):
    """The task. Its state is a `QueensState`, its move a `QueensMove`."""

    name: ClassVar[str] = "eight_queens"
    single_agent: ClassVar[str] = "single"
    symbols: ClassVar[str] = ".QF"
    legend: ClassVar[str] = "'F', a fixed queen, is black, 'Q' blue, and red if it attacks another."

    @property
    def blind_replies(self) -> tuple[str, ...]:  # type: ignore[override]
        """Three solutions, a column, a diagonal, single squares."""
        whole = [*solutions()[::40], (0,) * SIZE, tuple(range(SIZE))]
        return (*(self.write(tuple(enumerate(each))) for each in whole), "Queens: r1c1", "Queens: r4c5 r5c2")

    def ranges(self) -> Mapping[str, tuple[float, float]]:
        return {"value": (-1.0, 1.0), "fixed": (FIXED, 0.0), "steps": (STEP * SIZE, 0.0)}

    def generate(self, seed: int, split: str = "train", level: int = 1) -> QueensState:
        """The instance of a seed in a split, at a level from 1 to 5."""
        check_choice("split", split, SPLITS)
        check_choice("level", level, self.instance_fields["level"])
        wanted = LEVELS[level - 1]
        placed, fixed = draw(seeded(self.name, f"v{self.version}", *wanted, split, seed), *wanted, split)
        far = distance(placed, nearest(placed, fixed))
        return QueensState(placed, fixed, far, far)

    def parse(self, reply: str) -> QueensMove | Unreadable:
        """The squares, if the last line is `Queens:` and a list such as r1c5 r3c2, a row at most once."""
        found = match_last_line(_LINE, reply, "'Queens:' and a list of squares such as r1c5 r3c2")
        if isinstance(found, Unreadable):
            return found
        squares = sorted((int(row) - 1, int(column) - 1) for row, column in _ONE.findall(found[1]))
        if len({row for row, _ in squares}) < len(squares):
            return Unreadable("it names a row twice")
        return tuple(squares)

    def apply(self, state: QueensState, move: QueensMove) -> QueensState:
        """Put the queens there; none at all if one of them is fixed elsewhere."""
        if _broken(state, move):
            return state
        placed = list(state.placed)
        for row, column in move:
            placed[row] = column
        after = tuple(placed)
        left = distance(after, nearest(after, state.fixed))
        return QueensState(after, state.fixed, state.most, left, state.moves + distance(after, state.placed))

    def costs(self, before: QueensState, move: QueensMove, after: QueensState) -> Mapping[str, float]:
        """`fixed` if a fixed queen is moved, `steps` for the queens that are."""
        if _broken(before, move):
            return {"fixed": FIXED}
        return {"steps": STEP * (after.moves - before.moves)} if after.moves > before.moves else {}

    def rules(self) -> str:
        """The game in about 80 words."""
        return (
            "Eight queens stand on a board of 8 x 8, one in each row. Two queens attack each other if they are in one"
            " column or on one diagonal, whatever is between them. Put queens elsewhere in their rows until none"
            " attacks another. 'F' is a queen that is fixed: a reply that moves one is not played at all. 'Q' is one"
            " that you may move. r1c2 is the second square of the top row. Move no more queens than necessary."
        )

    def reply_format(self) -> str:
        return "End your reply with one line such as Queens: r1c2 r3c1 (the new squares of the queens you move)."

    def show(self, state: QueensState) -> str:
        """The board, the squares of the queens, and which attack each other."""
        fixed = [row for row in range(SIZE) if state.fixed >> row & 1]
        pairs = ", ".join(f"r{one + 1} and r{two + 1}" for one, two in attacks(state.placed))
        board = "\n".join(" ".join(row) for row in self.rows(state))
        return f"{board}\nFixed: {_squares(state.placed, fixed)}.\nQueens that attack each other: {pairs or 'none'}."

    def rows(self, state: QueensState) -> list[str]:
        """A symbol for each square."""
        letters = ["F" if state.fixed >> row & 1 else "Q" for row in range(SIZE)]
        return [
            "." * column + letter + "." * (SIZE - 1 - column)
            for letter, column in zip(letters, state.placed, strict=True)
        ]

    def tiles(self, state: QueensState) -> list[list[Tile]]:
        """A chessboard with fixed queens black, others blue, or red if they attack one."""
        attacking = {row for pair in attacks(state.placed) for row in pair}
        found = [[Tile("", PAPERS[(row + column) % 2]) for column in range(SIZE)] for row in range(SIZE)]
        for row, column in enumerate(state.placed):
            is_fixed = state.fixed >> row & 1
            fill = FIXED_INK if is_fixed else ATTACKED if row in attacking else INK
            tile = Tile("F" if is_fixed else "Q", PAPERS[(row + column) % 2], "#ffffff", "disc", fill)
            found[row][column] = tile
        return found

    def describe(self, before: QueensState, move: QueensMove, after: QueensState, *, proposed: bool = False) -> str:
        """The squares, and how many pairs attack each other then; or which fixed queens they move."""
        squares, would = self.write(move).removeprefix("Queens: "), "would be" if proposed else "was"
        if broken := _broken(before, move):
            return f"{squares}. Nothing {would} moved: fixed is {_squares(before.placed, broken)}."
        pairs = len(attacks(after.placed))
        return f"{squares}. Pairs of queens that attack each other {'then' if proposed else 'now'}: {pairs}."

    def write(self, move: QueensMove) -> str:
        """Such as `Queens: r1c5 r3c2`."""
        return "Queens: " + " ".join(f"r{row + 1}c{column + 1}" for row, column in move)

    def oracle(self, state: QueensState) -> QueensMove:
        """The squares of the queens to be moved to the nearest solution; all of them in a solution."""
        found = nearest(state.placed, state.fixed)
        pairs = tuple(enumerate(found))
        return tuple(pair for pair in pairs if state.placed[pair[0]] != pair[1]) or pairs

    def outcome(self, state: QueensState) -> Mapping[str, bool | int | float]:
        """That of `DistanceTask`, and the `attacks`."""
        return {**DistanceTask.outcome(self, state), "attacks": len(attacks(state.placed))}


def _broken(state: QueensState, move: QueensMove) -> list[int]:
    """The rows of fixed queens that a move puts elsewhere."""
    return [row for row, column in move if state.fixed >> row & 1 and state.placed[row] != column]


def _squares(placed: Placement, rows: list[int]) -> str:
    return " ".join(f"r{row + 1}c{placed[row] + 1}" for row in rows)
