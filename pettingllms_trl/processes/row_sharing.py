"""`RowSharing`: which rows of a rollout each process plays. Nothing in here waits for another process.

Where `max_envs` leaves rows waiting, every process begins with as many rows as it may have in play at once, and takes
further ones, one at a time, from a counter that all processes share. So a process whose episodes are short, or whose
machine is fast, plays more of them:

    process 0   plays rows 0 1, then 4, 6, 7      # of 8 rows, two at a time
    process 1   plays rows 2 3, then 5

Of processes that share their engines (`vllm_tensor_parallel_size`) one plays, and counts as one process here.

Episodes do not depend on which process plays them where the engine seeds every request by its ticket, as vLLM does.
`generate` of transformers draws from one generator in each process, so there the shares are fixed, and a run can be
repeated.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, nullcontext
from typing import Protocol

from accelerate import PartialState
from accelerate.utils import broadcast_object_list
from torch import distributed
from torch.distributed.distributed_c10d import PrefixStore

from pettingllms_trl.processes.tensor_parallel import TensorParallelGroup


def share_of(num_rows: int, num_processes: int, process: int) -> range:
    """The rows of a rollout that a process plays: contiguous, in the order of the processes, as even as possible.

    >>> [list(share_of(5, 3, process)) for process in range(3)]
    [[0], [1, 2], [3, 4]]
    """
    return range(num_rows * process // num_processes, num_rows * (process + 1) // num_processes)


class Store(Protocol):
    """The methods of `torch.distributed.Store` that are used."""

    def add(self, key: str, amount: int, /) -> int:
        """Add to a counter, which begins at 0, and return the sum, as one operation."""

    def delete_key(self, key: str, /) -> bool:
        """Delete a counter."""


class RowSharing:
    """Decides which rows of a rollout this process plays.

    Args:
        store: Holds the counters of all processes. `None`: each process plays a fixed share.
        group: Those that this process shares its engines with. `None`: it has whole ones.
    """

    def __init__(
        self, num_processes: int, process: int, store: Store | None = None, group: TensorParallelGroup | None = None
    ) -> None:
        size = 1 if group is None else group.size
        self._num_processes, self._process = num_processes // size, process // size
        self._store, self._group = store, group
        self._num_rollouts = 0

    @contextmanager
    def rows(self, num_rows: int, at_once: int | None) -> Iterator[Iterable[int]]:
        """A context for the indices of the rows that this process plays. Take the next when there is room for it.

        All processes call this for the same rollouts in one order. If one raises inside, the others take no more rows.

        Args:
            at_once: Most rows in play at once in a process. `None`: all of its share.
        """
        self._num_rollouts += 1
        with nullcontext() if self._group is None else self._group.rollout():
            if self._group is not None and not self._group.is_leader:
                yield ()
            elif self._store is None or at_once is None or self._num_processes * at_once >= num_rows:
                yield share_of(num_rows, self._num_processes, self._process)
            else:
                if self._process == 0:  # a process in this rollout has left the one before
                    self._store.delete_key(str(self._num_rollouts - 1))
                with self._counted(self._store, str(self._num_rollouts), num_rows, at_once) as rows:
                    yield rows

    @contextmanager
    def _counted(self, store: Store, counter: str, num_rows: int, at_once: int) -> Iterator[Iterable[int]]:
        num_first = self._num_processes * at_once

        def taken() -> Iterator[int]:
            yield from share_of(num_first, self._num_processes, self._process)
            while (row := num_first - 1 + store.add(counter, 1)) < num_rows:
                yield row

        try:
            yield taken()
        except BaseException:
            store.add(counter, num_rows)  # no rows are left
            raise


def row_sharing(group: TensorParallelGroup | None = None, *, is_seeded: bool) -> RowSharing:
    """The sharing of this run's processes, all of which call this; `group` are those that share engines with this one.

    `is_seeded`: whether what is sampled depends on a request's ticket, and not on the process that asks.
    """
    state = PartialState()
    if not is_seeded or state.num_processes == 1:
        return RowSharing(state.num_processes, state.process_index, group=group)
    name = broadcast_object_list([f"pettingllms/rows/{uuid.uuid4()}"])[0]  # of this trainer among several
    world = distributed.group.WORLD
    assert world is not None, "several processes without a process group"
    # The processes have met over this store, and can reach it as long as they run.
    store = PrefixStore(name, world.get_group_store())
    return RowSharing(state.num_processes, state.process_index, store, group)
