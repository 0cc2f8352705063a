"""Grids whose cells are numbered row by row from 0: which of the four ways from a cell are free, in one look."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from itertools import compress, product

from pettingllms_envs.replies import LETTERS


@lru_cache(maxsize=128)
def ways(width: int) -> tuple[int, Mapping[int, str]]:
    """The four cells around a cell as a mask, and per set of them that are taken the letters of the others.

    The masks' bit 0 is the cell above: with a cell's number c and the taken cells `taken`, look up
    `taken >> c - width & around`. A cell at the grid's edge needs a taken row and column beyond it.

    Args:
        width: Columns, at least 3.

    Example:
        `around, free = ways(6)`; in a room with walls above and to the left, `free[1 << 0 | 1 << 5]` is `"D R"`.
    """
    cells = (0, 2 * width, width - 1, width + 1)  # U D L R
    free = {
        sum(1 << cell for cell in compress(cells, taken)): " ".join(compress(LETTERS, [not each for each in taken]))
        for taken in product((False, True), repeat=4)
    }
    return sum(1 << cell for cell in cells), free
