"""A table with two arms: which skills are possible, where they lead, and why a task needs both arms.

Placements are the places of the cubes: a column, `columns` for what the left arm holds, `columns + 1` for the right.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from typing import NamedTuple

from pettingllms_envs.environments.two_arms.distances import distances, number


ARMS = ("left", "right")
PICK, PLACE, WAIT = "pick", "place", "wait"
LOST = -1
"""Place of a cube that has slipped and stands in no column."""
SHARED = 2
"""Columns that both arms reach."""

Places = tuple[int, ...]


class Skill(NamedTuple):
    """What an arm does in a tick.

    Args:
        kind: `"pick"`, `"place"` or `"wait"`.
        target: The cube to pick or the column to place it in, any whole number.
    """

    kind: str = WAIT
    target: int = 0

    @property
    def text(self) -> str:
        """Such as `pick 0` or `wait`."""
        return self.kind if self.kind == WAIT else f"{self.kind} {self.target}"


Skills = tuple[Skill, Skill]
"""Of the left and the right arm."""


class Proof(NamedTuple):
    """Why an instance needs both arms.

    Args:
        left_cannot: Cubes that the left arm alone cannot bring to their goals, as it does not reach start or goal.
        fewest: Fewest ticks if both arms act.
        one_at_a_time: Fewest ticks if in each of them one arm waits.
    """

    left_cannot: tuple[int, ...]
    right_cannot: tuple[int, ...]
    fewest: int
    one_at_a_time: int

    @property
    def needs_both(self) -> bool:
        """Whether no arm alone can succeed, and taking turns takes at least two ticks more than acting at once."""
        return bool(self.left_cannot and self.right_cannot) and self.fewest + 1 < self.one_at_a_time


class Table(NamedTuple):
    """A row of columns."""

    columns: int

    @property
    def reach(self) -> tuple[range, range]:
        """The columns that each arm reaches."""
        each = (self.columns + SHARED) // 2
        return range(each), range(self.columns - each, self.columns)

    def failures(self, places: Places, move: Skills) -> tuple[str, str]:
        """For each arm, why its skill is not possible, in fixed words; empty if it is."""
        left, right = (self._why_not(places, arm, skill) for arm, skill in enumerate(move))
        if not (left or right) and all(kind != WAIT for kind, _ in move):
            at = [places[target] if kind == PICK else target for kind, target in move]
            if at[0] >= at[1]:
                right = "the left arm works there" if at[0] == at[1] else "the arms would cross"
        return left, right

    def words(self, places: Places, move: Skills) -> tuple[str, str]:
        """For each arm what it did, and if it failed why."""
        told = [
            f"{skill.text} failed: {why}" if why else skill.text
            for skill, why in zip(move, self.failures(places, move), strict=True)
        ]
        return told[0], told[1]

    def _why_not(self, places: Places, arm: int, skill: Skill) -> str:
        """Why an arm cannot play a skill, whatever the other one does."""
        kind, target = skill
        holds = self.columns + arm in places
        if kind == WAIT:
            return ""
        if kind == PLACE:
            if not holds:
                return "its gripper is empty"
            if not 0 <= target < self.columns:
                return "there is no such column"
            return "the column is taken" if target in places else self._out_of_reach(arm, target)
        if not 0 <= target < len(places):
            return "there is no such cube"
        if places[target] >= self.columns:
            return "a gripper holds that cube already"
        if places[target] == LOST:
            return "that cube has slipped and cannot be picked up"
        return "its gripper is full" if holds else self._out_of_reach(arm, places[target])

    def _out_of_reach(self, arm: int, column: int) -> str:
        return "" if column in self.reach[arm] else "it is out of its reach"

    def after(self, places: Places, move: Skills) -> Places:
        """The placement after a tick; a skill that fails does nothing."""
        after, failures = list(places), self.failures(places, move)
        for arm, (kind, target) in enumerate(move):
            if kind == PICK and not failures[arm]:
                after[target] = self.columns + arm
            elif kind == PLACE and not failures[arm]:
                after[places.index(self.columns + arm)] = target
        return tuple(after)

    def possible(self, places: Places) -> list[Skills]:
        """All moves of which no skill fails, those that wait first."""
        skills = [Skill(), *(Skill(PICK, cube) for cube in range(len(places)))]
        skills += [Skill(PLACE, column) for column in range(self.columns)]
        own = [[skill for skill in skills if not self._why_not(places, arm, skill)] for arm in range(len(ARMS))]
        return [(left, right) for left, right in product(*own) if not any(self.failures(places, (left, right)))]

    def distances(self, places: Places, goals: Places) -> tuple[int, int]:
        """Fewest skills, if one arm acts at a time, and fewest ticks to the goals."""
        order = sorted(range(len(goals)), key=goals.__getitem__)
        skills, ticks = distances(self.reach, self.columns, tuple(goals[cube] for cube in order))
        at = number([places[cube] for cube in order], self.columns)
        return skills[at], ticks[at]

    def proof(self, starts: Places, goals: Places) -> Proof:
        """Why the instance needs both arms, if it does."""
        trips = list(enumerate(zip(starts, goals, strict=True)))
        left, right = (
            tuple(cube for cube, ends in trips if not all(end in own for end in ends)) for own in self.reach
        )
        one_at_a_time, fewest = self.distances(starts, goals)
        return Proof(left, right, fewest, one_at_a_time)

    def form(self, starts: Sequence[int], goals: Sequence[int]) -> bytes:
        """What an instance and its mirror image have in common, whatever the numbers of the cubes."""
        trips = sorted(zip(starts, goals, strict=True))
        mirrored = sorted((self.columns - 1 - start, self.columns - 1 - goal) for start, goal in trips)
        return repr(min(trips, mirrored)).encode()
