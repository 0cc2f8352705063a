"""A finite class of hypotheses as a table of readings, so that what experiments tell is exact.

Row h and column e have what experiment e shows if hypothesis h is true. Hypotheses that no experiment can tell apart
are one row. All hypotheses are equally likely, and a bit is a halving of their number.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from pettingllms_envs.caching import remembered


Readings = npt.NDArray[np.uint8]
Rows = npt.NDArray[np.intp]


@dataclass(frozen=True, eq=False)
class Space:
    """A class of hypotheses.

    Args:
        table: What each experiment shows under each hypothesis; shape (hypotheses, experiments).
        names: A hypothesis for each row, the first of those that no experiment tells apart.
        row_of: The row of every hypothesis, by what names it.
        experiments: What names each experiment, in the order of the columns.
        budget: Experiments of an episode.
        planned: Bits that are not paid, as experiments that are all chosen at the start find them.
    """

    table: Readings
    names: tuple[Any, ...]
    row_of: dict[Any, int]
    experiments: tuple[Any, ...]
    budget: int
    planned: float = 0.0

    def __len__(self) -> int:
        return len(self.table)

    @property
    def bits(self) -> float:
        return math.log2(len(self))

    @cached_property
    def column_of(self) -> dict[Any, int]:
        """The number of every experiment."""
        return {each: column for column, each in enumerate(self.experiments)}

    @property
    def least_depth(self) -> int:
        """A lower bound on the experiments that any tree of experiments needs at most."""
        return math.ceil(self.bits / math.log2(self.num_readings))

    @cached_property
    def num_readings(self) -> int:
        """The most readings that one experiment can have."""
        return max(len(np.unique(column)) for column in self.table.T)


def space_of(
    table: Sequence[npt.NDArray[Any]],
    names: Sequence[Any],
    experiments: Sequence[Any],
    budget: int,
    planned: float = 0.0,
) -> Space:
    """The class whose hypotheses have these rows of readings from 0 to 255; equal rows become one."""
    rows = np.array(table).astype(np.uint8)
    _, first, row = np.unique(rows, axis=0, return_index=True, return_inverse=True)
    order = np.argsort(first)  # as they were given
    place = np.argsort(order)[row.ravel()]
    kept = np.ascontiguousarray(rows[first[order]])
    kept.setflags(write=False)
    named = {name: int(index) for name, index in zip(names, place, strict=True)}
    return Space(kept, tuple(names[index] for index in first[order]), named, tuple(experiments), budget, planned)


def left(space: Space, truth: int, tried: Sequence[int]) -> Rows:
    """The hypotheses that agree with all experiments so far, in their order."""
    return _left(space, tuple([(column, int(space.table[truth, column])) for column in tried]))


@remembered(4096)
def _left(space: Space, readings: tuple[tuple[int, int], ...]) -> Rows:
    if not readings:
        return np.arange(len(space))
    before: Rows = _left(space, readings[:-1])
    column, reading = readings[-1]
    found: Rows = before[space.table[before, column] == reading]
    return found


def best_experiment(space: Space, truth: int, tried: Sequence[int]) -> int:
    """The experiment that tells most of what is left, in expectation; the first of several."""
    return _best(space, tuple([(column, int(space.table[truth, column])) for column in tried]))


@remembered(4096)
def _best(space: Space, readings: tuple[tuple[int, int], ...]) -> int:
    return int(np.argmin(remaining(space.table[_left(space, readings)])))


def remaining(table: Readings) -> npt.NDArray[np.float64]:
    """The bits that each experiment would leave, in expectation, of equally likely rows; rounded, so that ties are."""
    total = np.zeros(table.shape[1])
    for reading in range(int(table.max()) + 1):
        count = np.count_nonzero(table == reading, axis=0)
        total += count * np.log2(np.maximum(count, 1))
    return np.round(total / len(table), 9)
