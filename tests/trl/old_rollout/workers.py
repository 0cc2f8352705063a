"""Worker pools that step environments: on threads beside the engine, or inline on the caller's thread."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from queue import Empty, SimpleQueue
from typing import Protocol


POLL_SECONDS = 0.02  # between two checks of the clock, where calls have a time limit
ABANDONED = "abandoned environment"
"""Name of a thread that nothing waits for any more."""

Job = Callable[[], None]
Done = tuple[int, BaseException | None]
"""A job's ticket, and what it raised."""


class WorkerPool(Protocol):
    """Runs jobs, each under a ticket that no other running job has."""

    @property
    def num_workers(self) -> int:
        """How many jobs run at the same time. With one, the candidates of a decision are stepped sequentially."""
        ...

    def now(self) -> float:
        """Seconds, by the clock that tells quick environments from slow ones."""
        ...

    def submit(self, ticket: int, job: Job) -> None:
        """Queue a job."""
        ...

    def done(self, *, block: bool) -> Sequence[Done]:
        """The jobs that have ended since the last call. If `block`, wait for one; a timeout may return none."""
        ...

    def abandon(self, ticket: int) -> bool:
        """Stop waiting for a job, whose thread cannot be ended; a new thread takes its place.

        Returns:
            Whether it was still running. If not, `done` reports it, or already has.
        """
        ...

    def close(self) -> None:
        """Stop accepting jobs and wait for the running ones, except abandoned threads."""
        ...


class ThreadPool:
    """Runs up to `number` jobs at a time on threads.

    Args:
        number: Of threads; they are started as jobs arrive.
        patience: Seconds. `done(block=True)` returns now and then without a job, so that the caller can check the
            clock, and `close` waits at most this long. `None`: both wait until a job is done.
    """

    now = staticmethod(time.monotonic)

    def __init__(self, number: int, patience: float | None = None) -> None:
        self.num_workers = self._number = number
        self._patience = patience
        self._jobs: SimpleQueue[tuple[int, Job] | None] = SimpleQueue()
        self._done: SimpleQueue[Done] = SimpleQueue()
        self._workers: list[_Worker] = []

    def submit(self, ticket: int, job: Job) -> None:
        """See `WorkerPool`."""
        self._jobs.put((ticket, job))
        if len(self._workers) < self._number:
            self._workers.append(_Worker(self._jobs, self._done))

    def done(self, *, block: bool) -> Sequence[Done]:
        """See `WorkerPool`."""
        done: list[Done] = []
        if block:
            timeout = None if self._patience is None else min(POLL_SECONDS, self._patience)
            with suppress(Empty):
                done.append(self._done.get(timeout=timeout))
        while not self._done.empty():  # only this thread takes from it
            done.append(self._done.get())
        return done

    def abandon(self, ticket: int) -> bool:
        """See `WorkerPool`."""
        for i, worker in enumerate(self._workers):
            if worker.abandon(ticket):
                self._workers[i] = _Worker(self._jobs, self._done)
                return True
        return False

    def close(self) -> None:
        """See `WorkerPool`."""
        while not self._jobs.empty():  # a worker may be quicker
            with suppress(Empty):
                self._jobs.get_nowait()
        for _ in self._workers:
            self._jobs.put(None)
        until = None if self._patience is None else time.monotonic() + self._patience
        for worker in self._workers:
            worker.join(None if until is None else max(0.0, until - time.monotonic()))


class _Worker:
    """A thread that runs jobs until it receives `None` or is abandoned."""

    def __init__(self, jobs: SimpleQueue[tuple[int, Job] | None], done: SimpleQueue[Done]) -> None:
        self._jobs, self._done = jobs, done
        self._ticket: int | None = None
        self._abandoned = False
        self._lock = threading.Lock()  # orders the end of a job and its being abandoned
        self._thread = threading.Thread(target=self._work, name="environments", daemon=True)
        self._thread.start()

    def _work(self) -> None:
        while (given := self._jobs.get()) is not None:
            self._ticket, job = given
            error: BaseException | None = None
            try:
                job()
            except BaseException as raised:  # noqa: BLE001  # reported by `done`
                error = raised
            with self._lock:
                if self._abandoned:
                    return
                done = self._ticket, error
                self._ticket = None
            self._done.put(done)
            del given, job, error, done  # a waiting thread must not keep an environment alive

    def abandon(self, ticket: int) -> bool:
        """Whether it is still running this job; if so, it will not take another."""
        with self._lock:
            if self._ticket != ticket:
                return False
            self._abandoned = True
        self._thread.name = ABANDONED
        return True

    def join(self, timeout: float | None) -> None:
        """Wait until its thread has ended, and abandon it after `timeout`."""
        self._thread.join(timeout)
        if self._thread.is_alive():
            self._abandoned = True
            self._thread.name = ABANDONED


def num_abandoned_threads() -> int:
    """Threads of this process that were abandoned and have not come back."""
    return sum(thread.name == ABANDONED for thread in threading.enumerate())


class InlinePool:
    """Runs each job immediately, on the caller's thread."""

    num_workers = 1
    now = staticmethod(time.monotonic)

    def __init__(self) -> None:
        self._done: list[Done] = []

    def submit(self, ticket: int, job: Job) -> None:
        """See `WorkerPool`."""
        try:
            job()
        except Exception as error:  # noqa: BLE001  # reported by `done`, as from a thread
            self._done.append((ticket, error))
        else:
            self._done.append((ticket, None))

    def done(self, *, block: bool) -> Sequence[Done]:
        """See `WorkerPool`."""
        done, self._done = self._done, []
        return done

    def abandon(self, ticket: int) -> bool:
        """See `WorkerPool`."""
        return False

    def close(self) -> None:
        """See `WorkerPool`."""
