"""Steps the candidates of a decision from one state: sequentially in one environment, or concurrently in several.

Where an environment is quick its candidates are stepped sequentially, because moving them to threads would take
longer. Where a step takes `SLOW` seconds, because it waits for a sandbox, a server or a search, the rest are stepped
concurrently, each by a job of its own in an environment of its own. No job starts one that waits for another job, so
threads cannot deadlock; the job that steps the last candidate also takes the decision.

    sequentially   job 1: [0][1][2][3] decide
    concurrently   job 1: [0]          job 2: [1  ]     job 3: [2      ] decide     job 4: [3]

`CrashPolicy` distinguishes a reply that crashes its environment from an environment that fails by itself.

By default a failing environment is replaced and its instance restarted, then dropped and never scored. If a certain
reply always crashes it, this makes crashing free: the reply is sampled again and never counted, so the policy is not
trained to avoid it, and success is measured on the remaining instances. Therefore, with a `reward` for crashes, each
crash is examined in fresh environments in the same state:

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
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial

from pettingzoo import AECEnv

from old_rollout.branching import Branch, StateSnapshot, play_branches
from old_rollout.env_pool import EnvHandle, EnvPool
from old_rollout.timeouts import CallTimer, EnvironmentFailure
from pettingllms_envs.branching import ReplayError
from pettingllms_envs.copying import copy_env
from pettingllms_envs.failures import ServiceFailed
from pettingllms_trl.records import Candidate, Completion


@dataclass(frozen=True, slots=True)
class CrashPolicy:
    """How a reply that crashes its environment is treated.

    Args:
        reward: Reward of the agent for such a reply. It must be below any return, or crashing pays.
    """

    reward: float


def step_guarded(
    env: AECEnv,
    agent: str,
    completions: Sequence[Completion],
    start: StateSnapshot,
    crashes: CrashPolicy,
    *,
    replace: Callable[[], AECEnv],
    on_crash: Callable[[int, Exception], None],
    on_call: Callable[[], object],
) -> Iterator[Branch]:
    """Like `play_branches`, but a reply that causes a crash ends only its own branch.

    Args:
        env: The environment. Without snapshots, only copies of it are stepped.
        agent: The acting agent.
        completions: Its candidates.
        start: The state that the environment is in.
        crashes: The reward of a crash.
        replace: Replaces an environment that has failed by a fresh one, just reset.
        on_crash: Called for each crash that a reply caused, with the reply's index.
        on_call: Called after each call of an environment that is replayed.

    Raises:
        Exception: The environment's, where no reply caused it.
    """
    branch_point = _BranchPoint(env, replace, start, on_call)
    for k, completion in enumerate(completions):
        try:
            branch = branch_point.play(agent, completion)
        except (ReplayError, ServiceFailed):  # before the reply was stepped; or a server that only some replies need
            raise
        except Exception as crash:  # third-party code may raise anything
            branch_point.replace()
            if not branch_point.crashes_alike(agent, completion, crash):
                raise
            branch_point.replace()
            branch_point.play(agent, Completion(ids=(), text=""))  # raises if the environment accepts no reply at all
            on_crash(k, crash)
            branch = branch_point.crashed(agent, completion, crashes.reward)
        yield branch


class _BranchPoint:
    """The state from which candidates are stepped, and an environment that can return to it."""

    def __init__(
        self, env: AECEnv, replace: Callable[[], AECEnv], start: StateSnapshot, on_call: Callable[[], object]
    ) -> None:
        self._env, self._replace, self._start, self._on_call = env, replace, start, on_call

    def play(self, agent: str, completion: Completion) -> Branch:
        """The branch of a reply, stepped from that state."""
        if self._start.saved is not None:
            env = self._env
            self._start.saved.restore(env, self._on_call)
        else:
            env = copy_env(self._env)
        (branch,) = play_branches(env, agent, [completion], self._start)
        return branch

    def replace(self) -> None:
        """After a crash, continue in an environment that has not crashed."""
        if self._start.saved is not None:  # else it was a copy that crashed
            self._env = self._replace()

    def crashes_alike(self, agent: str, completion: Completion, crash: Exception) -> bool:
        """Whether the reply raises the same kind of error again."""
        try:
            self.play(agent, completion)
        except Exception as again:  # noqa: BLE001  # compared with the first
            return type(again) is type(crash)
        return False

    def crashed(self, agent: str, completion: Completion, reward: float) -> Branch:
        """A branch that ends in the state before the reply."""
        env = self._env
        if self._start.saved is not None:
            self._start.saved.restore(env, self._on_call)
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
"""Seconds of a step above which candidates are stepped concurrently: a hundred times the cost of a job on a thread."""


class CandidateStepper:
    """Steps all candidates of one decision; its jobs may run on several threads.

    Args:
        handle: The run's own environment, in the state `start`; one candidate at a time is stepped in it.
        start: The state from which all candidates are stepped.
        agent: The acting agent.
        completions: The candidates.
        crashes: How a reply that crashes the environment is treated; `None`: as a failure of the environment.
    """

    def __init__(
        self,
        handle: EnvHandle,
        start: StateSnapshot,
        agent: str,
        completions: Sequence[Completion],
        crashes: CrashPolicy | None,
    ) -> None:
        self.is_env_free = True  # whether `handle` is not in use
        self._handle, self._start, self._agent = handle, start, agent
        self._completions, self._crashes = completions, crashes
        self._branches: dict[int, Branch] = {}
        self._crashed: dict[int, str] = {}
        self._slowest = 0.0  # seconds of the slowest step
        self._has_failed = False
        self._lock = threading.Lock()  # never held while an environment is stepped

    @property
    def branches(self) -> list[Branch]:
        """The branch of each candidate, once all are stepped."""
        return [self._branches[k] for k in range(len(self._completions))]

    @property
    def crashed(self) -> list[str]:
        """The errors of replies that caused a crash, in the order of candidates."""
        return [self._crashed[k] for k in sorted(self._crashed)]

    @property
    def was_slow(self) -> bool:
        """Whether a step took `SLOW` seconds or more."""
        return self._slowest >= SLOW

    @property
    def pending(self) -> list[int]:
        """Indices of the candidates that have not been stepped."""
        return [k for k in range(len(self._completions)) if k not in self._branches]

    def step_sequentially(self, calls: CallTimer, *, while_quick: bool) -> bool:
        """Step the candidates one after the other in the run's own environment.

        Args:
            calls: Timer of the job.
            while_quick: Stop after a slow step, so that the rest are stepped concurrently.

        Returns:
            Whether all are stepped.
        """
        self.is_env_free = False
        limit = SLOW if while_quick else float("inf")
        branches, slowest = self._branches, 0.0
        with self._closing_on_failure(self._handle, calls), calls.timed():
            for k, branch in enumerate(self._play(self._handle, range(len(self._completions)), calls)):
                branches[k] = branch
                seconds = calls.restart()  # the time limit is that of each candidate
                if seconds > slowest:
                    slowest = seconds
                    if seconds >= limit:
                        break
        self._slowest = slowest
        self.is_env_free = len(branches) < len(self._completions)
        return not self.is_env_free

    def step_one(self, k: int, calls: CallTimer, env_pool: EnvPool) -> bool:
        """Step one candidate while others are stepped, in the run's own environment if free, else in one of the pool.

        Returns:
            Whether it was the last and none has failed, so that the caller takes the decision.
        """
        with self._lock:
            if self._has_failed:
                return False
            own, self.is_env_free = self.is_env_free, False
        reset_args = self._handle.reset_args
        handle = self._handle if own else EnvHandle(env_pool.acquire(reset_args.environment), reset_args, env_pool)
        with self._closing_on_failure(handle, calls), calls.timed():
            if not own:
                handle.reset()
                calls.restart()
            assert self._start.saved is not None, "candidates of a copied environment, stepped concurrently"
            self._start.saved.restore(handle.env, calls.restart)
            calls.restart()
            (branch,) = self._play(handle, [k], calls)
            seconds = calls.restart()
        if not own:
            env_pool.release(reset_args.environment, handle.env)
        with self._lock:
            self._branches[k] = branch
            self._slowest = max(self._slowest, seconds)
            is_last = len(self._branches) == len(self._completions) and not self._has_failed
            self.is_env_free = (own or self.is_env_free) and not is_last
            return is_last

    def fail(self) -> None:
        """Record that a candidate has failed, and with it the decision: no further candidate is started."""
        with self._lock:
            self._has_failed = True

    @contextmanager
    def _closing_on_failure(self, handle: EnvHandle, calls: CallTimer) -> Iterator[None]:
        """Close the environment if it fails inside the block."""
        try:
            yield
        except EnvironmentFailure:
            self.fail()
            handle.close(calls)
            raise

    def _play(self, handle: EnvHandle, ks: Sequence[int], calls: CallTimer) -> Iterator[Branch]:
        completions = [self._completions[k] for k in ks]
        crashes = self._crashes
        if crashes is None:
            return play_branches(handle.env, self._agent, completions, self._start, calls.restart)

        def on_crash(i: int, crash: Exception) -> None:
            said = completions[i].text[:200]
            where = f"at the instance {dict(calls.row)} after {said!r}"
            self._crashed[ks[i]] = f"{type(crash).__name__} {where}: {crash}"

        replace = partial(handle.replace, calls)
        return step_guarded(
            handle.env,
            self._agent,
            completions,
            self._start,
            crashes,
            replace=replace,
            on_crash=on_crash,
            on_call=calls.restart,
        )
