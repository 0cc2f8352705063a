"""Sokoban's lower bound on the pushes left, and positions that are dead because it is infinite or boxes are frozen.

The bound is the cheapest matching of boxes and goals, where the price of a pair is the exact number of pushes in the
empty room from the side on which the player stands. Dead are positions without a finite matching, and those in which
boxes that block each other for good are not all on goals.

Cells are numbered row by row from 0, so cell = row * width + column, and a set of cells is an int with one bit each.
The outermost cells are walls, which is why a shift never carries a bit round the edge onto a free cell.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Final, NamedTuple


DEAD: Final = -1  # what a distance or a bound is in a position that cannot be solved
MAX_SIDE: Final = 100  # the bit masks of a larger board would pass Python's limit on the digits of a printed integer
FAR: Final = 1 << 20  # the price of a goal that a box cannot reach, more than any sum of prices


class Position(NamedTuple):
    """Where everything is. All cells that the player could never reach are walls.

    Args:
        walls: The wall cells; the outermost cells are all walls.
        boxes: The cells with a box, as many as goals.
        player: The player's cell, as a number.
    """

    width: int
    walls: int
    goals: int
    boxes: int
    player: int


def cells_of(mask: int) -> list[int]:
    """The cells of a set, in order."""
    cells = []
    while mask:
        low = mask & -mask
        cells.append(low.bit_length() - 1)
        mask ^= low
    return cells


def steps_of(width: int) -> tuple[int, int, int, int]:
    """What U, D, L and R add to the number of a cell."""
    return -width, width, -1, 1


def region(free: int, start: int, width: int) -> int:
    """The cells of `free` that can be walked to from the set `start`, itself included."""
    while True:
        # The sum carries a bit of `start` to the right end of its run of free cells: all of the run in one operation.
        run = start | free & ~(free + start)
        more = run | (run >> 1 | run << width | run >> width) & free
        if more == start:
            return start
        start = more


def frozen(walls: int, dead_cells: int, boxes: int, width: int) -> int:
    """The boxes that block each other, for good or until one is pushed where it is lost.

    A box cannot be pushed along a line if one of its neighbours there is a wall or such a box, or both are dead cells.
    """
    stuck_across = dead_cells << 1 & dead_cells >> 1
    stuck_along = dead_cells << width & dead_cells >> width
    while boxes:
        solid = walls | boxes
        still = boxes & (solid << 1 | solid >> 1 | stuck_across) & (solid << width | solid >> width | stuck_along)
        if still == boxes:
            break
        boxes = still
    return boxes


@dataclass(frozen=True, slots=True, eq=False)
class Room:
    """What the search knows of a room without its boxes.

    Args:
        live: The cells from which a box alone in the room can be pushed to a goal.
        dead_cells: The other cells of the floor, walls not counted.
        prices: Per cell of a box, the sets of cells that the player can walk between, and for each the least pushes
            to every goal in the order of their cells.
    """

    width: int
    walls: int
    floor: int
    goals: int
    live: int
    dead_cells: int
    prices: tuple[tuple[tuple[int, tuple[int, ...]], ...], ...]


@lru_cache(maxsize=64)
def room_of(width: int, walls: int, goals: int) -> Room:
    """The room of a position, cached."""
    floor = ~walls & (1 << walls.bit_length()) - 1
    sides: list[list[int]] = [[] for _ in range(walls.bit_length())]
    for cell in cells_of(floor):
        rest = floor ^ 1 << cell
        for step in steps_of(width):
            bit = 1 << cell + step
            if bit & rest and not any(side & bit for side in sides[cell]):
                sides[cell].append(region(rest, bit, width))
    prices = [[[FAR] * goals.bit_count() for _ in around] for around in sides]
    for number, goal in enumerate(cells_of(goals)):
        queue = [(goal, side) for side in range(len(sides[goal]))]
        for _, side in queue:
            prices[goal][side][number] = 0
        for cell, side in queue:
            price = prices[cell][side][number] + 1
            for step in steps_of(width):
                pulled = cell + step
                if not sides[cell][side] >> pulled & 1 or not floor >> pulled + step & 1:
                    continue
                before = next(i for i, around in enumerate(sides[pulled]) if around >> pulled + step & 1)
                if prices[pulled][before][number] == FAR:
                    prices[pulled][before][number] = price
                    queue.append((pulled, before))
    live = sum(1 << cell for cell, rows in enumerate(prices) if any(min(row) < FAR for row in rows))
    table = tuple(
        tuple((side, tuple(row)) for side, row in zip(around, rows, strict=True))
        for around, rows in zip(sides, prices, strict=True)
    )
    return Room(width, walls, floor, goals, live, floor & ~live, table)


def lower_bound(position: Position) -> int:
    """A number of pushes, so of moves, that every solution needs; 0 only if solved; `DEAD` if there is no solution.

    Not every position without a solution is found out.
    """
    width, walls, goals, boxes, player = position
    room = room_of(width, walls, goals)
    if frozen(walls, room.dead_cells, boxes, width) & ~goals:
        return DEAD
    bound = bound_of(room, boxes, 1 << player)
    return DEAD if bound >= FAR else bound


def bound_of(room: Room, boxes: int, player: int) -> int:
    """The price of the cheapest matching of boxes and goals, `FAR` or more if there is none. `player` is a set."""
    prices, rows = room.prices, []
    while boxes:
        low = boxes & -boxes
        boxes ^= low
        rows.append(next(row for side, row in prices[low.bit_length() - 1] if side & player))
    total = taken = clash = 0
    for row in rows:
        least = min(row)
        goal = 1 << row.index(least)
        total += least
        clash |= taken & goal
        taken |= goal
    return matching(rows) if clash and total < FAR else total


def matching(prices: Sequence[Sequence[int]]) -> int:
    """The least sum of one price from each row, no two from one column, of a square table (Kuhn 1955, Munkres 1957).

    Rows are matched one at a time along the cheapest alternating path, which potentials keep free of negative prices.
    """
    size = len(prices)
    row_potential, column_potential = [0] * size, [0] * (size + 1)
    row_of = [-1] * (size + 1)  # the last column is where each path begins
    for new in range(size):
        row_of[size] = new
        column, slack, before, done = size, [FAR * size] * size, [size] * size, [False] * (size + 1)
        while row_of[column] >= 0:
            done[column] = True
            row, at, least, best = row_of[column], column, FAR * size + 1, -1
            base = row_potential[row]
            for other in range(size):
                if not done[other]:
                    gap = prices[row][other] - base - column_potential[other]
                    if gap < slack[other]:
                        slack[other], before[other] = gap, at
                    if slack[other] < least:
                        least, best = slack[other], other
            for other in range(size + 1):
                if done[other]:
                    row_potential[row_of[other]] += least
                    column_potential[other] -= least
                elif other < size:
                    slack[other] -= least
            column = best
        while column != size:
            row_of[column] = row_of[before[column]]
            column = before[column]
    return -column_potential[size]
