"""Time limits for calls of environments, and how many failures a run tolerates before it stops."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from old_rollout.workers import POLL_SECONDS, Done, WorkerPool, num_abandoned_threads


RETRIES = 2
MOST_DROPPED = 0.2


class EnvironmentFailure(Exception):
    """The environment raised or timed out. This is no fault of the model: every string should be a legal action."""


def check_dropped(dropped: Mapping[int, str], num_rows: int, cause: BaseException | None = None) -> None:
    """Raise if too many instances were dropped: then the environment itself must be at fault.

    Raises:
        EnvironmentFailure: Caused by `cause`.
    """
    if dropped and (num_rows == 1 or len(dropped) > max(1, MOST_DROPPED * num_rows)):
        raise EnvironmentFailure(
            f"{len(dropped)} of {num_rows} instances were dropped because their environment failed {1 + RETRIES} "
            "times; "
            f"expected at most {MOST_DROPPED:.0%}. The last: {list(dropped.values())[-1]}. Fix the environment, or "
            "what it needs, and resume. If it raises on some replies (an illegal move), set crash_reward to a number "
            "below any return: such a reply is then given that reward, and ends the episode."
        ) from cause


MOST_ABANDONED = 32
"""Threads of this process whose environments never came back; each keeps its environment and its stack in memory."""


class CallTimer:
    """Times the calls that one job makes of its environment, one after the other.

    Args:
        row: The instance.
        agent: The acting agent, where it is known already.
        now: The worker pool's clock, in seconds.
    """

    def __init__(self, row: Mapping[str, Any], agent: str, now: Callable[[], float]) -> None:
        self.row, self.agent = row, agent
        self.since: float | None = None  # when the running call started
        self.abandoned = False
        self._now = now

    @contextmanager
    def timed(self) -> Iterator[None]:
        """Time calls of the environment; whatever it raises inside becomes an `EnvironmentFailure`."""
        self.start()
        try:
            yield
        except Exception as error:  # third-party code may raise anything; it is retried, then counted
            raise EnvironmentFailure(f"{type(error).__name__} at the instance {dict(self.row)}: {error}") from error
        finally:
            self.stop()
        if self.abandoned:
            raise EnvironmentFailure("came back after it was abandoned")

    def start(self) -> None:
        """A call begins."""
        self.since = self._now()

    def stop(self) -> None:
        """The call has ended, and none is running."""
        self.since = None

    def restart(self) -> float:
        """Restart the timer for the next call; returns the seconds of the last one."""
        assert self.since is not None, "restart() without start()"
        before, self.since = self.since, self._now()
        return self.since - before


class TimedPool:
    """A worker pool that abandons jobs in which a call of the environment takes too long.

    Args:
        workers: Runs the jobs.
        seconds: Time limit of a call. `None`: no limit.
    """

    def __init__(self, workers: WorkerPool, seconds: float | None) -> None:
        self.num_timed_out = 0
        self._workers, self._seconds = workers, seconds
        self._calls: dict[int, CallTimer] = {}

    def submit(self, ticket: int, job: Callable[[CallTimer], None], *, row: Mapping[str, Any], agent: str) -> None:
        """Queue a job under a ticket that no other running job has; `row` and `agent` appear in error messages."""
        calls = self._calls[ticket] = CallTimer(row, agent, self._workers.now)
        self._workers.submit(ticket, lambda: job(calls))

    def done(self, *, block: bool) -> Sequence[Done]:
        """Jobs that have ended or were abandoned; if `block`, at least one.

        Raises:
            EnvironmentFailure: More than `MOST_ABANDONED` have not come back.
        """
        while True:
            done = list(self._workers.done(block=block))
            for ticket, _ in done:
                del self._calls[ticket]
            done.extend(self._abandon_late())
            if done or not block:
                return done

    def _abandon_late(self) -> Iterator[Done]:
        """Abandon the jobs whose environment exceeds the time limit."""
        if self._seconds is None:
            return
        until = self._workers.now() - self._seconds
        started = {ticket: calls.since for ticket, calls in self._calls.items()}
        late = {ticket: since for ticket, since in started.items() if since is not None and since < until}
        if late:  # the job may only have waited for the interpreter's lock, or the whole process was stopped
            time.sleep(POLL_SECONDS)
        for ticket, since in late.items():
            calls = self._calls[ticket]
            if calls.since != since or not self._workers.abandon(ticket):
                continue
            calls.abandoned = True
            del self._calls[ticket]
            self.num_timed_out += 1
            where = f"at the instance {dict(calls.row)}, {calls.agent or 'before the first agent'}"
            failure = EnvironmentFailure(f"TimeoutError {where}: it took longer than {self._seconds:g} s")
            if num_abandoned_threads() > MOST_ABANDONED:
                raise EnvironmentFailure(
                    f"{num_abandoned_threads()} environments have not come back, expected at most {MOST_ABANDONED}: "
                    "they stay on threads, which cannot be ended. Fix the environment, have it wait in a process that "
                    f"it can kill, or raise env_timeout. The last: {failure}"
                )
            yield ticket, failure
