"""Exact distances of two arms: how many skills, and how many ticks, from any placement of the cubes to the goals.

A placement is a number whose digits, in base `columns` + 2, are the places of the cubes: a column, or one of two
grippers. What a skill does another one undoes, and so do two in one tick; so distances to the goals are distances from
them, by breadth-first search.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import numpy.typing as npt


Ints = npt.NDArray[np.int32]
NOWHERE = -1


@dataclass(frozen=True, slots=True, eq=False)
class Graph:
    """All placements, N of them, and where each of A skills leads from each: `wait`, a `pick` of each cube, a `place`
    in each column.

    Args:
        left: Placements after a skill of the left arm, (N, A); the same one where the skill is not possible.
        right: The same of the right arm.
        left_at: The column in which the left arm works then, (N, A); `NOWHERE` if it does nothing.
        right_at: The same of the right arm.
    """

    left: Ints
    right: Ints
    left_at: Ints
    right_at: Ints

    def after_skill(self, placements: Ints) -> Ints:
        """Placements after one skill of one arm."""
        return np.concatenate([self.left[placements].ravel(), self.right[placements].ravel()])

    def after_tick(self, placements: Ints) -> Ints:
        """Placements after a skill of each arm, both begun in the same placement."""
        found = []
        right_at = self.right_at[placements]
        for skill in range(self.left.shape[1]):
            after = self.left[placements, skill][:, None]
            fits = self.left_at[placements, skill][:, None] < right_at  # not if the right arm does nothing
            found.append(np.unique(np.where(fits, self.right[after[:, 0]], after)))
        return np.concatenate(found)


@lru_cache(maxsize=8)
def graph(reach: tuple[range, range], columns: int, cubes: int) -> Graph:
    """The graph of a table.

    Args:
        reach: The columns of each arm.
    """
    base = columns + 2
    placements = np.arange(base**cubes, dtype=np.int32)
    places = [placements // base**cube % base for cube in range(cubes)]
    made: list[Ints] = []
    for arm, own in enumerate(reach):
        gripper = columns + arm
        holds = [place == gripper for place in places]
        is_empty = ~np.logical_or.reduce(holds)
        after, at = [placements], [np.full_like(placements, NOWHERE)]
        for cube, place in enumerate(places):
            can = is_empty & (place >= own.start) & (place < own.stop)
            after.append(np.where(can, placements + (gripper - place) * base**cube, placements))
            at.append(np.where(can, place, NOWHERE))
        for column in own:
            is_free = ~np.logical_or.reduce([place == column for place in places])
            moved = sum(hold * (column - gripper) * base**cube for cube, hold in enumerate(holds))
            can = is_free & ~is_empty
            after.append(np.where(can, placements + moved, placements))
            at.append(np.where(can, column, NOWHERE))
        made += [np.stack(after, axis=1).astype(np.int32), np.stack(at, axis=1).astype(np.int32)]
    left, left_at, right, right_at = made
    return Graph(left, right, left_at, right_at)


@lru_cache(maxsize=512)
def distances(reach: tuple[range, range], columns: int, goals: tuple[int, ...]) -> tuple[bytes, bytes]:
    """For each placement, the fewest skills to the goals if one arm acts at a time, and the fewest ticks; 255: never.

    Args:
        goals: Columns of the cubes, in ascending order.
    """
    moves = graph(reach, columns, len(goals))
    return _search(moves.after_skill, moves.left.shape[0], number(goals, columns)), _search(
        moves.after_tick, moves.left.shape[0], number(goals, columns)
    )


def number(places: Sequence[int], columns: int) -> int:
    """The number of a placement."""
    total = 0
    for place in reversed(places):
        total = total * (columns + 2) + place
    return total


def _search(after: Callable[[Ints], Ints], size: int, goal: int) -> bytes:
    found = np.full(size, 255, dtype=np.uint8)
    frontier, distance = np.array([goal], dtype=np.int32), 0
    while len(frontier):
        found[frontier] = distance
        reached = np.unique(after(frontier))
        frontier, distance = reached[found[reached] == 255], distance + 1
    return found.tobytes()
