"""What games on boards share: reset options, outcomes by a distance, moves by U D L R, and which ways are free.

Cells are numbered row by row from 0.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from itertools import compress, product
from typing import Any, ClassVar

from pettingllms_envs.core import SPLITS, State, Unreadable
from pettingllms_envs.replies.moves import LETTERS, blind_moves, read_moves, write_moves
from pettingllms_envs.tasks.base import OpenTask


BOARD_FIELDS: Mapping[str, tuple[object, ...]] = {"split": SPLITS, "level": (1, 2, 3, 4, 5), "board": ()}
"""The reset options: a split and a level of generated instances, or an instance written out."""
BUMP = -0.1
STEP = -0.01


class DistanceTask(OpenTask[State]):
    """A task of five levels, whose states say how far the goal is: `left`, of `most` at the start, after `moves`."""

    __slots__ = ()

    instance_fields: ClassVar[Mapping[str, tuple[object, ...]]] = {"split": SPLITS, "level": (1, 2, 3, 4, 5)}

    def solved(self, state: Any) -> bool:
        return not state.left

    def value(self, state: Any) -> float:
        """1 - distance / distance at the start, not below -1."""
        return float(max(-1.0, 1 - state.left / state.most))

    def outcome(self, state: Any) -> Mapping[str, bool | int | float]:
        """`success`, `regret`, `moves` made, the `optimal` number of them, the `distance` left."""
        left, most, moves = state.left, state.most, state.moves
        regret = 1.0 if left else 1 - most / max(moves, most)
        return {"success": not left, "regret": regret, "moves": moves, "optimal": most, "distance": left}


class MovesTask(OpenTask[State]):
    """A task on a square board whose moves are lists of the letters U D L R, at most four for each row."""

    __slots__ = ()

    size: int

    instance_fields: ClassVar[Mapping[str, tuple[object, ...]]] = BOARD_FIELDS

    @property
    def max_moves(self) -> int:
        return 4 * self.size

    @property
    def blind_replies(self) -> tuple[str, ...]:  # type: ignore[override]
        """Each letter, each to the end, to and fro, rounds, every move."""
        return blind_moves(self.max_moves)

    def cost_ranges(self) -> Mapping[str, tuple[float, float]]:
        return {"bump": (BUMP, 0.0), "steps": (STEP * self.max_moves, 0.0)}

    def parse(self, reply: str) -> str | Unreadable:
        """See `pettingllms_envs.replies.moves.read_moves`; at most `max_moves` moves."""
        return read_moves(reply, self.max_moves)

    def reply_format(self) -> str:
        return "End your reply with one line: Moves: and then U, D, L or R, separated by spaces."

    def write(self, move: str) -> str:
        """Such as `Moves: R R D`."""
        return write_moves(move)


def check_most(name: str, low: int, high: Any) -> None:
    """Raise ValueError unless the upper limit of a range is None or at least the lower one."""
    if high is not None and (not isinstance(high, int) or high < low):
        raise ValueError(f"max_{name} is {high!r}; expected None or at least min_{name}, {low}. Raise it.")


@lru_cache(maxsize=128)
def ways(width: int) -> tuple[int, Mapping[int, str]]:
    """The four cells around a cell as a mask, and per set of them that are taken the letters of the others.

    The masks' bit 0 is the cell above: with a cell's number c and the taken cells `taken`, look up
    `taken >> c - width & around`. A cell at the grid's edge needs a taken row and column beyond: 3 columns or more.

    Example:
        `around, free = ways(6)`; in a room with walls above and to the left, `free[1 << 0 | 1 << 5]` is `"D R"`.
    """
    cells = (0, 2 * width, width - 1, width + 1)  # U D L R
    free = {
        sum(1 << cell for cell in compress(cells, taken)): " ".join(compress(LETTERS, [not each for each in taken]))
        for taken in product((False, True), repeat=4)
    }
    return sum(1 << cell for cell in cells), free
