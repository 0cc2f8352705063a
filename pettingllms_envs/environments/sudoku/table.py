"""The table of all 4 x 4 Sudoku puzzles: whether a puzzle has one solution, and its split, are looked up.

Up to symmetry (the digits; rows and columns within bands, bands, stacks, transposition) there are two solved grids,
one with 96 copies and one with 192, 288 in all. The table has one of each kind, and a puzzle is a copy of it with some
of the digits as clues: a mask of 16 bits, the first cell lowest.

A set of cells in which another grid differs from this one is unavoidable: without a clue in it, that other grid would
solve the puzzle too. So a puzzle has exactly one solution if its clues hit all unavoidable sets. Two masks are
symmetric if a symmetry that leaves the grid as it is, up to its digits, maps one to the other; the least image of a
mask under these is its orbit, and the split of a puzzle is decided by its grid and orbit.
"""

from __future__ import annotations

from array import array
from functools import lru_cache
from itertools import permutations, product
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from pettingllms_envs.core import SPLITS
from pettingllms_envs.instances import split_of


GRIDS = ("1234341221434321", "1234341223414123")
COPIES = (96, 192)

_RELABELLINGS = tuple(str.maketrans("1234", "".join(digits)) for digits in permutations("1234"))
_BANDS = tuple((*first, *second) for first in ((0, 1), (1, 0)) for second in ((2, 3), (3, 2)))
_LINES = _BANDS + tuple((*band[2:], *band[:2]) for band in _BANDS)
# Per symmetry of position where the digit of each cell comes from.
_SOURCES = tuple(
    tuple(4 * column + row if turned else 4 * row + column for row in rows for column in columns)
    for rows, columns, turned in product(_LINES, _LINES, (False, True))
)


class Puzzles(NamedTuple):
    """All ways to leave clues in one of the two grids, indexed by their mask.

    Args:
        images: The grid under each symmetry of position.
        orbit: The least mask that is symmetric to a mask.
        split: The number of the split in `SPLITS`, or its length if the solution is not the only one.
    """

    images: tuple[str, ...]
    orbit: NDArray[np.uint16]
    unique: NDArray[np.bool_]
    split: NDArray[np.uint8]
    empty: NDArray[np.uint8]


def draw(number: int, empties: int, split: str) -> tuple[str, str]:
    """One of the puzzles with this many empty cells in this split, all as likely as each other, and its solution.

    Args:
        number: Decides which; any whole number from 0.
        empties: Empty cells, from 2 to 11 (with fewer or more, some split has no puzzle).
        split: One of `SPLITS`.
    """
    entries = _entries(empties, split)
    number, entry = divmod(number, len(entries))
    number, place = divmod(number, len(_SOURCES))
    which, mask = divmod(entries[entry], 1 << 16)
    solution = table()[which].images[place].translate(_RELABELLINGS[number % 24])
    clues = "".join(
        [digit if mask >> source & 1 else "0" for digit, source in zip(solution, _SOURCES[place], strict=True)]
    )
    return clues, solution


@lru_cache(maxsize=64)
def _entries(empties: int, split: str) -> array[int]:
    """The puzzles to draw from; those of the grid with twice as many copies are there twice."""
    found = array("I")
    for which, puzzles in enumerate(table()):
        fits = puzzles.unique & (puzzles.empty == empties) & (puzzles.split == SPLITS.index(split))
        masks = np.flatnonzero(fits).astype(np.uint32) | np.uint32(which << 16)
        found.extend(np.repeat(masks, COPIES[which] // COPIES[0]).tolist())
    return found


@lru_cache(maxsize=1)
def table() -> tuple[Puzzles, Puzzles]:
    """The puzzles of both grids, worked out once."""
    images = [tuple("".join([grid[cell] for cell in sources]) for sources in _SOURCES) for grid in GRIDS]
    everything = sorted({image.translate(digits) for each in images for image in each for digits in _RELABELLINGS})
    masks = np.arange(1 << 16, dtype=np.uint16)
    empty = np.array([16 - mask.bit_count() for mask in range(1 << 16)], np.uint8)
    first, second = (_puzzles(which, images[which], everything, masks, empty) for which in (0, 1))
    return first, second


def _puzzles(
    which: int, images: tuple[str, ...], everything: list[str], masks: NDArray[np.uint16], empty: NDArray[np.uint8]
) -> Puzzles:
    grid = GRIDS[which]
    unique = np.ones(1 << 16, np.bool_)
    for unavoidable in _minimal({_where_they_differ(grid, other) for other in everything} - {0}):
        unique &= masks & np.uint16(unavoidable) != 0
    orbit = masks.copy()
    for sources, image in zip(_SOURCES, images, strict=True):
        if image.translate(str.maketrans(image[:4], grid[:4])) == grid:
            np.minimum(orbit, _moved(sources), out=orbit)
    split = np.full(1 << 16, len(SPLITS), np.uint8)
    for least in np.flatnonzero(unique & (orbit == masks)).tolist():
        split[least] = SPLITS.index(split_of(b"sudoku 4 %d %d" % (which, least)))
    return Puzzles(images, orbit, unique, np.where(unique, split[orbit], split), empty)


def _where_they_differ(grid: str, other: str) -> int:
    return sum(1 << cell for cell in range(16) if grid[cell] != other[cell])


def _minimal(sets: set[int]) -> list[int]:
    """Those that contain no other."""
    kept: list[int] = []
    for each in sorted(sets, key=lambda each: (each.bit_count(), each)):
        if all(smaller & ~each for smaller in kept):
            kept.append(each)
    return kept


def _moved(sources: tuple[int, ...]) -> NDArray[np.uint16]:
    """Per mask its image: bit i is what bit sources[i] was."""
    goes_to = [sources.index(cell) for cell in range(16)]
    low, high = _subsets(goes_to[:8]), _subsets(goes_to[8:])
    return np.bitwise_or.outer(high, low).ravel()


def _subsets(bits: list[int]) -> NDArray[np.uint16]:
    """Per byte the union of the bits that it selects."""
    unions = [0]
    for bit in bits:
        unions += [union | 1 << bit for union in unions]
    return np.array(unions, np.uint16)
