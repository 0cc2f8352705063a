"""Exact distances of two arms: how many skills, and how many ticks, from any placement of the cubes to the goals.

A placement is a number, of which there are N. Its digits in base `columns` + 2 are the places of the cubes: a column,
or one of two grippers. What a skill does another one undoes, and so do two in one tick; so distances to the goals are
distances from them, by breadth-first search.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache

import numpy as np
import numpy.typing as npt


Ints = npt.NDArray[np.int32]
NOWHERE = -1
NEVER = 255


@lru_cache(maxsize=8)
def _skills(reach: tuple[range, range], columns: int, cubes: int) -> tuple[tuple[Ints, Ints], ...]:
    """For each arm, where its A skills (to wait, pick a cube, place in a column) lead from each placement, and the
    column in which they work, both (N, A); the same placement and `NOWHERE` where a skill is not possible."""
    base = columns + 2
    placements = np.arange(base**cubes, dtype=np.int32)
    places = [placements // base**cube % base for cube in range(cubes)]
    arms = []
    for gripper, own in enumerate(reach, columns):
        holds = [place == gripper for place in places]
        is_full = np.logical_or.reduce(holds)
        skills = [(placements, np.full_like(placements, NOWHERE))]
        for cube, place in enumerate(places):
            can = ~is_full & (place >= own.start) & (place < own.stop)
            moved = placements + (gripper - place) * base**cube
            skills.append((np.where(can, moved, placements), np.where(can, place, NOWHERE)))
        for column in own:
            can = is_full & ~np.logical_or.reduce([place == column for place in places])
            moved = placements + sum(hold * (column - gripper) * base**cube for cube, hold in enumerate(holds))
            skills.append((np.where(can, moved, placements), np.where(can, column, NOWHERE)))
        after, at = (np.stack(each, axis=1).astype(np.int32) for each in zip(*skills, strict=True))
        arms.append((after, at))
    return tuple(arms)


@lru_cache(maxsize=256)  # up to 0.2 MB each
def distances(reach: tuple[range, range], columns: int, goals: tuple[int, ...]) -> tuple[bytes, bytes]:
    """For each placement, the fewest skills to the goals if one arm acts at a time, and the fewest ticks, or `NEVER`.

    Args:
        goals: Columns of the cubes, in ascending order.
    """
    (left, left_at), (right, right_at) = _skills(reach, columns, len(goals))

    def after_skill(begin: Ints) -> Ints:
        return np.concatenate([left[begin].ravel(), right[begin].ravel()])

    def after_tick(begin: Ints) -> Ints:
        """Both arms begin in the same placement; the right one does nothing unless the left one is to the left."""
        found = []
        for skill in range(left.shape[1]):
            after = left[begin, skill]
            fits = left_at[begin, skill][:, None] < right_at[begin]
            found.append(np.unique(np.where(fits, right[after], after[:, None])))
        return np.concatenate(found)

    goal = number(goals, columns)
    return _search(after_skill, len(left), goal), _search(after_tick, len(left), goal)


def number(places: Sequence[int], columns: int) -> int:
    """The number of a placement."""
    return sum(place * (columns + 2) ** cube for cube, place in enumerate(places))


def _search(after: Callable[[Ints], Ints], size: int, goal: int) -> bytes:
    found = np.full(size, NEVER, dtype=np.uint8)
    frontier, distance = np.array([goal], dtype=np.int32), 0
    while len(frontier):
        found[frontier] = distance
        reached = np.unique(after(frontier))
        frontier, distance = reached[found[reached] == NEVER], distance + 1
    return found.tobytes()
