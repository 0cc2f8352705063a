"""Calls environments: `EnvHandle` times the calls and turns what they raise into failures; `Candidates` are stepped.

The candidates of a decision are stepped from one state: sequentially in one environment where it is quick, because
moving them to threads would take longer. Where a step takes `SLOW` seconds, because it waits for a sandbox or a
server, the rest are stepped concurrently, each by a job in an environment of its own. No job waits for one that is yet
to begin, so threads cannot deadlock; the job that steps the last candidate also takes the decision.

    sequentially   job 1: [0][1][2][3] decide
    concurrently   job 1: [0]          job 2: [1  ]     job 3: [2      ] decide     job 4: [3]

The instance of a failing environment is restarted, then dropped. If a certain reply always crashes it, this makes
crashing free: no policy is trained to avoid it, and success is measured on the other instances. Therefore, with a
`crash_reward`, each crash is examined in fresh environments in the same state:

| the reply, repeated | the empty reply | cause                                                   |
|---------------------|-----------------|---------------------------------------------------------|
| does not crash      |                 | the environment (a lost connection, a full disk)        |
| same error          | crashes         | the environment (a server that is down)                 |
| same error          | does not crash  | the reply: its branch ends there, with that reward      |

A `pettingllms_envs.failures.ServiceFailed`, such as a search engine that is down, is always the environment's failure.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from pettingllms_envs.branching import ReplayError, SavedState
from pettingllms_envs.failures import EpisodeRestart, ServiceFailed
from pettingllms_trl.records import Candidate, Completion, DataRow, EnvironmentFailure
from pettingllms_trl.rollout.branching import Branch, branch_of
from pettingllms_trl.rollout.env_pool import EnvPool


class EnvHandle:
    """The environment in which an episode is played. It is called inside `with handle:`, which times the calls.

    If a call raises, the environment is closed, and an `EnvironmentFailure` raised. `now` is the worker pool's clock.
    """

    def __init__(self, row: DataRow, env_pool: EnvPool, now: Callable[[], float], *, is_copied: bool = False) -> None:
        self.row, self.reset_args = row, env_pool.reset_args(row)
        self.is_copied = is_copied  # the environment is a copy of another episode's, which no pool takes
        self.branches = env_pool.branches  # whether several replies may be played from one state
        self.env: Any = None  # an AECEnv, from `acquire` to `release` or `close`
        self.agent = ""  # the acting agent, once it is known
        self.saved: SavedState | None = None  # the state of the decision, or the one to which a candidate has led
        self.reset_seconds = 0.0
        self.spares = Spares(self)
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

    def next_call(self) -> float:
        """The next call begins; returns the seconds of the last one."""
        assert self.since is not None, "next_call() outside of `with`"
        before, self.since = self.since, self._now()
        return self.since - before

    def acquire(self, *, fresh: bool = False) -> None:
        """Take an environment from the pool, if it has none. A `fresh` one has never been played in."""
        if self.env is None and not self.is_copied:
            self.env = self._env_pool.acquire(self.reset_args.environment, fresh=fresh)

    def reset(self) -> None:
        self.env.reset(seed=self.reset_args.seed, options=self.reset_args.options)
        self.reset_seconds = self.next_call()

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
        self.spares.release()
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


@dataclass(slots=True, eq=False)
class Spares:
    """Environments that are brought to an episode's decisions while the engine samples, to step candidates in."""

    _handle: EnvHandle
    waiting: list[EnvHandle] = field(default_factory=list)  # the one that has been on its way for longest first
    _taken: list[EnvHandle] = field(default_factory=list)  # for candidates of the decision
    _num_late: int = 0  # those that were taken on their way: as many more are sent

    def send(self, number: int, most: int) -> Iterator[tuple[EnvHandle, Callable[[], None]]]:
        """Environments until `number` wait or `most` are in play, each with the job that brings it to the decision."""
        saved, env_pool = self._handle.saved, self._handle._env_pool
        if saved is not None and saved.is_replayed:
            while len(self.waiting) < number + self._num_late and env_pool.num_in_play < most:
                spare = EnvHandle(self._handle.row, env_pool, self._handle._now)
                spare.acquire()
                spare.saved, spare.since = saved, float("inf")  # until the job begins
                self.waiting.append(spare)
                yield spare, spare.env.send(saved.snapshot, spare.next_call)

    def take(self) -> EnvHandle:
        """The one that has been on its way for longest, or a new one, which is not."""
        if not self.waiting:
            return EnvHandle(self._handle.row, self._handle._env_pool, self._handle._now)
        self._taken.append(self.waiting.pop(0))
        self._num_late += self._taken[-1].env.is_on_its_way
        return self._taken[-1]

    def switch_to(self, saved: SavedState | None) -> None:
        """Let the episode go on in the one that a candidate has led to that state, if one has; release the others."""
        for spare in self._taken:
            if spare.saved is saved:
                self._handle.env, spare.env = spare.env, self._handle.env
            spare.release()
        self._taken.clear()

    def release(self) -> None:
        """Return them to the pool; one that is on its way, or has failed, is closed."""
        for spare in (*self.waiting, *self._taken):
            spare.interrupt()
            if spare.env is None or not spare.env.recall(spare.close):
                spare.release()
        self.waiting, self._taken = [], []


SLOW = 0.01
"""Seconds of a step above which candidates are stepped concurrently: a hundred times the cost of a job on a thread."""


@dataclass(slots=True, eq=False)
class Candidates:
    """The candidates of one decision, to be stepped; an episode yields it and is sent their branches."""

    handle: EnvHandle  # the episode's environment, in the state from which all candidates are stepped
    start: SavedState | None  # that state, unless the environment is copied instead
    agent: str
    completions: Sequence[Completion]
    crash_reward: float | None  # of a reply that crashes the environment; `None`: that is the environment's failure
    branches: dict[int, Branch] = field(default_factory=dict)  # of those that are stepped, by index
    seconds: float = 0.0  # of the slowest step
    has_failed: bool = False  # then no further one is started
    _lock: threading.Lock = field(default_factory=threading.Lock)  # never held while an environment is stepped

    def step(self, indices: Sequence[int], handle: EnvHandle, *, while_quick: bool = False) -> bool:
        """Step some candidates sequentially, in the episode's environment or in another, beside other such calls.

        With `while_quick` it stops after a slow step. Returns whether all are stepped by now, and none has failed, so
        that the caller takes the decision.
        """
        if self.has_failed:
            return False
        is_new = handle is not self.handle and handle.saved is None  # neither the episode's nor a spare one
        handle.agent = self.agent
        handle.acquire()
        stepped, slowest = dict[int, Branch](), 0.0
        try:
            with handle:
                if is_new:
                    handle.reset()
                for k in indices:
                    stepped[k] = self._branch(k, handle)
                    slowest = max(slowest, handle.next_call())  # the time limit is that of each candidate
                    if while_quick and slowest >= SLOW:
                        break
        except EnvironmentFailure:
            self.has_failed = True
            raise
        handle.saved = stepped[indices[0]].saved
        if is_new:
            handle.release()
        with self._lock:
            self.branches |= stepped
            self.seconds = max(self.seconds, slowest)
            return len(self.branches) == len(self.completions) and not self.has_failed

    def _branch(self, k: int, handle: EnvHandle) -> Branch:
        """Step candidate `k`, for the first one in the state in which the environment is."""
        completion, is_last = self.completions[k], k == len(self.completions) - 1
        # What a reply without a saved state may crash is a copy, so that it can be repeated.
        in_place = k == 0 if self.start is not None else is_last and self.crash_reward is None
        try:
            return branch_of(handle.env, self.agent, completion, self.start, handle.next_call, in_place=in_place)
        except (EpisodeRestart, ReplayError, ServiceFailed):  # before the step, or of a server
            raise
        except Exception as crash:  # third-party code may raise anything
            if self.crash_reward is None:
                raise
            return self._end_of(completion, crash, self.crash_reward, handle)

    def _end_of(self, completion: Completion, crash: Exception, reward: float, handle: EnvHandle) -> Branch:
        """The branch of a reply that has crashed the environment. Raises the crash if the reply is not the cause."""
        start = self.start

        def error_of(completion: Completion) -> Exception | None:
            if start is not None:  # else it was a copy that crashed
                handle.replace()
            try:
                branch_of(handle.env, self.agent, completion, start, handle.next_call)
            except Exception as error:  # noqa: BLE001  # compared with the first
                return error
            return None

        if type(error_of(completion)) is not type(crash):
            raise crash
        if (refusal := error_of(Completion(ids=(), text=""))) is not None:  # the environment accepts no reply at all
            raise refusal
        env = handle.env
        if start is not None:
            start.restore(env, handle.next_call)
        where = f"at the instance {dict(handle.row)} after {completion.text[:200]!r}"
        return Branch(
            Candidate(completion=completion, reward=reward, parts={"crash": reward}),
            {**dict.fromkeys(env.possible_agents, 0.0), self.agent: reward},
            outcome=dict(env.infos.get(self.agent, {}).get("outcome", {})),
            over=True,
            saved=start,
            copy=env if start is None else None,
            team=(),
            crash=f"{type(crash).__name__} {where}: {crash}",
        )
