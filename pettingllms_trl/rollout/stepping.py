"""Calls environments: `EnvHandle` times the calls and turns what they raise into failures; `Candidates` are stepped.

The candidates of a decision are stepped from one state: sequentially in one environment, or concurrently in several.

Where an environment is quick its candidates are stepped sequentially, because moving them to threads would take
longer. Where a step takes `SLOW` seconds, because it waits for a sandbox, a server or a search, the rest are stepped
concurrently, each by a job of its own in an environment of its own. No job starts one that waits for another job, so
threads cannot deadlock; the job that steps the last candidate also takes the decision.

    sequentially   job 1: [0][1][2][3] decide
    concurrently   job 1: [0]          job 2: [1  ]     job 3: [2      ] decide     job 4: [3]

By default a failing environment is replaced and its instance restarted, then dropped and never scored. If a certain
reply always crashes it, this makes crashing free: the reply is sampled again and never counted, so the policy is not
trained to avoid it, and success is measured on the remaining instances. Therefore, with a `crash_reward`, each crash
is examined in fresh environments in the same state:

| the reply, repeated | the empty reply | cause                                                   |
|---------------------|-----------------|---------------------------------------------------------|
| does not crash      |                 | the environment (a lost connection, a full disk)        |
| same error          | crashes         | the environment (a server that is down)                 |
| same error          | does not crash  | the reply: its branch ends there, with that reward      |

A `pettingllms_envs.failures.ServiceFailed`, such as a search engine that is down, is always the environment's failure.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from pettingllms_envs.branching import ReplayError, SavedState
from pettingllms_envs.failures import EpisodeRestart, ServiceFailed
from pettingllms_trl.records import Candidate, Completion, EnvironmentFailure, Row
from pettingllms_trl.rollout.branching import Branch, StateSnapshot, branch_of, play_branches
from pettingllms_trl.rollout.env_pool import EnvPool


class EnvHandle:
    """The environment in which an episode is played. It is called inside `with handle:`, which times the calls.

    If a call raises, the environment is closed, and an `EnvironmentFailure` raised. `now` is the worker pool's clock.
    """

    def __init__(self, row: Row, env_pool: EnvPool, now: Callable[[], float], *, is_copied: bool = False) -> None:
        self.row, self.reset_args = row, env_pool.reset_args(row)
        self.is_copied = is_copied  # the environment is a copy of another episode's, which no pool takes
        self.branches = env_pool.branches  # whether several replies may be played from one state
        self.env: Any = None  # an AECEnv, from `acquire` to `release` or `close`
        self.agent = ""  # the acting agent, once it is known
        self.saved: SavedState | None = None  # the state in which it decides, or that a spare one was stepped to
        self.reset_seconds = 0.0  # of the last reset
        self.spares: list[EnvHandle] = []  # on their way to the state, to step candidates in; the first was first
        self.stepped: list[EnvHandle] = []  # spare ones that were taken for a candidate of the decision
        self.arrived: Future[None] | None = None  # of a spare one
        self.was_late = False  # whether a spare one was waited for
        self.num_ahead = 1  # decisions for which there are spare ones: more where they were late
        self.since: float | None = None  # when the running call started
        self.is_abandoned = False  # on its thread, because a call took too long
        self.crashes: list[str] = []  # errors of replies that crashed the environment
        self._env_pool, self._now = env_pool, now

    def __enter__(self) -> None:
        self.since = self._now()

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        self.since = None
        if isinstance(error, Exception):  # third-party code may raise anything; it is retried, then counted
            self.close()
            where = f"{type(error).__name__} at the instance {dict(self.row)}"
            raise EnvironmentFailure(f"{where}: {error}") from error
        if self.is_abandoned:
            self.close()
            raise EnvironmentFailure("came back after it was abandoned")

    def tick(self) -> float:
        """The next call begins; returns the seconds of the last one."""
        assert self.since is not None, "tick() outside of `with`"
        before, self.since = self.since, self._now()
        return self.since - before

    def acquire(self, *, fresh: bool = False) -> None:
        """Take an environment from the pool, if it has none. A `fresh` one has never been played in."""
        if self.env is None and not self.is_copied:
            self.env = self._env_pool.acquire(self.reset_args.environment, fresh=fresh)

    def reset(self) -> None:
        """Reset the environment to the instance."""
        self.env.reset(seed=self.reset_args.seed, options=self.reset_args.options)
        self.reset_seconds = self.tick()

    def replace(self) -> None:
        """Replace the environment by a fresh one, reset to the instance, after a call of it has failed."""
        self.close()
        self.acquire(fresh=True)
        self.since = self._now()
        self.reset()

    def close(self) -> None:
        """Close the environment, which has failed."""
        env, self.env = self.env, None
        self.since = self._now()
        with suppress(Exception):  # this may fail, too
            self._env_pool.close(env)
        self.since = None

    def release(self) -> None:
        """Return the environment to the pool, if it has one. A thread that was abandoned with it closes it itself."""
        for spare in (*self.spares, *self.stepped):
            assert spare.arrived is not None
            if spare.arrived.done() or spare.arrived.cancel():
                spare.release()
            else:
                spare.interrupt()
                spare.arrived.add_done_callback(lambda _, spare=spare: spare.close())  # type: ignore[misc]
        self.spares, self.stepped = [], []
        if self.is_abandoned:
            return
        if self.env is not None and not self.is_copied:
            self._env_pool.release(self.reset_args.environment, self.env)
        self.env = None

    def interrupt(self) -> None:
        """Wake up a thread that was abandoned in an environment that can be, such as one that waits for a program."""
        inner: Any = getattr(self.env, "unwrapped", None)
        if hasattr(type(inner), "interrupt"):
            inner.interrupt()

    def another(self) -> EnvHandle:
        """A handle of another environment for the same instance."""
        other = EnvHandle(self.row, self._env_pool, self._now)
        other.agent = self.agent
        return other

    def new_spares(self, num_each: int, most: int) -> Iterator[EnvHandle]:
        """Handles of environments to be brought to the state by `arrive`, if that takes a replay.

        Args:
            num_each: Most that a decision can use.
            most: Environments in play, with which there is no room for another.
        """
        if self.saved is not None and self.saved.is_replayed:
            while len(self.spares) < self.num_ahead * num_each and self._env_pool.num_in_play < most:
                spare = self.another()
                spare.acquire()
                spare.saved, spare.arrived = self.saved, Future()
                self.spares.append(spare)
                yield spare

    def arrive(self) -> None:
        """A job: bring a spare environment to the state `saved`."""
        assert self.arrived is not None
        assert self.saved is not None
        if not self.arrived.set_running_or_notify_cancel():
            return
        self.since = self._now()
        try:
            self.reset()
            self.saved.restore(self.env, self.tick)
        except BaseException as error:  # noqa: BLE001  # raised by `has_arrived`
            self.close()
            self.arrived.set_exception(error)
        else:
            self.arrived.set_result(None)

    def has_arrived(self) -> bool:
        """Whether it has been, or is being, brought to a state, for which it waits. Raises what that raised."""
        if self.arrived is None or self.arrived.cancel():
            return False
        self.was_late = not self.arrived.done()
        self.arrived.result()
        return True

    def take_spare(self) -> EnvHandle | None:
        """The spare environment that has been on its way for longest."""
        self.stepped += self.spares[:1]
        return self.spares.pop(0) if self.spares else None

    def adopt(self, saved: SavedState | None) -> None:
        """Go on in the spare environment that was stepped to a state, if one was, and release the others."""
        for spare in self.stepped:
            if spare.saved is saved:
                self.env, spare.env = spare.env, self.env
            spare.release()
        self.num_ahead += any(spare.was_late for spare in self.stepped)
        self.stepped = []


SLOW = 0.01
"""Seconds of a step above which candidates are stepped concurrently: a hundred times the cost of a job on a thread."""


@dataclass(slots=True, eq=False)
class Candidates:
    """The candidates of one decision, to be stepped; an episode yields it and is sent their branches."""

    handle: EnvHandle  # the episode's environment, in the state `start`
    start: StateSnapshot  # from which all candidates are stepped
    agent: str
    completions: Sequence[Completion]
    crash_reward: float | None  # of a reply that crashes the environment; `None`: that is the environment's failure
    branches: list[Branch | None] = field(default_factory=list)  # of those that are stepped
    seconds: float = 0.0  # of the slowest step
    has_failed: bool = False  # then no further one is started
    _lock: threading.Lock = field(default_factory=threading.Lock)  # never held while an environment is stepped

    @property
    def can_fan_out(self) -> bool:
        """Whether there are several, which can be stepped in other environments than the episode's own."""
        return self.start.saved is not None and len(self.completions) > 1

    def fan_out(self) -> list[int]:
        """Indices of the candidates that have not been stepped, each of which is to be stepped by `step_one`."""
        self.branches += [None] * (len(self.completions) - len(self.branches))
        return [k for k, branch in enumerate(self.branches) if branch is None]

    def step_sequentially(self, *, while_quick: bool) -> bool:
        """Step the candidates one after the other in the episode's own environment. Returns whether all are stepped.

        With `while_quick` it stops after a slow step, so that the rest are stepped concurrently.
        """
        handle, limit = self.handle, SLOW if while_quick else math.inf
        with handle:
            for branch in self._play(handle, self.completions):
                self.branches.append(branch)
                seconds = handle.tick()  # the time limit is that of each candidate
                if seconds > self.seconds:
                    self.seconds = seconds
                    if seconds >= limit:
                        break
        return len(self.branches) == len(self.completions)

    def step_one(self, k: int, handle: EnvHandle) -> bool:
        """Step candidate `k` in an environment of its own, the episode's or another, while others are stepped.

        Returns whether it was the last and none has failed, so that the caller takes the decision.
        """
        if self.has_failed:
            return False
        assert self.start.saved is not None, "candidates of a copied environment, stepped concurrently"
        handle.acquire()
        try:
            with handle:
                if handle is not self.handle and not handle.has_arrived():
                    handle.reset()
                self.start.saved.restore(handle.env, handle.tick)
                handle.tick()
                (branch,) = self._play(handle, [self.completions[k]])
                seconds = handle.tick()
        except EnvironmentFailure:
            self.has_failed = True
            raise
        if handle.arrived is not None:
            handle.saved = branch.saved
        elif handle is not self.handle:
            handle.release()
        with self._lock:
            self.branches[k] = branch
            self.seconds = max(self.seconds, seconds)
            return None not in self.branches and not self.has_failed

    def _play(self, handle: EnvHandle, completions: Sequence[Completion]) -> Iterator[Branch]:
        reward = self.crash_reward
        if reward is None:
            return play_branches(handle.env, self.agent, completions, self.start, handle.tick)
        return (step_guarded(handle, self.agent, each, self.start, reward) for each in completions)


def step_guarded(
    handle: EnvHandle, agent: str, completion: Completion, start: StateSnapshot, crash_reward: float
) -> Branch:
    """Step a completion from the state `start`; if it causes a crash, its branch ends there with that reward.

    An environment without snapshots is not stepped itself, but a copy of it. What the reply did not cause is raised.
    """

    def step(completion: Completion) -> Branch:
        return branch_of(handle.env, agent, completion, start, handle.tick)

    def replace() -> None:
        if start.saved is not None:  # else it was a copy that crashed
            handle.replace()

    try:
        return step(completion)
    except (
        EpisodeRestart,
        ReplayError,
        ServiceFailed,
    ):  # before the reply was stepped; or a server that only some replies need
        raise
    except Exception as crash:  # third-party code may raise anything
        replace()
        if type(_error_of(step, completion)) is not type(crash):
            raise
        replace()
        step(Completion(ids=(), text=""))  # raises if the environment accepts no reply at all
        where = f"at the instance {dict(handle.row)} after {completion.text[:200]!r}"
        error = f"{type(crash).__name__} {where}: {crash}"
    env = handle.env
    if start.saved is not None:
        start.saved.restore(env, handle.tick)
    return Branch(
        Candidate(completion=completion, reward=crash_reward, parts={"crash": crash_reward}),
        {**dict.fromkeys(env.possible_agents, 0.0), agent: crash_reward},
        outcome=dict(env.infos.get(agent, {}).get("outcome", {})),
        over=True,
        saved=start.saved,
        copy=env if start.saved is None else None,
        team=(),
        crash=error,
    )


def _error_of(step: Callable[[Completion], Branch], completion: Completion) -> Exception | None:
    try:
        step(completion)
    except Exception as error:  # noqa: BLE001  # compared with the first
        return error
    return None
