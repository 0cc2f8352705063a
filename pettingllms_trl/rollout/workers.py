"""Who does the environments' work: threads beside the engine, or the caller before the engine is asked again."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from queue import Empty, SimpleQueue
from typing import Protocol


GLANCE = 0.02  # seconds between two looks at the clock, where jobs may take too long
LEFT_ALONE = "environment left alone"

Job = Callable[[], None]
Done = tuple[int, BaseException | None]
"""A job's ticket, and what it raised."""


class WorkerPool(Protocol):
    """Does jobs, each under a ticket that no other job has at the time."""

    @property
    def at_once(self) -> int:
        """How many jobs it does at a time. With one, the candidates of a decision are played one after the other."""
        ...

    def now(self) -> float:
        """Seconds, by the clock that tells quick environments from slow ones."""
        ...

    def submit(self, ticket: int, job: Job) -> None:
        """Take a job."""
        ...

    def done(self, *, block: bool) -> Sequence[Done]:
        """The jobs that have come to their end since the last call; if `block`, it waits for one, perhaps in vain."""
        ...

    def leave_alone(self, ticket: int) -> bool:
        """Wait for a job no more, whose thread cannot be ended; another takes its place.

        Returns:
            Whether it was still at work. If not, `done` tells of it, or has told.
        """
        ...

    def close(self) -> None:
        """Begin no further job, and wait for those begun, but for those left alone."""
        ...


class Threads:
    """So many jobs at a time, on threads.

    Args:
        number: Of threads; they begin as jobs come.
        patience: Seconds: `done(block=True)` comes back now and then without a job, for the caller to look at the
            clock, and `close` waits no longer than this. `None`: both wait until a job is done.
    """

    now = staticmethod(time.monotonic)

    def __init__(self, number: int, patience: float | None = None) -> None:
        self.at_once = self._number = number
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
            with suppress(Empty):
                done.append(self._done.get(timeout=None if self._patience is None else min(GLANCE, self._patience)))
        while not self._done.empty():  # nobody else takes from it
            done.append(self._done.get())
        return done

    def leave_alone(self, ticket: int) -> bool:
        """See `WorkerPool`."""
        for i, worker in enumerate(self._workers):
            if worker.leave_alone(ticket):
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
    """A thread that does jobs until it is told `None`, or left alone with one."""

    def __init__(self, jobs: SimpleQueue[tuple[int, Job] | None], done: SimpleQueue[Done]) -> None:
        self._jobs, self._done = jobs, done
        self._ticket: int | None = None
        self._left_alone = False
        self._lock = threading.Lock()  # between the end of a job and being left alone with it
        self._thread = threading.Thread(target=self._work, name="environments", daemon=True)
        self._thread.start()

    def _work(self) -> None:
        while (given := self._jobs.get()) is not None:
            self._ticket, job = given
            error: BaseException | None = None
            try:
                job()
            except BaseException as raised:  # noqa: BLE001  # given to whoever asks what is done
                error = raised
            with self._lock:
                if self._left_alone:
                    return
                done = self._ticket, error
                self._ticket = None
            self._done.put(done)
            del given, job, error, done  # while it waits it shall keep nothing alive

    def leave_alone(self, ticket: int) -> bool:
        """Whether it is still at this job; it will then do no other."""
        with self._lock:
            if self._ticket != ticket:
                return False
            self._left_alone = True
        self._thread.name = LEFT_ALONE
        return True

    def join(self, timeout: float | None) -> None:
        """Wait until its thread has ended; where that takes longer, leave it alone."""
        self._thread.join(timeout)
        if self._thread.is_alive():
            self._left_alone = True
            self._thread.name = LEFT_ALONE


def num_left_alone() -> int:
    """Threads of this process that were left alone and have not come back."""
    return sum(thread.name == LEFT_ALONE for thread in threading.enumerate())


class Caller:
    """Each job at once, on the caller's thread."""

    at_once = 1
    now = staticmethod(time.monotonic)

    def __init__(self) -> None:
        self._done: list[Done] = []

    def submit(self, ticket: int, job: Job) -> None:
        """See `WorkerPool`."""
        try:
            job()
        except Exception as error:  # noqa: BLE001  # given to whoever asks what is done, as from a thread
            self._done.append((ticket, error))
        else:
            self._done.append((ticket, None))

    def done(self, *, block: bool) -> Sequence[Done]:
        """See `WorkerPool`."""
        done, self._done = self._done, []
        return done

    def leave_alone(self, ticket: int) -> bool:
        """See `WorkerPool`."""
        return False

    def close(self) -> None:
        """See `WorkerPool`."""
