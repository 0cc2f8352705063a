"""Limits of environments: how long a call may take, and how often one may fail before the run ends."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from pettingllms_trl.rollout.workers import GLANCE, Done, WorkerPool, num_left_alone


RETRIES = 2
MOST_DROPPED = 0.2


class EnvironmentFailure(Exception):
    """The environment raised, which is not charged to a model: every string should be a legal action."""


def check_dropped(dropped: Mapping[int, str], num_rows: int, cause: BaseException | None = None) -> None:
    """Refuse to go on where so many of the instances had to be dropped that the environment itself is at fault.

    Raises:
        EnvironmentFailure: Caused by `cause`.
    """
    if dropped and (num_rows == 1 or len(dropped) > max(1, MOST_DROPPED * num_rows)):
        raise EnvironmentFailure(
            f"{len(dropped)} of {num_rows} instances were dropped, for their environment failed {1 + RETRIES} times; "
            f"expected at most {MOST_DROPPED:.0%}. The last: {list(dropped.values())[-1]}. Fix the environment, or "
            "what it needs, and resume. If it raises on some replies (an illegal move), set crash_reward to a number "
            "below any return: such a reply is then given that reward, and ends the episode."
        ) from cause


MOST_LEFT_ALONE = 32
"""Threads whose environments never came back, in this process; each keeps its environment and its stack in memory."""


class CallTimer:
    """The calls that one job makes of its environment, one after the other.

    Args:
        row: The instance.
        agent: Who acts, where it is known already.
        now: The crew's clock, in seconds.
    """

    def __init__(self, row: Mapping[str, Any], agent: str, now: Callable[[], float]) -> None:
        self.row, self.agent = row, agent
        self.since: float | None = None  # while the environment is at work
        self.left_alone = False  # on a thread that nobody waits for
        self._now = now

    @contextmanager
    def at_work(self) -> Iterator[None]:
        """What is raised inside is the environment's failure."""
        self.begin()
        try:
            yield
        except Exception as error:  # third-party code may raise anything; it is retried, then counted
            raise EnvironmentFailure(f"{type(error).__name__} at the instance {dict(self.row)}: {error}") from error
        finally:
            self.end()
        if self.left_alone:
            raise EnvironmentFailure("came back when nobody waited for it any more")

    def begin(self) -> None:
        """The environment is at work from now on."""
        self.since = self._now()

    def end(self) -> None:
        """It is not at work any more."""
        self.since = None

    def next(self) -> float:
        """One call is over and another begins, which has the whole time again. Returns the seconds of the first."""
        assert self.since is not None, "next() of a call that was not begun"
        before, self.since = self.since, self._now()
        return self.since - before


class TimedPool:
    """A crew whose jobs are left alone when one of their calls takes too long.

    Args:
        crew: Does the jobs.
        seconds: That a call may take. `None`: as long as it likes.
    """

    def __init__(self, crew: WorkerPool, seconds: float | None) -> None:
        self.num_timed_out = 0
        self._crew, self._seconds = crew, seconds
        self._calls: dict[int, CallTimer] = {}

    def submit(self, ticket: int, job: Callable[[CallTimer], None], *, row: Mapping[str, Any], agent: str) -> None:
        """Have a job done, under a ticket that no other has at the time; what it calls has to do with an instance."""
        calls = self._calls[ticket] = CallTimer(row, agent, self._crew.now)
        self._crew.submit(ticket, lambda: job(calls))

    def done(self, *, block: bool) -> Sequence[Done]:
        """Jobs that are done, or left alone; if `block`, at least one.

        Raises:
            EnvironmentFailure: More than `MOST_LEFT_ALONE` have not come back.
        """
        while True:
            done = list(self._crew.done(block=block))
            for ticket, _ in done:
                del self._calls[ticket]
            done.extend(self._late())
            if done or not block:
                return done

    def _late(self) -> Iterator[Done]:
        """Leave those alone whose environment takes longer than it may."""
        if self._seconds is None:
            return
        until = self._crew.now() - self._seconds
        began = {ticket: calls.since for ticket, calls in self._calls.items()}
        late = {ticket: since for ticket, since in began.items() if since is not None and since < until}
        if late:  # perhaps it was kept waiting by whoever held the interpreter's lock, or all of us were
            time.sleep(GLANCE)
        for ticket, since in late.items():
            calls = self._calls[ticket]
            if calls.since != since or not self._crew.leave_alone(ticket):
                continue
            calls.left_alone = True
            del self._calls[ticket]
            self.num_timed_out += 1
            where = f"at the instance {dict(calls.row)}, {calls.agent or 'before the first agent'}"
            failure = EnvironmentFailure(f"TimeoutError {where}: it took longer than {self._seconds:g} s")
            if num_left_alone() > MOST_LEFT_ALONE:
                raise EnvironmentFailure(
                    f"{num_left_alone()} environments have not come back, expected at most {MOST_LEFT_ALONE}: they "
                    "stay on threads, which cannot be ended. Mend the environment, have it wait in a process that it "
                    f"can kill, or raise env_timeout. The last: {failure}"
                )
            yield ticket, failure
