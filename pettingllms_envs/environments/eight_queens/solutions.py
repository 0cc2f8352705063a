"""The 92 solutions of Eight Queens, how far a placement is from them, and instances.

A placement is the column of the queen of each row, from 0.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Collection
from functools import cache, lru_cache

from pettingllms_envs.instances import split_of


SIZE = 8
Placement = tuple[int, ...]


@cache
def solutions() -> tuple[Placement, ...]:
    """All placements without two queens in one column or on one diagonal."""
    found: list[Placement] = [()]
    for row in range(SIZE):
        found = [
            (*placed, column)
            for placed in found
            for column in range(SIZE)
            if all(column != other and abs(column - other) != row - above for above, other in enumerate(placed))
        ]
    return tuple(found)


@lru_cache(maxsize=4096)
def nearest(placed: Placement, fixed: int) -> Placement:
    """The first of the solutions with the queens of the fixed rows, a bit each, in which most queens are already."""
    rows = [row for row in range(SIZE) if fixed >> row & 1]
    legal = [each for each in solutions() if all(each[row] == placed[row] for row in rows)]
    return min(legal, key=lambda each: distance(placed, each))


def distance(placed: Placement, other: Placement) -> int:
    """How many queens are elsewhere."""
    return sum(one != two for one, two in zip(placed, other, strict=True))


def attacks(placed: Placement) -> list[tuple[int, int]]:
    """The rows of each two queens in one column or on one diagonal."""
    return [
        (one, two)
        for one, two in itertools.combinations(range(SIZE), 2)
        if abs(placed[one] - placed[two]) in (0, two - one)
    ]


def form(cells: Collection[tuple[int, int]]) -> bytes:
    """What squares have in common with all that are turned or mirrored."""
    last, found = SIZE - 1, []
    for turned in (cells, [(column, row) for row, column in cells]):
        for down, right in itertools.product((0, last), repeat=2):
            found.append(sorted((abs(down - row), abs(right - column)) for row, column in turned))
    return repr(min(found)).encode()


def draw(rng: random.Random, fixed: int, least: int, most: int, split: str) -> tuple[Placement, int]:
    """A placement whose fixed queens, a number of them, are those of the split, and `least` to `most` others wrong.

    The queens of a split's instances have no fixed queens in common with those of another, turned and mirrored.
    """
    while True:
        solution, rows = rng.choice(solutions()), rng.sample(range(SIZE), fixed)
        mask = sum(1 << row for row in rows)
        if split_of(form([(row, solution[row]) for row in rows])) != split:
            continue
        placed = list(solution)
        for row in rng.sample([row for row in range(SIZE) if row not in rows], rng.randint(least, SIZE - fixed)):
            placed[row] = rng.randrange(SIZE)
        start = tuple(placed)
        if least <= distance(start, nearest(start, mask)) <= most:
            return start, mask
