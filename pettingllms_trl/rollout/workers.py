"""Worker pools that step environments: on threads beside the engine, or inline on the caller's thread."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from queue import Empty, SimpleQueue
from typing import ClassVar, Protocol

from pettingllms_trl.records import EnvironmentFailure
from pettingllms_trl.rollout.stepping import EnvHandle


POLL_SECONDS = 0.02  # between two checks of the clock, where calls have a time limit
ABANDONED = "abandoned environment"  # name of a thread that nothing waits for any more
MOST_ABANDONED = 32  # threads of this process; each keeps its environment and its stack in memory

Job = Callable[[], None]
Done = tuple[int, BaseException | None]
"""A job's ticket, and what it raised."""


class TimedOut(EnvironmentFailure):
    """A call of the environment took too long."""


class WorkerPool(Protocol):
    """Runs jobs, each under a ticket that no other running job has."""

    @property
    def num_workers(self) -> int:
        """How many jobs run at the same time."""

    def now(self) -> float:
        """Seconds, by the clock that tells quick environments from slow ones."""

    def submit(self, ticket: int, job: Job, handle: EnvHandle) -> None:
        """Queue a job that calls the environment of `handle`."""

    def done(self, *, block: bool) -> Sequence[Done]:
        """The jobs that have ended, or were abandoned, since the last call. If `block`, wait for one."""

    def close(self) -> None:
        """Stop accepting jobs and wait for the running ones, except abandoned threads."""


@dataclass
class ThreadPool:
    """Runs up to `num_workers` jobs at a time on threads, which are started as jobs arrive.

    A thread is abandoned if a call of the environment, or `close`, takes longer than `time_limit` seconds.
    """

    num_workers: int
    time_limit: float | None = None
    now: ClassVar = staticmethod(time.monotonic)
    _jobs: SimpleQueue[tuple[int, Job] | None] = field(default_factory=SimpleQueue)
    _done: SimpleQueue[Done] = field(default_factory=SimpleQueue)
    _handles: dict[int, EnvHandle] = field(default_factory=dict)  # of jobs that are not done
    _workers: list[_Worker] = field(default_factory=list)

    def submit(self, ticket: int, job: Job, handle: EnvHandle) -> None:
        self._handles[ticket] = handle
        self._jobs.put((ticket, job))
        if len(self._workers) < self.num_workers:
            self._workers.append(_Worker(self._jobs, self._done))

    def done(self, *, block: bool) -> Sequence[Done]:
        """Raises `EnvironmentFailure` if more than `MOST_ABANDONED` have not come back."""
        limit, done = self.time_limit, list[Done]()
        while True:
            if block:
                with suppress(Empty):
                    done.append(self._done.get(timeout=None if limit is None else min(POLL_SECONDS, limit)))
            while not self._done.empty():  # only this thread takes from it
                done.append(self._done.get())
            for ticket, _ in done:
                del self._handles[ticket]
            if limit is not None:
                done.extend(self._abandon_late(limit))
            if done or not block:
                return done

    def _abandon_late(self, limit: float) -> Iterator[Done]:
        """Abandon jobs in which a call takes too long. Their threads cannot be ended: others replace them."""
        until = self.now() - limit
        started = [(ticket, handle, handle.since) for ticket, handle in self._handles.items()]
        late = [each for each in started if each[2] is not None and each[2] < until]
        if late:  # the job may only have waited for the interpreter's lock, or the whole process was stopped
            time.sleep(POLL_SECONDS)
        for ticket, handle, since in late:
            worker = next((k for k, each in enumerate(self._workers) if each.abandon(ticket, handle, since)), None)
            if worker is None:
                continue
            self._workers[worker] = _Worker(self._jobs, self._done)
            handle.interrupt()
            del self._handles[ticket]
            where = f"at the instance {dict(handle.row)}, {handle.agent or 'before the first agent'}"
            failure = TimedOut(f"TimeoutError {where}: it took longer than {limit:g} s")
            if num_abandoned_threads() > MOST_ABANDONED:
                raise EnvironmentFailure(
                    f"{num_abandoned_threads()} environments have not come back, expected at most {MOST_ABANDONED}: "
                    "they stay on threads, which cannot be ended. Fix the environment, have it wait in a process that "
                    f"it can kill, or raise env_timeout. The last: {failure}"
                )
            yield ticket, failure

    def close(self) -> None:
        with suppress(Empty):
            while True:
                self._jobs.get_nowait()
        for _ in self._workers:
            self._jobs.put(None)
        until = None if self.time_limit is None else self.now() + self.time_limit
        for worker in self._workers:
            worker.join(None if until is None else max(0.0, until - self.now()))
            if worker.is_alive():
                worker.name = ABANDONED


class _Worker(threading.Thread):
    """A thread that runs jobs until it receives `None` or is abandoned."""

    def __init__(self, jobs: SimpleQueue[tuple[int, Job] | None], done: SimpleQueue[Done]) -> None:
        super().__init__(name="environments", daemon=True)
        self._jobs, self._done = jobs, done
        self._ticket: int | None = None
        self._lock = threading.Lock()  # orders the end of a job and its being abandoned
        self.start()

    def run(self) -> None:
        while (given := self._jobs.get()) is not None:
            self._ticket, job = given
            error: BaseException | None = None
            try:
                job()
            except BaseException as raised:  # noqa: BLE001  # reported by `done`
                error = raised
            with self._lock:
                if self.name == ABANDONED:
                    return
                done = self._ticket, error
                self._ticket = None
            self._done.put(done)
            del given, job, error, done  # a waiting thread must not keep an environment alive

    def abandon(self, ticket: int, handle: EnvHandle, since: float | None) -> bool:
        """Whether it is still in the call of this job that began at `since`; if so, it will not take another job."""
        with self._lock:
            if self._ticket != ticket or handle.since != since:
                return False
            self.name, handle.is_abandoned = ABANDONED, True
        return True


def num_abandoned_threads() -> int:
    """Threads of this process that were abandoned and have not come back."""
    return sum(thread.name == ABANDONED for thread in threading.enumerate())


@dataclass
class InlinePool:
    """Runs each job immediately, on the caller's thread."""

    num_workers: ClassVar = 1
    now: ClassVar = staticmethod(time.monotonic)
    _done: list[Done] = field(default_factory=list)

    def submit(self, ticket: int, job: Job, handle: EnvHandle) -> None:
        error: Exception | None = None
        try:
            job()
        except Exception as raised:  # noqa: BLE001  # reported by `done`, as from a thread
            error = raised
        self._done.append((ticket, error))

    def done(self, *, block: bool) -> Sequence[Done]:
        done, self._done = self._done, []
        return done

    def close(self) -> None:
        pass
