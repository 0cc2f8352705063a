"""The candidates of one decision, each played from the same state: in turn in one environment, or several at once.

Where an environment is quick its candidates are played in turn: moving them to threads would take longer. Where one
takes `SLOW` seconds, because it waits for a sandbox, a server, a search, the rest are played at once, each by a job of
its own in an environment of its own. A job begins nothing that waits for another job, so that threads are never all
waiting; who plays the last candidate goes on with the decision.

    in turn     job 1: [0][1][2][3] go on
    at once     job 1: [0]          job 2: [1  ]     job 3: [2      ] go on     job 4: [3]
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial

from pettingllms_trl.records import Completion
from pettingllms_trl.rollout.branching import Branch, Start, play_branches
from pettingllms_trl.rollout.crashes import Crashes, play_carefully
from pettingllms_trl.rollout.env_pool import Stock
from pettingllms_trl.rollout.failures import EnvironmentFailure
from pettingllms_trl.rollout.timeouts import Calls
from pettingllms_trl.rollout.venue import Venue


SLOW = 0.01
"""Seconds of a step from which it pays to play candidates at once: a hundred times what a job on a thread costs."""


class Candidates:
    """See the head of this file. Jobs on several threads may play at once.

    Args:
        venue: The run's own, in the state `start`. Used for one candidate at a time, and for others while it is free.
        start: Where all of them begin.
        agent: Who has sampled them.
        completions: What was sampled.
        crashes: What is done about a reply that crashes the environment; `None`: it counts as a failure of it.
    """

    def __init__(
        self, venue: Venue, start: Start, agent: str, completions: Sequence[Completion], crashes: Crashes | None
    ) -> None:
        self.is_free = True  # the run's own venue
        self._venue, self._start, self._agent = venue, start, agent
        self._completions, self._crashes = completions, crashes
        self._branches: dict[int, Branch] = {}
        self._crashed: dict[int, str] = {}
        self._slowest = 0.0  # seconds of a step
        self._has_failed = False
        self._lock = threading.Lock()  # never held while an environment is at work

    @property
    def branches(self) -> list[Branch]:
        """What each has led to, once all are played."""
        return [self._branches[k] for k in range(len(self._completions))]

    @property
    def crashed(self) -> list[str]:
        """What was raised by replies that are to blame for it, in the order of candidates."""
        return [self._crashed[k] for k in sorted(self._crashed)]

    @property
    def was_slow(self) -> bool:
        """Whether one of them was."""
        return self._slowest >= SLOW

    @property
    def unplayed(self) -> list[int]:
        """Those that nobody has played."""
        return [k for k in range(len(self._completions)) if k not in self._branches]

    def play_in_turn(self, calls: Calls, *, while_quick: bool) -> bool:
        """Play them in the run's own venue.

        Args:
            calls: Of the job.
            while_quick: Leave the rest to others after one that was slow.

        Returns:
            Whether all are played.
        """
        self.is_free = False
        limit = SLOW if while_quick else float("inf")
        branches, slowest = self._branches, 0.0
        with self._failing(self._venue, calls), calls.at_work():
            for k, branch in enumerate(self._play(self._venue, range(len(self._completions)), calls)):
                branches[k] = branch
                seconds = calls.next()  # the next candidate has as long as this one had
                if seconds > slowest:
                    slowest = seconds
                    if seconds >= limit:
                        break
        self._slowest = slowest
        self.is_free = len(branches) < len(self._completions)
        return not self.is_free

    def play(self, k: int, calls: Calls, stock: Stock) -> bool:
        """Play one of them beside others, in the run's own venue if that is free, else in an environment of the stock.

        Returns:
            Whether it was the last and none has failed, so that the caller goes on with the decision.
        """
        with self._lock:
            if self._has_failed:
                return False
            own, self.is_free = self.is_free, False
        setup = self._venue.setup
        venue = self._venue if own else Venue(stock.take(setup.environment), setup)
        with self._failing(venue, calls), calls.at_work():
            if not own:
                venue.reset()
                calls.next()
            assert self._start.saved is not None, "candidates of a copied environment, played at once"
            self._start.saved.restore(venue.env)
            calls.next()
            (branch,) = self._play(venue, [k], calls)
            seconds = calls.next()
        if not own:
            stock.give_back(setup.environment, venue.env)
        with self._lock:
            self._branches[k] = branch
            self._slowest = max(self._slowest, seconds)
            is_last = len(self._branches) == len(self._completions) and not self._has_failed
            self.is_free = (own or self.is_free) and not is_last
            return is_last

    def fail(self) -> None:
        """One has failed, and with it the decision: the others are not begun any more."""
        with self._lock:
            self._has_failed = True

    @contextmanager
    def _failing(self, venue: Venue, calls: Calls) -> Iterator[None]:
        """What fails inside is closed."""
        try:
            yield
        except EnvironmentFailure:
            self.fail()
            venue.close(calls)
            raise

    def _play(self, venue: Venue, ks: Sequence[int], calls: Calls) -> Iterator[Branch]:
        completions = [self._completions[k] for k in ks]
        crashes = self._crashes
        if crashes is None:
            return play_branches(venue.env, self._agent, completions, self._start)

        def note(i: int, crash: Exception) -> None:
            said = completions[i].text[:200]
            where = f"at the instance {dict(calls.row)} after {said!r}"
            self._crashed[ks[i]] = f"{type(crash).__name__} {where}: {crash}"

        renew = partial(venue.renew, crashes.make_env, calls)
        return play_carefully(venue.env, self._agent, completions, self._start, crashes, renew=renew, note=note)
