"""Sudoku as text: fills and whole grids read from a reply, boards read and laid out, conflicts named.

A fill is a pair of a cell, numbered row by row from 0, and a digit. In text it is `r1c2=3`, rows and columns from 1.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from itertools import compress
from operator import itemgetter, ne

from pettingllms_envs.core import Unreadable
from pettingllms_envs.environments.sudoku.solver import BOXES, shape_of
from pettingllms_envs.replies.moves import last_line


Fills = tuple[tuple[int, str], ...]

# Of a reply's end, in characters per cell: a fill takes 10 with all the spaces that are allowed.
LONGEST = 16

_BLANKS = str.maketrans("._", "00")
_LINES = str.maketrans("", "", " \t\r\n|+-,")


def read_reply(size: int, reply: str) -> Fills | Unreadable:
    """The fills in the last line, or in the whole grid at the end of a reply, sorted by cell.

    `Fill: r1c2=3 r2c4=1`: separated by spaces or commas; at most one fill for every cell of the grid, and no cell with
    two different digits. `Grid:` and then all cells row by row, in the same line or in lines of their own, `.`, `_` or
    0 for a cell that is left as it is; rows separated by line ends or `/`, digits by spaces, commas, box lines or
    nothing. Case does not matter.
    """
    line = last_line(reply)
    if line[:5].lower() == "fill:":
        return _read_fills(size, line[5:])
    if not line:
        return Unreadable("it is empty")
    # One character more than may be used, so that what is cut off there cannot look like the beginning of a line.
    end = f"\n{reply.rstrip()}"[-LONGEST * size * size :].replace("\r", "\n")
    _, *lines = end.split("\n")
    for at, opening in reversed([*enumerate(map(str.lstrip, lines))]):
        if opening[:5].lower() == "grid:":
            return _read_cells(size, "\n".join((opening[5:], *lines[at + 1 :])))
    return Unreadable("it ends neither with a line 'Fill:' nor with 'Grid:' and a whole grid")


def write_fills(size: int, fills: Fills) -> str:
    """`Grid: 1234/3412/2143/4321` if every cell has a fill, else `Fill: r1c2=3 r2c4=1`."""
    if len(fills) < size * size:
        return f"Fill: {name_fills(size, fills)}"
    digits = "".join([digit for _, digit in fills])
    return "Grid: " + "/".join([digits[start : start + size] for start in range(0, size * size, size)])


def name_fills(size: int, fills: Fills) -> str:
    """`r1c2=3 r2c4=1`."""
    names = cell_names(size)
    return " ".join([f"{names[cell]}={digit}" for cell, digit in fills])


@lru_cache(maxsize=len(BOXES))
def cell_names(size: int) -> tuple[str, ...]:
    """`r1c1`, `r1c2` and so on."""
    return tuple(f"r{row}c{column}" for row in range(1, size + 1) for column in range(1, size + 1))


def read_board(size: int, board: object) -> str:
    """The digits of a board written out; white space and box lines do not matter."""
    cells = board.translate(_LINES).translate(_BLANKS) if isinstance(board, str) else ""
    if len(cells) != size * size or not _only_digits(size, cells):
        raise ValueError(
            f"board is {board!r}; expected {size * size} cells, each a digit from 1 to {size}, or 0, . or _ for an"
            " empty one. Write it out row by row, or choose another size."
        )
    return cells


def lay_out(size: int, grid: str) -> str:
    """The grid in lines, with lines between the boxes and `.` for an empty cell."""
    return _layout(size) % tuple(grid.replace("0", "."))


def filled_cells(clues: str, grid: str) -> list[int]:
    """Cells that are filled and no clues."""
    return [*compress(range(len(grid)), map(ne, clues, grid))]


def conflict_cells(size: int, clues: str, grid: str) -> list[int]:
    """Filled cells, not clues, whose digit is in their row, column or box a second time."""
    seen = _seen(size)
    return [cell for cell in filled_cells(clues, grid) if grid[cell] in seen[cell](grid)]


def conflicts(size: int, clues: str, grid: str) -> tuple[str, ...]:
    """Each digit that is twice in a row, column or box, such as `"3 in row 1"`. Clues alone never are."""
    if not conflict_cells(size, clues, grid):
        return ()
    found: list[str] = []
    for name, unit in zip(_unit_names(size), shape_of(size).units, strict=True):
        digits = itemgetter(*unit)(grid)
        found += [f"{digit} in {name}" for digit in "123456789"[:size] if digits.count(digit) > 1]
    return tuple(found)


def _read_fills(size: int, text: str) -> Fills | Unreadable:
    if len(text) > LONGEST * size * size:
        return Unreadable("its list of fills is too long")
    words = text.lower().replace(" =", "=").replace("= ", "=").replace(",", " ").split()
    if not words:
        return Unreadable("its list of fills is empty")
    if len(words) > size * size:
        return Unreadable(f"it has {len(words)} fills, and at most {size * size} are allowed")
    known = _fills_by_name(size)
    try:
        found = sorted({known[word] for word in words})
    except KeyError:
        return Unreadable(f"its list has something other than fills such as r1c2=3, all numbers from 1 to {size}")
    if len(dict(found)) < len(found):
        return Unreadable("it fills a cell with two different digits")
    return tuple(found)


def _read_cells(size: int, text: str) -> Fills | Unreadable:
    rows = [row for line in text.split("\n") for row in line.translate(_LINES).split("/") if row]
    cells = "".join(rows).translate(_BLANKS)
    if not _only_digits(size, cells):
        return Unreadable(f"its grid has something other than the digits 1 to {size}, and . for an empty cell")
    if len(cells) != size * size or (len(rows) > 1 and any(len(row) != size for row in rows)):
        return Unreadable(f"its grid is not {size} rows of {size} cells")
    return tuple((cell, digit) for cell, digit in enumerate(cells) if digit != "0") or Unreadable("its grid is empty")


def _only_digits(size: int, cells: str) -> bool:
    return not cells.strip("0123456789"[: size + 1])


@lru_cache(maxsize=len(BOXES))
def _fills_by_name(size: int) -> dict[str, tuple[int, str]]:
    digits = "123456789"[:size]
    return {f"{name}={digit}": (cell, digit) for cell, name in enumerate(cell_names(size)) for digit in digits}


@lru_cache(maxsize=len(BOXES))
def _layout(size: int) -> str:
    """A grid with `%s` for each cell."""
    high, wide = BOXES[size]
    row = " | ".join([" ".join(["%s"] * wide)] * (size // wide))
    band = "\n".join([row] * high)
    rule = "".join("+" if sign == "|" else "-" for sign in row.replace("%s", "."))
    return f"\n{rule}\n".join([band] * (size // high))


@lru_cache(maxsize=len(BOXES))
def _seen(size: int) -> tuple[Callable[[str], tuple[str, ...]], ...]:
    """Per cell what picks the digits of its peers out of a grid."""
    return tuple(itemgetter(*peers) for peers in shape_of(size).peers)


@lru_cache(maxsize=len(BOXES))
def _unit_names(size: int) -> tuple[str, ...]:
    lines = [f"{kind} {number}" for kind in ("row", "column") for number in range(1, size + 1)]
    names = cell_names(size)
    return (*lines, *(f"box {names[unit[0]]}-{names[unit[-1]]}" for unit in shape_of(size).units[2 * size :]))
