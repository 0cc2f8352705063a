"""The candidates of one decision, each played from the same state: in turn in one environment, or several at once.

Where an environment is quick its candidates are played in turn: moving them to threads would take longer. Where one
takes `SLOW` seconds, because it waits for a sandbox, a server, a search, the rest are played at once, each by a job of
its own in an environment of its own. A job begins nothing that waits for another job, so that threads are never all
waiting; who plays the last candidate goes on with the decision.

    in turn     job 1: [0][1][2][3] go on
    at once     job 1: [0]          job 2: [1  ]     job 3: [2      ] go on     job 4: [3]

`CrashPolicy` tells a reply that crashes its environment from an environment that fails by itself.

A failing environment is replaced and its instance played again, then dropped and never scored. Where a certain reply
always crashes it, that makes crashing free: such a reply is drawn again and never counts, so nothing teaches a policy
to leave it, and success is measured on what is left. So with a `reward` for it, a crash is looked into, in fresh
environments in the very same state:

| the reply, once more | the empty reply | whose doing                                             |
|----------------------|-----------------|---------------------------------------------------------|
| does not crash       |                 | the environment's (a lost connection, a full disk)      |
| crashes alike        | crashes         | the environment's (a server that is down)               |
| crashes alike        | does not        | the reply's: its branch ends there, with that reward    |
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial

from pettingzoo import AECEnv

from pettingllms_envs.copying import copy_env
from pettingllms_trl.records import Candidate, Completion
from pettingllms_trl.rollout.branching import Branch, StateSnapshot, play_branches
from pettingllms_trl.rollout.env_pool import EnvHandle, EnvPool
from pettingllms_trl.rollout.timeouts import CallTimer, EnvironmentFailure


@dataclass(frozen=True, slots=True)
class CrashPolicy:
    """What is done about a reply that crashes its environment.

    Args:
        make_env: Makes a fresh one, by the environment's name.
        reward: Of the agent that wrote it: a number below any return of the environment, or crashing pays.
    """

    make_env: Callable[[str], AECEnv]
    reward: float


def play_carefully(
    env: AECEnv,
    agent: str,
    completions: Sequence[Completion],
    start: StateSnapshot,
    crashes: CrashPolicy,
    *,
    renew: Callable[[], AECEnv],
    note: Callable[[int, Exception], None],
) -> Iterator[Branch]:
    """As `play_branches`, but a reply to blame for a crash ends its own branch alone.

    Args:
        env: Of a kind that makes no snapshots, it is stepped in copies only.
        agent: Who acts.
        completions: Its candidates.
        start: The state that the environment is in.
        crashes: What a crash is worth.
        renew: Puts a fresh environment, just reset, in the place of one that has failed.
        note: Told of each crash that a reply is to blame for, by the reply's index.

    Raises:
        Exception: The environment's, where no reply is to blame.
    """
    beginning = _Beginning(env, renew, start)
    for k, completion in enumerate(completions):
        try:
            branch = beginning.play(agent, completion)
        except Exception as crash:  # third-party code may raise anything
            beginning.renew()
            if not beginning.crashes_alike(agent, completion, crash):
                raise
            beginning.renew()
            beginning.play(agent, Completion(ids=(), text=""))  # raises if no reply is taken at all
            note(k, crash)
            branch = beginning.crashed(agent, completion, crashes.reward)
        yield branch


class _Beginning:
    """An environment in the state from which the candidates are played, again and again."""

    def __init__(self, env: AECEnv, renew: Callable[[], AECEnv], start: StateSnapshot) -> None:
        self._env, self._renew, self._start = env, renew, start

    def play(self, agent: str, completion: Completion) -> Branch:
        """What a reply leads to, from that state."""
        if self._start.saved is not None:
            env = self._env
            self._start.saved.restore(env)
        else:
            env = copy_env(self._env)
        (branch,) = play_branches(env, agent, [completion], self._start)
        return branch

    def renew(self) -> None:
        """After a crash: the next is played in an environment that has seen none."""
        if self._start.saved is not None:  # else it was a copy that crashed
            self._env = self._renew()

    def crashes_alike(self, agent: str, completion: Completion, crash: Exception) -> bool:
        """Whether the reply raises the same once more."""
        try:
            self.play(agent, completion)
        except Exception as again:  # noqa: BLE001  # compared with the first
            return type(again) is type(crash)
        return False

    def crashed(self, agent: str, completion: Completion, reward: float) -> Branch:
        """A branch that ends where it began."""
        env = self._env
        if self._start.saved is not None:
            self._start.saved.restore(env)
        return Branch(
            Candidate(completion=completion, reward=reward, parts={"crash": reward}),
            {**dict.fromkeys(env.possible_agents, 0.0), agent: reward},
            outcome=dict(env.infos.get(agent, {}).get("outcome", {})),
            over=True,
            saved=self._start.saved,
            copy=env if self._start.saved is None else None,
            team=(),
            crashed=True,
        )


SLOW = 0.01
"""Seconds of a step from which it pays to play candidates at once: a hundred times what a job on a thread costs."""


class CandidateStepper:
    """See the head of this file. Jobs on several threads may play at once.

    Args:
        venue: The run's own, in the state `start`. Used for one candidate at a time, and for others while it is free.
        start: Where all of them begin.
        agent: Who has sampled them.
        completions: What was sampled.
        crashes: What is done about a reply that crashes the environment; `None`: it counts as a failure of it.
    """

    def __init__(
        self,
        venue: EnvHandle,
        start: StateSnapshot,
        agent: str,
        completions: Sequence[Completion],
        crashes: CrashPolicy | None,
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

    def play_in_turn(self, calls: CallTimer, *, while_quick: bool) -> bool:
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

    def play(self, k: int, calls: CallTimer, stock: EnvPool) -> bool:
        """Play one of them beside others, in the run's own venue if that is free, else in an environment of the stock.

        Returns:
            Whether it was the last and none has failed, so that the caller goes on with the decision.
        """
        with self._lock:
            if self._has_failed:
                return False
            own, self.is_free = self.is_free, False
        setup = self._venue.setup
        venue = self._venue if own else EnvHandle(stock.take(setup.environment), setup)
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
    def _failing(self, venue: EnvHandle, calls: CallTimer) -> Iterator[None]:
        """What fails inside is closed."""
        try:
            yield
        except EnvironmentFailure:
            self.fail()
            venue.close(calls)
            raise

    def _play(self, venue: EnvHandle, ks: Sequence[int], calls: CallTimer) -> Iterator[Branch]:
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
