"""Towers of blocks: moves, exact distances to a goal, and instances.

Blocks are numbered from 0. A placement says of each block which one it lies on, or `ON_TABLE`. All goals with towers
of the same heights are one goal with the blocks renamed, so there is one table of distances for each list of heights:
of 6 blocks ten tables of 4,051 placements, made by breadth-first search.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator
from functools import lru_cache
from typing import NamedTuple

from pettingllms_envs.instances import split_of


ON_TABLE = -1

Placement = tuple[int, ...]
Move = tuple[int, int]
"""A block, and what it is put on: a block, or `ON_TABLE`."""


class Table(NamedTuple):
    """The goal of some heights, whose towers are numbered from the bottom, and the distance of every placement."""

    goal: Placement
    distances: dict[Placement, int]
    by_distance: tuple[tuple[Placement, ...], ...]


def moves_of(placed: Placement) -> Iterator[Move]:
    """The moves that are possible: of a block with nothing on it, onto another such block or the table."""
    taken = set(placed)
    clear = [block for block in range(len(placed)) if block not in taken]
    for block in clear:
        for target in (*clear, ON_TABLE):
            if target not in (block, placed[block]):
                yield block, target


def moved(placed: Placement, move: Move) -> Placement | None:
    """The placement after a move, or None if it is not possible."""
    block, target = move
    if max(move) >= len(placed) or block in placed or target in (block, placed[block]):
        return None
    if target != ON_TABLE and target in placed:
        return None
    return (*placed[:block], target, *placed[block + 1 :])


def towers(placed: Placement) -> list[list[int]]:
    """The towers from the table up, in the order of their lowest blocks."""
    above = {under: block for block, under in enumerate(placed)}
    found = [[block] for block, under in enumerate(placed) if under == ON_TABLE]
    for tower in found:
        while tower[-1] in above:
            tower.append(above[tower[-1]])
    return found


@lru_cache(maxsize=64)
def table_of(heights: tuple[int, ...]) -> Table:
    """The distances to a goal with towers of these heights."""
    first, goal = 0, list[int]()
    for height in heights:
        goal += [ON_TABLE, *range(first, first + height - 1)]
        first += height
    distances, wave = {tuple(goal): 0}, [tuple(goal)]
    by_distance = [tuple(wave)]
    while wave:
        after = []
        for placed in wave:
            for block, target in moves_of(placed):  # every move can be taken back
                other = (*placed[:block], target, *placed[block + 1 :])
                if other not in distances:
                    distances[other] = len(by_distance)
                    after.append(other)
        wave = after
        by_distance.append(tuple(wave))
    return Table(tuple(goal), distances, tuple(by_distance[:-1]))


def renamed(placed: Placement, names: tuple[int, ...]) -> Placement:
    """The placement with block i renamed to `names[i]`."""
    found = [ON_TABLE] * len(placed)
    for block, under in enumerate(placed):
        if under != ON_TABLE:
            found[names[block]] = names[under]
    return tuple(found)


def order_of(goal: Placement) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """The heights of a goal's towers, the tallest first, and per block its number in the goal of their table."""
    found = sorted(towers(goal), key=len, reverse=True)
    names = [0] * len(goal)
    for number, block in enumerate(itertools.chain(*found)):
        names[block] = number
    return tuple(map(len, found)), tuple(names)


def distance(placed: Placement, goal: Placement) -> int:
    """The fewest moves from a placement to the goal."""
    heights, names = order_of(goal)
    return table_of(heights).distances[renamed(placed, names)]


def form(heights: tuple[int, ...], placed: Placement) -> bytes:
    """What an instance has in common with all that only rename its blocks: of the goal's table, its towers swapped."""
    starts = [sum(heights[:index]) for index in range(len(heights))]
    alike = [list(group) for _, group in itertools.groupby(range(len(heights)), key=heights.__getitem__)]
    swaps = itertools.product(*map(itertools.permutations, alike))
    names = (
        tuple(starts[tower] + floor for tower in itertools.chain(*swap) for floor in range(heights[tower]))
        for swap in swaps
    )
    return repr((heights, min(renamed(placed, each) for each in names))).encode()


def shapes(number: int, most: int | None = None) -> Iterator[tuple[int, ...]]:
    """All heights that towers of a number of blocks can have, the tallest first."""
    if not number:
        yield ()
    for height in range(min(number, number if most is None else most), 0, -1):
        for rest in shapes(number - height, height):
            yield (height, *rest)


def draw(rng: random.Random, number: int, least: int, most: int, split: str) -> tuple[Placement, Placement]:
    """A start and a goal of a number of blocks, from `least` to `most` moves apart, of the split."""
    goals = [heights for heights in shapes(number) if heights[0] > 1]
    while True:
        heights = rng.choice(goals)
        table = table_of(heights)
        starts = [placed for wave in table.by_distance[least : most + 1] for placed in wave]
        if starts and split_of(form(heights, start := rng.choice(starts))) == split:
            names = tuple(rng.sample(range(number), number))
            return renamed(start, names), renamed(table.goal, names)
