"""Assigns rows to processes, for playing and for training: pure functions with the same result on each process.

Each process plays its share of the instances. Then all episodes are gathered, and each policy's sequences are
redistributed for training: the number of decisions varies, but a forward pass must have the same number of rows on
each process, or the processes would deadlock.

    assign([4, 0, 2, 3, 1], num_steps=2, num_processes=2).rows
    #       process 0   process 1
    # (((4, 2),    (0, None)),   micro-step 0: rows 4, 0, 2
    #  ((3,),      (1,)))        micro-step 1: rows 3, 1

`None` is a padding row: its mask is zero, and it counts nowhere.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeVar


T = TypeVar("T")


def share_of(num_rows: int, num_processes: int, process: int) -> range:
    """The rows of a rollout that a process plays: contiguous, in the order of the processes, as even as possible.

    >>> [list(share_of(5, 3, process)) for process in range(3)]
    [[0], [1, 2], [3, 4]]
    """
    return range(num_rows * process // num_processes, num_rows * (process + 1) // num_processes)


@dataclass(frozen=True, slots=True)
class Assignment:
    """Which of a policy's rows each process trains on in which micro-step.

    Args:
        rows: For each micro-step and process the indices of its rows, `None` for a padding row. In a micro-step all
            processes have the same number.
        passes: For each micro-step the number of its rows in each forward pass, the same for each process. The rows
            after those of the last pass go through none. `None`: not decided yet.
    """

    rows: tuple[tuple[tuple[int | None, ...], ...], ...]
    passes: tuple[tuple[int, ...], ...] | None = None

    @property
    def num_here(self) -> tuple[int, ...]:
        """Rows of each process by micro-step, padding rows included."""
        return tuple(len(step[0]) for step in self.rows)

    @property
    def num_rows(self) -> tuple[int, ...]:
        """Real rows of all processes by micro-step."""
        return tuple(sum(row is not None for rows in step for row in rows) for step in self.rows)

    @property
    def num_padding_rows(self) -> int:
        """Padding rows of all processes and micro-steps."""
        return sum(len(rows) for step in self.rows for rows in step) - sum(self.num_rows)

    def rows_of(self, process: int) -> tuple[int | None, ...]:
        """A process's rows, micro-step after micro-step."""
        return tuple(row for step in self.rows for row in step[process])

    def restore_order(self, values: Sequence[T]) -> list[T]:
        """Values gathered process after process, back in the order of the rows, without those of padding rows."""
        processes = range(len(self.rows[0]))
        rows = [row for process in processes for row in self.rows_of(process)]
        back = {row: value for row, value in zip(rows, values, strict=True) if row is not None}
        return [back[row] for row in range(len(back))]


def assign(order: Sequence[int], *, num_steps: int, num_processes: int) -> Assignment:
    """Assign a policy's rows to micro-steps, as with one process, and those of a micro-step to processes.

    Args:
        order: The indices of the rows, shuffled.
        num_steps: Micro-steps per generation. If the rows do not divide evenly, the first ones have one row more.
        num_processes: Number of processes. If a micro-step's rows do not divide evenly, padding rows are added.
    """
    size, longer = divmod(len(order), num_steps)
    steps = []
    start = 0
    for step in range(num_steps):
        rows = order[start : start + size + (step < longer)]
        start += len(rows)
        most = -(-len(rows) // num_processes)
        parts = (tuple(rows[process::num_processes]) for process in range(num_processes))
        steps.append(tuple(part + (None,) * (most - len(part)) for part in parts))
    return Assignment(tuple(steps))


def values_of(rows: Sequence[int | None], values: Sequence[T], padding: T) -> list[T]:
    """The values of these rows, and `padding` for padding rows."""
    return [padding if row is None else values[row] for row in rows]
