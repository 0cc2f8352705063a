"""Which of several processes plays and trains on what: pure functions of numbers, the same on each process.

Instances are played by whoever has their share, then every process knows all episodes, and each policy's sequences are
dealt out anew for training: an episode's decisions are as many as they are, but a pass through the model must take the
same number of rows on each process, or they would wait for each other for ever.

    deal([4, 0, 2, 3, 1], num_steps=2, num_processes=2).hands
    #       process 0   process 1
    # (((4, 2),    (0, None)),   micro-step 0: rows 4, 0, 2
    #  ((3,),      (1,)))        micro-step 1: rows 3, 1

`None` is a row that fills up: its mask is zero, and it counts nowhere.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeVar


T = TypeVar("T")


def share_of(num_rows: int, num_processes: int, process: int) -> range:
    """The rows of a rollout that a process plays: contiguous shares, in the order of the processes, as even as can be.

    >>> [list(share_of(5, 3, process)) for process in range(3)]
    [[0], [1, 2], [3, 4]]
    """
    return range(num_rows * process // num_processes, num_rows * (process + 1) // num_processes)


@dataclass(frozen=True, slots=True)
class Assignment:
    """Who trains on which of a policy's rows, and in which micro-step.

    Args:
        hands: For each micro-step and process the indices of its rows, `None` for one that fills up. In a micro-step
            all processes have equally many.
        passes: For each micro-step how many of its rows go through the model together, pass after pass, the same for
            each process. The rows after those of the last pass go through none. `None`: that is not settled.
    """

    hands: tuple[tuple[tuple[int | None, ...], ...], ...]
    passes: tuple[tuple[int, ...], ...] | None = None

    @property
    def num_here(self) -> tuple[int, ...]:
        """Rows of each process by micro-step, those included that fill up."""
        return tuple(len(step[0]) for step in self.hands)

    @property
    def num_rows(self) -> tuple[int, ...]:
        """Real rows of all processes by micro-step."""
        return tuple(sum(row is not None for hand in step for row in hand) for step in self.hands)

    @property
    def num_fillers(self) -> int:
        """Of all processes and micro-steps."""
        return sum(len(hand) for step in self.hands for hand in step) - sum(self.num_rows)

    def hand(self, process: int) -> tuple[int | None, ...]:
        """A process's rows, micro-step after micro-step."""
        return tuple(row for step in self.hands for row in step[process])

    def collect(self, dealt: Sequence[T]) -> list[T]:
        """What was dealt out, process after process, in the order of the rows again; without what filled up."""
        processes = range(len(self.hands[0]))
        rows = [row for process in processes for row in self.hand(process)]
        back = {row: value for row, value in zip(rows, dealt, strict=True) if row is not None}
        return [back[row] for row in range(len(back))]


def deal(order: Sequence[int], *, num_steps: int, num_processes: int) -> Assignment:
    """Deal a policy's rows to micro-steps, as one process would have them, and those of a micro-step to processes.

    Args:
        order: The indices of the rows, shuffled.
        num_steps: Micro-steps per generation. The first of them have a row more where it does not come out even.
        num_processes: A process has a row more than another at most; then the other's is filled up.
    """
    size, longer = divmod(len(order), num_steps)
    hands = []
    start = 0
    for step in range(num_steps):
        rows = order[start : start + size + (step < longer)]
        start += len(rows)
        most = -(-len(rows) // num_processes)
        dealt = (tuple(rows[process::num_processes]) for process in range(num_processes))
        hands.append(tuple(hand + (None,) * (most - len(hand)) for hand in dealt))
    return Assignment(tuple(hands))


def pick(hand: Sequence[int | None], values: Sequence[T], filler: T) -> list[T]:
    """The values of a hand's rows."""
    return [filler if row is None else values[row] for row in hand]
