"""Sokoban's tables: the exact distance to the goal of every solvable position of a room, by playing backwards.

One breadth-first search in moves from the solved positions, taking moves back: a step away, or a box pulled along. It
reaches exactly the positions that can be solved, so what it does not reach is dead. All cells in which the player can
be at one distance with the boxes in one place form a front, stored as one int, so that one shift moves them all.
"""

from __future__ import annotations

from functools import lru_cache
from math import comb
from typing import Final

from pettingllms_envs.environments.sokoban.bound import DEAD


MAX_PLACEMENTS: Final = 10_000  # of the boxes in a room; its table takes some 10 ms and at most some MB

# Per placement of the boxes its waves, nearest first, each with the cells above the distance: a pair in one int, as
# tens of thousands of tuples would keep Python's garbage collector busy.
Table = dict[int, list[int]]

_CELLS = 32  # where the cells of a front begin
_DISTANCE = (1 << _CELLS) - 1


@lru_cache(maxsize=256)
def table_of(width: int, walls: int, goals: int) -> Table | None:
    """The table of a room, or None if there are more than `MAX_PLACEMENTS` placements of its boxes."""
    floor = ~walls & (1 << walls.bit_length()) - 1
    if comb(floor.bit_count(), goals.bit_count()) > MAX_PLACEMENTS:
        return None
    table: Table = {goals: []}
    unseen = {goals: 0}
    pulls = {goals: _pulls(goals, floor & ~goals, width)}
    wave = {goals: floor & ~goals}
    moves = 0
    while wave:
        earlier: dict[int, int] = {}
        for boxes, players in wave.items():
            table[boxes].append(players << _CELLS | moves)
            more = (players << 1 | players >> 1 | players << width | players >> width) & unseen[boxes]
            if more:
                unseen[boxes] ^= more
                earlier[boxes] = earlier.get(boxes, 0) | more
            for cells, step in pulls[boxes]:
                at = players & cells
                while at:
                    cell = at & -at
                    at ^= cell
                    if step > 0:
                        before, back = boxes ^ cell ^ cell << step, cell >> step
                    else:
                        before, back = boxes ^ cell ^ cell >> -step, cell << -step
                    if before not in table:
                        free = floor & ~before
                        table[before] = []
                        unseen[before] = free ^ back
                        pulls[before] = _pulls(before, free, width)
                        earlier[before] = back
                    elif unseen[before] & back:
                        unseen[before] ^= back
                        earlier[before] = earlier.get(before, 0) | back
        wave = earlier
        moves += 1
    return table


def _pulls(boxes: int, free: int, width: int) -> list[tuple[int, int]]:
    """Per step of a push where the player can be after it: a box is ahead and the cell behind is free."""
    ways = (
        (boxes >> 1 & free & free << 1, 1),
        (boxes << 1 & free & free >> 1, -1),
        (boxes >> width & free & free << width, width),
        (boxes << width & free & free >> width, -width),
    )
    return [way for way in ways if way[0]]


def distance(table: Table, boxes: int, player: int) -> int:
    """The fewest moves from a position to the goal, or `DEAD`."""
    bit = player + _CELLS
    for wave in table.get(boxes, ()):
        if wave >> bit & 1:
            return wave & _DISTANCE
    return DEAD


def longest(table: Table) -> int:
    """The greatest distance of a table."""
    return max([waves[-1] & _DISTANCE for waves in table.values()])


def at_distance(table: Table, moves: int) -> list[tuple[int, int]]:
    """All placements of the boxes with positions at that distance, each with the player's cells as a set."""
    return [(boxes, wave >> _CELLS) for boxes, waves in table.items() for wave in waves if wave & _DISTANCE == moves]
