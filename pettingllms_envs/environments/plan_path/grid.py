"""Plan-Path's grid: its state, exact distances by bit masks, and what its rotations and reflections have in common."""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple


class PlanPathState(NamedTuple):
    """A walker on a grid. Cells are numbered row by row from 0, so cell = row * size + column.

    Args:
        size: Rows and columns.
        blocked: Bit c is set when cell c is blocked.
        optimal: Length of the shortest walk from the start to the goal.
        left: Length of the shortest walk from the position to the goal.
    """

    size: int
    blocked: int
    start: int
    goal: int
    position: int
    optimal: int
    left: int
    walked: int = 0


@lru_cache(maxsize=32)
def neighbours_of(size: int) -> tuple[dict[str, int], ...]:
    """Per cell the cell that each letter leads to, -1 for off the grid."""
    last = size - 1
    return tuple(
        {
            "U": cell - size if cell >= size else -1,
            "D": cell + size if cell < size * last else -1,
            "L": cell - 1 if cell % size else -1,
            "R": cell + 1 if cell % size < last else -1,
        }
        for cell in range(size * size)
    )


@lru_cache(maxsize=128)
def within(size: int, blocked: int, goal: int, start: int | None = None) -> tuple[int, ...]:
    """Per number of steps the cells, as a bit mask, from which the goal can be reached in that many or fewer.

    With a start the first mask that has it in is the last one.
    """
    left, right, free = _inner(size)
    free &= ~blocked
    reached, near, wanted = 1 << goal, 0, 0 if start is None else 1 << start
    masks = []
    while reached != near:
        masks.append(reached)
        if reached & wanted:
            break
        near = reached
        reached |= ((near & right) << 1 | (near & left) >> 1 | near << size | near >> size) & free
    return tuple(masks)


def distance(size: int, blocked: int, goal: int, cell: int) -> int:
    """Length of the shortest walk from the cell to the goal, -1 if there is none."""
    masks = within(size, blocked, goal, cell)
    return len(masks) - 1 if masks[-1] >> cell & 1 else -1


@lru_cache(maxsize=32)
def _inner(size: int) -> tuple[int, int, int]:
    """Bit masks of the cells that have one to their left, of those that have one to their right, of all."""
    row = (1 << size) - 1
    every = (1 << size * size) - 1
    rows = every // row
    return every - rows, every - (rows << size - 1), every


@lru_cache(maxsize=32)
def _orbits(size: int) -> tuple[tuple[bytes, ...], tuple[int, ...]]:
    """The cells that rotations and reflections take to each other: per cell its orbit's number; a mask of each."""
    last = size - 1
    keys = [
        tuple(sorted((min(row, last - row), min(column, last - column))))
        for row, column in (divmod(cell, size) for cell in range(size * size))
    ]
    numbers = {key: number.to_bytes(2, "big") for number, key in enumerate(dict.fromkeys(keys))}
    masks = [sum(1 << cell for cell, own in enumerate(keys) if own == key) for key in numbers]
    return tuple(numbers[key] for key in keys), tuple(masks)


def form(size: int, blocked: int, start: int, goal: int) -> bytes:
    """What all rotations and reflections of an instance have in common: how many of each orbit's cells are blocked,
    and the orbits of start and goal."""
    orbit_of, masks = _orbits(size)
    return bytes([(blocked & mask).bit_count() for mask in masks]) + orbit_of[start] + orbit_of[goal]
