"""Plan-Path's instances: random grids of a difficulty, each in the split that its symmetry-free form says."""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import Any, NamedTuple

from pettingllms_envs.core import check_whole
from pettingllms_envs.environments.plan_path.grid import PlanPathState, distance, form
from pettingllms_envs.instances import seeded, split_of
from pettingllms_envs.tasks.grid import check_most


NAME, VERSION = "plan_path", 0

MAX_SIZE = 100  # the bitmask of a larger grid would pass Python's limit on the digits of a printed integer


class Difficulty(NamedTuple):
    """Which instances are meant: the share of blocked cells, and least and greatest distance and detour."""

    blocked: float
    min_distance: int
    max_distance: int | None = None
    min_detour: int = 0
    max_detour: int | None = None


def levels(size: int) -> Mapping[int, Difficulty]:
    """The difficulty of each level: walls become denser, ways longer, and their detours around walls larger."""
    half, near, far = max(2, size // 2), max(2, size), size + size // 2
    return {
        1: Difficulty(0.22, 1, half, 0, 0),
        2: Difficulty(0.22, half, near, 0, 0),
        3: Difficulty(0.22, half, None, 2),
        4: Difficulty(0.35, near, None, 4),
        5: Difficulty(0.35, far, None, 6),
    }


def draws(size: int, wanted: Difficulty, split: str, seed: int) -> Iterator[PlanPathState | None]:
    """Random grids without end: the state where it is as wanted and in the split, else None."""
    rng = seeded(f"{_stem(size, *wanted, split)} {seed}")
    num_cells, num_blocked = size * size, _num_blocked(size, wanted.blocked)
    while True:
        blocked = _mask(rng, num_cells, num_blocked)
        start = _free(rng, num_cells, blocked)
        goal = _free(rng, num_cells, blocked | 1 << start)
        if split_of(form(size, blocked, start, goal)) == split:
            steps = distance(size, blocked, goal, start)
            if _fits(size, wanted, start, goal, steps):
                yield PlanPathState(size, blocked, start, goal, start, steps, steps)
                continue
        yield None


def _fits(size: int, wanted: Difficulty, start: int, goal: int, steps: int) -> bool:
    """Whether an instance with this distance is as wanted."""
    low, high, least, most = wanted.min_distance, wanted.max_distance, wanted.min_detour, wanted.max_detour
    if steps < low or (high is not None and steps > high):
        return False
    if not least and most is None:
        return True
    detour = steps - abs(start // size - goal // size) - abs(start % size - goal % size)
    return detour >= least and (most is None or detour <= most)


@lru_cache(maxsize=256, typed=True)
def _stem(*settings: object) -> str:
    """What decides an instance besides its seed."""
    return " ".join(map(str, (NAME, f"v{VERSION}", *settings)))


def _free(rng: random.Random, num_cells: int, blocked: int) -> int:
    while True:
        cell = int(rng.random() * num_cells)
        if not blocked >> cell & 1:
            return cell


def _mask(rng: random.Random, num_cells: int, num_set: int) -> int:
    """A bit mask with that many of its bits set, all such masks being as likely.

    Random words are combined to about the right share, then random bits are set or cleared; no bit is ever preferred.
    """
    mask = 0
    for more in _shares(num_cells, num_set):
        word = rng.getrandbits(num_cells)
        mask = mask | word if more else mask & word
    surplus = mask.bit_count() - num_set
    every = (1 << num_cells) - 1
    pool = mask if surplus > 0 else mask ^ every  # the bits to choose from
    for _ in range(abs(surplus)):
        while not pool & (bit := 1 << int(rng.random() * num_cells)):
            pass
        pool ^= bit
    return pool if surplus > 0 else pool ^ every


@lru_cache(maxsize=256)
def _shares(num_cells: int, num_set: int) -> tuple[bool, ...]:
    """The share of set bits in sixteenths: its binary digits, the last one first."""
    return tuple(digit == "1" for digit in f"{int(16 * num_set / num_cells):04b}"[::-1])


def _num_blocked(size: int, blocked: float) -> int:
    return round(blocked * size * size)


def check_settings(size: Any, wanted: Difficulty) -> None:
    """Raise ValueError for settings that no grid can meet."""
    blocked, low, high = wanted.blocked, wanted.min_distance, wanted.max_distance
    check_whole("size", size, 3, MAX_SIZE)
    if not isinstance(blocked, int | float) or not 0 <= blocked < 1:
        raise ValueError(f"blocked is {blocked!r}; expected a share of the cells in [0, 1), such as 0.22.")
    free = size * size - _num_blocked(size, blocked)
    if free < 2:
        raise ValueError(
            f"blocked is {blocked!r}, which leaves {free} of {size * size} cells free; expected 2. Lower it."
        )
    if not isinstance(low, int) or not 1 <= low < free:
        raise ValueError(
            f"min_distance is {low!r}; expected 1 to {free - 1}, the longest walk over the {free} free cells of a"
            f" {size} x {size} grid with a share of {blocked} blocked. Lower it, or block less."
        )
    check_most("distance", low, high)
    check_whole("min_detour", wanted.min_detour, 0)
    check_most("detour", wanted.min_detour, wanted.max_detour)


@lru_cache(maxsize=256)
def check_split(size: int, wanted: Difficulty, split: str) -> None:
    """Raise ValueError when a search for one instance gives up. An error is not cached, a success is."""
    tries = max(500, min(20_000, 2_000_000 // (size * size)))
    if not any(state for state, _ in zip(draws(size, wanted, split, 0), range(tries), strict=False)):
        raise ValueError(
            f"found no {split} instance in {tries} draws with size {size} and {wanted}; expected one. Widen the"
            " distances, ask for less of a detour, block less, or take a larger grid."
        )
