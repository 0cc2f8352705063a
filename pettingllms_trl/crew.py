"""Who does the environments' work: threads beside the engine, or the caller before the engine is asked again."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from queue import SimpleQueue
from typing import Protocol


Job = Callable[[], None]
Done = tuple[int, BaseException | None]
"""A job's ticket, and what it raised."""


class Crew(Protocol):
    """Does jobs, each under a ticket that no other job has at the time."""

    def submit(self, ticket: int, job: Job) -> None:
        """Take a job."""
        ...

    def done(self, *, block: bool) -> Sequence[Done]:
        """The jobs that have come to their end since the last call; if `block`, at least one."""
        ...

    def close(self) -> None:
        """Begin no further job, and wait for those begun."""
        ...


class Threads:
    """So many jobs at a time, on threads."""

    def __init__(self, number: int) -> None:
        self._pool = ThreadPoolExecutor(number, "environments")
        self._done: SimpleQueue[Done] = SimpleQueue()

    def submit(self, ticket: int, job: Job) -> None:
        """See `Crew`."""

        def put(future: Future[None]) -> None:
            if not future.cancelled():
                self._done.put((ticket, future.exception()))

        self._pool.submit(job).add_done_callback(put)

    def done(self, *, block: bool) -> Sequence[Done]:
        """See `Crew`."""
        done = [self._done.get()] if block else []
        while not self._done.empty():  # nobody else takes from it
            done.append(self._done.get())
        return done

    def close(self) -> None:
        """See `Crew`."""
        self._pool.shutdown(cancel_futures=True)


class Caller:
    """Each job at once, on the caller's thread."""

    def __init__(self) -> None:
        self._done: list[Done] = []

    def submit(self, ticket: int, job: Job) -> None:
        """See `Crew`."""
        try:
            job()
        except Exception as error:  # noqa: BLE001  # given to whoever asks what is done, as from a thread
            self._done.append((ticket, error))
        else:
            self._done.append((ticket, None))

    def done(self, *, block: bool) -> Sequence[Done]:
        """See `Crew`."""
        done, self._done = self._done, []
        return done

    def close(self) -> None:
        """See `Crew`."""
