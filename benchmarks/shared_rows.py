"""Rollouts of several simulated GPUs, each on a clock of its own, whose processes share the rows as the trainer's do.

Where rows are taken from the common counter, who takes which depends on when each has room: requests to the counter
are answered in the order of the simulated clocks, whatever the order in which the threads that simulate the GPUs run.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial

from simulation import Game, SimulatedClock, SimulatedEngine, SimulatedThreads, Speed, Workload

from pettingllms_trl.processes.row_sharing import RowSharing
from pettingllms_trl.rollout import RolloutOptions, play


ENV_THREADS = 64
"""On which a GPU's environments are stepped."""


def rollout_seconds(
    speed: Speed,
    workload: Workload,
    num_gpus: int,
    *,
    max_envs: int | None = None,
    is_shared: bool = True,
    env_threads: int = ENV_THREADS,
) -> list[float]:
    """Seconds of each GPU's rollout, without barriers.

    Args:
        speed: Of the engine on each GPU.
        workload: Its instances are shared out.
        num_gpus: G, each with a process.
        max_envs: Instances in play at once on a GPU. `None`: all of its share.
        is_shared: Take rows from a counter where `max_envs` leaves some waiting; else shares are fixed.
        env_threads: On which a GPU's environments are stepped.
    """
    counter = _Counter(num_gpus)

    def of_gpu(gpu: int) -> float:
        clock = SimulatedClock()
        sharing = RowSharing(num_gpus, gpu, _Store(counter, gpu, clock) if is_shared else None)
        engine = SimulatedEngine(clock, speed, workload, is_batched=False)
        with counter.running(), sharing.rows(workload.instances, max_envs) as own:
            play(
                [{"seed": instance} for instance in range(workload.instances)],
                engine,
                RolloutOptions(sampling="tree", num_candidates=workload.candidates, max_envs=max_envs),
                only=own,
                make_env=partial(Game, workload, clock),
                seed=str(workload.seed),
                workers=SimulatedThreads(clock, env_threads),
            )
        return clock.now()

    with ThreadPoolExecutor(num_gpus) as executor:
        return list(executor.map(of_gpu, range(num_gpus)))


class _Counter:
    """Counts for the GPU whose clock is furthest behind, when every other one asks, too, or has left."""

    def __init__(self, num_gpus: int) -> None:
        self._num_running, self._sum = num_gpus, 0
        self._asking: dict[int, float] = {}
        self._changed = threading.Condition()
        self._turn = threading.Lock()  # one thread computes at a time, or they would wait for the interpreter's lock

    @contextmanager
    def running(self) -> Iterator[None]:
        """A GPU's rollout is simulated inside."""
        with self._turn:
            try:
                yield
            finally:
                with self._changed:
                    self._num_running -= 1
                    self._changed.notify_all()

    def add(self, gpu: int, now: float, amount: int) -> int:
        """Add, and return the sum, when it is this GPU's turn."""
        self._turn.release()
        with self._changed:
            self._asking[gpu] = now
            self._num_running -= 1
            self._changed.notify_all()
            self._changed.wait_for(lambda: not self._num_running and gpu == min(self._asking, key=self._order))
            del self._asking[gpu]
            self._num_running += 1
            self._sum += amount
            total = self._sum
        self._turn.acquire()
        return total

    def _order(self, gpu: int) -> tuple[float, int]:
        return self._asking[gpu], gpu


class _Store:
    """One GPU's view of the counter; see `pettingllms_trl.processes.row_sharing.Store`."""

    def __init__(self, counter: _Counter, gpu: int, clock: SimulatedClock) -> None:
        self._counter, self._gpu, self._clock = counter, gpu, clock

    def add(self, key: str, amount: int, /) -> int:
        return self._counter.add(self._gpu, self._clock.now(), amount)

    def delete_key(self, key: str, /) -> bool:
        return False
