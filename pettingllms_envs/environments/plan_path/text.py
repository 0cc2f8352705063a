"""Plan-Path as text: the grid laid out, cells and ways named, boards read."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import NamedTuple

from pettingllms_envs.environments.plan_path.grid import PlanPathState, distance, neighbours_of
from pettingllms_envs.tasks.grid import ways


_SYMBOLS = bytes.maketrans(b"01", b".#")


class Words(NamedTuple):
    """What the texts of a grid are made of.

    Args:
        places: How the cells are called, by number.
        edges: Per cell the ways off the grid, as a part of `around`.
        around: See `pettingllms_envs.tasks.grid.ways`.
        free: See there.
    """

    places: tuple[str, ...]
    edges: tuple[int, ...]
    around: int
    free: Mapping[int, str]


def read_board(board: str, size: int) -> PlanPathState:
    """The instance that a grid of `@` (start), `G` (goal), `#` and `.` shows; spaces are ignored."""
    rows = ["".join(line.split()) for line in board.splitlines() if line.strip()]
    cells = "".join(rows)
    if len(rows) != size or any(len(row) != size for row in rows) or cells.strip("@G#.") or set(cells) - set("@G#."):
        raise ValueError(
            f"the board has rows of {[len(row) for row in rows]} cells; expected {size} rows of {size} of '@' (start),"
            " 'G' (goal), '#' (blocked) and '.' (free). Write it as show() does, or set size."
        )
    if cells.count("@") != 1 or cells.count("G") != 1:
        raise ValueError(
            f"the board has {cells.count('@')} '@' and {cells.count('G')} 'G'; expected one start and one goal."
        )
    start = cells.index("@")
    blocked = sum(1 << cell for cell, symbol in enumerate(cells) if symbol == "#")
    goal = cells.index("G")
    steps = distance(size, blocked, goal, start)
    if steps < 0:
        raise ValueError("no walk leads from '@' to 'G' on the board; expected one. Open a blocked cell.")
    return PlanPathState(size, blocked, start, goal, start, steps, steps)


@lru_cache(maxsize=128)
def picture(size: int, blocked: int, goal: int) -> str:
    """The grid without the walker, a row a line, with a space after every cell but a row's last."""
    symbols = bytearray(_blank(size))
    symbols[::2] = f"{blocked | 1 << size * size:b}".encode().translate(_SYMBOLS)[:0:-1]  # cell 0 first, no cell lost
    symbols[2 * goal] = 71  # G
    return symbols.decode()


@lru_cache(maxsize=32)
def _blank(size: int) -> bytes:
    """A grid without cells: what stands between them."""
    return b"\n".join([b" " * (2 * size - 1)] * size)


@lru_cache(maxsize=32)
def words_of(size: int) -> Words:
    """What the texts of every grid of a size are made of."""
    places = tuple(f"row {row}, column {column}" for row in range(size) for column in range(size))
    bits = {"U": 1, "D": 1 << 2 * size, "L": 1 << size - 1, "R": 1 << size + 1}
    edges = tuple(sum(bits[letter] for letter, cell in cells.items() if cell < 0) for cells in neighbours_of(size))
    return Words(places, edges, *ways(size))


@lru_cache(maxsize=1024)
def way_to(down: int, right: int) -> str:
    """The offset in words, `"2 down, 3 right"`: as the crow flies, whatever is blocked on the way."""
    rows = f"{abs(down)} {'down' if down > 0 else 'up'}" if down else ""
    columns = f"{abs(right)} {'right' if right > 0 else 'left'}" if right else ""
    return f"{rows}, {columns}" if rows and columns else rows or columns or "here"
