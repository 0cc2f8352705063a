"""Sudoku's solver: every solution of a puzzle, the proof that there is only one, and how hard it is to find.

The candidates of a whole grid are one integer with `size`**3 bits: bit digit * size**2 + row * size + column is set
while that digit (from 0) may stand in that cell. Cells, and a digit's places in rows, columns and boxes, are then the
same thing, a set of `size` bits of which exactly one must stay, and are counted all at once by shifts of the integer.

A grid as text is `size`**2 digits row by row, `"0"` for an empty cell. Sizes and boxes (rows x columns): 4 (2 x 2),
6 (2 x 3), 9 (3 x 3).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple


BOXES = {4: (2, 2), 6: (2, 3), 9: (3, 3)}
GRADES = {
    1: "naked singles: some cell has one digit left",
    2: "hidden singles: some digit has one place left in a row, column or box",
    3: "locked candidates or naked pairs",
    4: "search",
}


class Kind(NamedTuple):
    """One of the four kinds of sets: cells, and a digit's places in rows, columns and boxes.

    Args:
        anchors: The first bit of every set.
        places: How far a set's bits are from its anchor: i * near + j * far for i < near_count, j < far_count.
        spread: The bits at those places; anchors times spread is all bits of their sets.
        near: Distance of neighbouring bits.
        near_count: How many neighbouring bits, 2 or 3.
        far: Distance of neighbouring runs of such bits.
        far_count: How many such runs, 2 or 3.
    """

    anchors: int
    places: tuple[int, ...]
    spread: int
    near: int
    near_count: int
    far: int
    far_count: int


@dataclass(frozen=True, slots=True)
class Shape:
    """The tables of one size.

    Args:
        every: All candidates.
        kinds: The sets of which one bit must stay, by kind: cells; places in rows, columns and boxes.
        units: The cells of each row, then of each column, then of each box.
        peers: Per cell the other cells of its units, in order.
    """

    size: int
    rows: int
    columns: int
    every: int
    kinds: tuple[Kind, Kind, Kind, Kind]
    units: tuple[tuple[int, ...], ...]
    peers: tuple[tuple[int, ...], ...]


@lru_cache(maxsize=len(BOXES))
def shape_of(size: int) -> Shape:
    """The tables of a size: 4, 6 or 9."""
    rows, columns = BOXES[size]
    cells = size * size
    lines = range(size)
    across = [tuple(r * size + c for c in lines) for r in lines]
    down = [tuple(r * size + c for r in lines) for c in lines]
    corners = [r * size + c for r in range(0, size, rows) for c in range(0, size, columns)]
    boxes = [tuple(corner + r * size + c for r in range(rows) for c in range(columns)) for corner in corners]
    units = (*across, *down, *boxes)

    def bits(places: list[int]) -> int:
        return sum(1 << place for place in places)

    def kind(anchors: list[int], near: int, near_count: int, far: int, far_count: int) -> Kind:
        places = [i * near + j * far for i in range(near_count) for j in range(far_count)]
        return Kind(bits(anchors), tuple(places), bits(places), near, near_count, far, far_count)

    digits = [digit * cells for digit in lines]
    return Shape(
        size,
        rows,
        columns,
        (1 << size * cells) - 1,
        (
            kind(list(range(cells)), cells, columns, cells * columns, rows),
            kind([digit + row[0] for digit in digits for row in across], 1, columns, columns, rows),
            kind([digit + column[0] for digit in digits for column in down], size, rows, size * rows, columns),
            kind([digit + corner for digit in digits for corner in corners], 1, columns, size, rows),
        ),
        units,
        tuple(tuple(sorted({other for u in units if c in u for other in u} - {c})) for c in range(cells)),
    )


def candidates(size: int, grid: str) -> int:
    """What the digits of a grid leave at first sight: one candidate where there is a digit, else all of them."""
    shape, cells = shape_of(size), size * size
    found, given = 0, 0
    for cell, digit in enumerate(grid):
        if digit != "0":
            given |= 1 << cell
            found |= 1 << (ord(digit) - 49) * cells + cell
    return found | shape.every & ~(given * shape.kinds[0].spread)


def written(size: int, found: int) -> str:
    """The grid as text, where exactly one candidate is left in every cell."""
    cells = size * size
    digits = [""] * cells
    while found:
        digit, cell = divmod((found & -found).bit_length() - 1, cells)
        digits[cell] = chr(49 + digit)
        found &= found - 1
    return "".join(digits)


def _fold(one: int, more: int, step: int, count: int) -> tuple[int, int]:
    """Add up the counts "at least one" and "more than one" of `count` (2 or 3) places that are `step` bits apart."""
    next_one, next_more = one >> step, more >> step
    both, either = one & next_one, one | next_one
    if count == 2:
        return either, more | next_more | both
    third = one >> 2 * step
    return either | third, more | next_more | more >> 2 * step | both | either & third


def _counts(found: int, kind: Kind) -> tuple[int, int]:
    """At each anchor: whether its set has any bit, and whether it has exactly one."""
    one, more = _fold(*_fold(found, 0, kind.near, kind.near_count), kind.far, kind.far_count)
    anchors = kind.anchors
    return one & anchors, ~more & one & anchors


def _any(found: int, kind: Kind) -> int:
    """All bits of the sets that have any bit."""
    near = found | found >> kind.near
    if kind.near_count == 3:
        near |= found >> 2 * kind.near
    far = near | near >> kind.far
    if kind.far_count == 3:
        far |= near >> 2 * kind.far
    return (far & kind.anchors) * kind.spread


def propagate(shape: Shape, found: int, *, hidden: bool = True) -> int:
    """Place singles, the hidden ones only if asked for, until there are none; 0 for a contradiction."""
    cell, row, column, box = shape.kinds
    while True:
        any_digit, single = _counts(found, cell)
        if any_digit != cell.anchors:
            return 0
        singles = single * cell.spread & found
        if hidden:
            for kind in (row, column, box):
                any_place, single = _counts(found, kind)
                if any_place != kind.anchors:
                    return 0
                singles |= single * kind.spread & found
        left = found & (
            ~(_any(singles, cell) | _any(singles, row) | _any(singles, column) | _any(singles, box)) | singles
        )
        if left == found:
            return found
        found = left


def solutions(size: int, found: int) -> Iterator[str]:
    """Every solution within the candidates, as text, once each and always in the same order."""
    shape, stack = shape_of(size), [found]
    while stack:
        found = propagate(shape, stack.pop())
        if not found:
            continue
        if found.bit_count() == size * size:
            yield written(size, found)
            continue
        choice = _narrowest(shape, found)
        first = choice & -choice
        stack += (found ^ first, found ^ choice ^ first)


def _narrowest(shape: Shape, found: int) -> int:
    """A set that has two candidates left, or if there is none, a cell that has more than one, but as few as any."""
    for kind in shape.kinds:
        one = two = three = 0
        for place in kind.places:
            there = found >> place & kind.anchors
            three |= two & there
            two |= one & there
            one |= there
        pairs = two & ~three
        if pairs:
            return (pairs & -pairs) * kind.spread & found
    spread = shape.kinds[0].spread
    cells = (spread << cell & found for cell in range(shape.size * shape.size))
    return min((cell for cell in cells if cell.bit_count() > 1), key=int.bit_count)


def has_other_digit(size: int, clues: str, cell: int, digit: str) -> bool:
    """Whether some solution of the clues has another digit than this one in a cell."""
    bit = 1 << (ord(digit) - 49) * size * size + cell
    return next(solutions(size, candidates(size, clues) & ~bit), None) is not None


def grade(size: int, clues: str) -> int:
    """The hardest step that a puzzle with exactly one solution needs, by its number in `GRADES`.

    Steps are tried from the easiest; all that one kind finds is placed or crossed out before the next look.
    """
    shape, cells = shape_of(size), size * size
    found = propagate(shape, candidates(size, clues), hidden=False)
    if found.bit_count() == cells:
        return 1
    found = propagate(shape, found)
    if found.bit_count() == cells:
        return 2
    while True:
        left = propagate(shape, found & ~(_locked(shape, found) | _paired(shape, found)))
        if left.bit_count() == cells:
            return 3
        if left == found:
            return 4
        found = left


def _locked(shape: Shape, found: int) -> int:
    """Candidates crossed out because a digit's places in a box all lie in one line, or those in a line in one box."""
    _, row, column, box = shape.kinds
    crossed = 0
    # A segment is what a line and a box share. Walks: over a segment, over a box's segments, over a line's segments.
    for line, segment, in_box, in_line in (
        (row, (box.near, box.near_count), (box.far, box.far_count), (row.far, row.far_count)),
        (column, (box.far, box.far_count), (box.near, box.near_count), (column.far, column.far_count)),
    ):
        segments = _fold(found, 0, *segment)[0]
        for first, other, walk in ((box, line, in_box), (line, box, in_line)):
            one, more = _fold(segments, 0, *walk)
            lonely = (one & ~more & first.anchors) * first.spread & found
            crossed |= _any(lonely, other) & ~lonely
    return crossed & found


def _paired(shape: Shape, found: int) -> int:
    """Candidates that are crossed out because two cells of a unit share the same two digits between them."""
    cells, kind = shape.size * shape.size, shape.kinds[0]
    digits = [found >> cell & kind.spread for cell in range(cells)]
    pairs = [cell for cell in range(cells) if digits[cell].bit_count() == 2]
    crossed = 0
    for cell in pairs:
        for other in shape.peers[cell]:
            if other > cell and digits[other] == digits[cell]:
                for seen in set(shape.peers[cell]) & set(shape.peers[other]):
                    crossed |= digits[cell] << seen
    return crossed & found
