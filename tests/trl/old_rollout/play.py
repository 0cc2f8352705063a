"""Plays many environments concurrently, as trees or in parallel, and returns episodes. Needs no torch.

`play` requests tokens from an `Engine` and knows neither models nor policies. No instance waits for another: as soon
as its tokens arrive, it is stepped (on a thread, beside the engine), and its next request is sent as soon as it is
known. Only a batched engine is given the requests of all instances together.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field, fields
from operator import attrgetter
from typing import Literal, Protocol

from pettingzoo import AECEnv

from old_rollout.branching import RewardWeigher
from old_rollout.env_pool import EnvPool, MakeEnv
from old_rollout.prompts import ChatHistory, Follow
from old_rollout.scheduler import RolloutScheduler
from old_rollout.stepping import CrashPolicy
from old_rollout.timeouts import check_dropped
from old_rollout.workers import InlinePool, ThreadPool, WorkerPool
from pettingllms_trl.records import Choose, Engine, Episode, Judge, Row


@dataclass(frozen=True, slots=True)
class Rollout:
    """The result of playing rows.

    Args:
        episodes: In the order of rows, then of episodes; none of an instance that was dropped.
        dropped: Why an instance was dropped, by its index: its environment failed three times.
        retried: How often an instance was restarted in a fresh environment after a failure.
        timed_out: How often an environment exceeded `env_timeout` and was abandoned on its thread.
        crashed: The error of each reply that crashed its environment and was given `crash_reward`.
        num_sampled_tokens: In all completions, including continuations and restarted or dropped instances.
    """

    episodes: list[Episode]
    dropped: Mapping[int, str] = field(default_factory=dict)
    retried: int = 0
    timed_out: int = 0
    crashed: Sequence[str] = ()
    num_sampled_tokens: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class RolloutOptions:
    """How rows are played; each field is the argument of that name of [`play`]."""

    sampling: Literal["tree", "parallel"]
    num_candidates: int
    num_continuations: int = 0
    choose: Choose = "reward"
    keep_continuations: bool = False
    default_env_seed: int = 0
    max_envs: int | None = None
    max_turns: int | None = None
    num_threads: int = 0
    env_timeout: float | None = None
    crash_reward: float | None = None

    @property
    def rows_at_once(self) -> int | None:
        """Rows whose episodes, and whose candidates' continuations, `max_envs` has room for. `None`: all rows."""
        if self.max_envs is None:
            return None
        is_wide = self.sampling == "parallel" or self.num_continuations > 0
        return max(1, self.max_envs // self.num_candidates) if is_wide else self.max_envs


class EpisodeSource(Protocol):
    """Turns rows of the data set into episodes, sampled by an engine."""

    def play(
        self,
        rows: Sequence[Row],
        engine: Engine,
        options: RolloutOptions,
        *,
        seed: str,
        only: Iterable[int] | None = None,
        judge: Judge | None = None,
        partners: Collection[str] = (),
    ) -> Rollout:
        """Play every row. See [`play`], whose arguments these are."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class EnvironmentSource:
    """Plays rows in PettingZoo environments: an [`EpisodeSource`].

    Args:
        make_env, pool, weigh, follow: See [`play`]. The pool keeps its environments from one call to the next.
    """

    make_env: MakeEnv | Mapping[str, MakeEnv]
    pool: Mapping[str, list[AECEnv]]
    weigh: RewardWeigher | None = None
    follow: Mapping[str, Follow | None] = field(default_factory=dict)

    def play(
        self,
        rows: Sequence[Row],
        engine: Engine,
        options: RolloutOptions,
        *,
        seed: str,
        only: Iterable[int] | None = None,
        judge: Judge | None = None,
        partners: Collection[str] = (),
    ) -> Rollout:
        """See `EpisodeSource`."""
        return play(
            rows,
            only=only,
            make_env=self.make_env,
            pool=self.pool,
            engine=engine,
            judge=judge,
            weigh=self.weigh,
            seed=seed,
            follow=self.follow,
            partners=partners,
            **{each.name: getattr(options, each.name) for each in fields(options)},
        )


def play(
    rows: Sequence[Row],
    *,
    only: Iterable[int] | None = None,
    make_env: MakeEnv | Mapping[str, MakeEnv],
    pool: list[AECEnv] | Mapping[str, list[AECEnv]] | None = None,
    engine: Engine,
    judge: Judge | None = None,
    weigh: RewardWeigher | None = None,
    sampling: Literal["tree", "parallel"],
    num_candidates: int,
    num_continuations: int = 0,
    choose: Choose = "reward",
    keep_continuations: bool = False,
    seed: str,
    default_env_seed: int = 0,
    max_envs: int | None = None,
    max_turns: int | None = None,
    num_threads: int = 0,
    env_timeout: float | None = None,
    crash_reward: float | None = None,
    follow: Mapping[str, Follow | None] | None = None,
    workers: WorkerPool | None = None,
    partners: Collection[str] = (),
) -> Rollout:
    """Play every row: one tree each, or `num_candidates` independent episodes each.

    An environment that raises is discarded and its instance restarted in a fresh one, at most twice; then the instance
    is dropped with all its episodes, and never scored.

    Args:
        rows: Instances. `row["seed"]` seeds the environment, the other fields are its reset options.
        only: Indices of the rows that this process plays, where other processes play the rest. The next index is
            taken when `max_envs` leaves room for it, so that an iterator may depend on what other processes have
            taken by then. Tickets, ties and records are the same as if all rows were played here. `None`: all.
        make_env: Makes an environment; called once for each environment in play at the same time, which are reset and
            reused. It may be called on a thread, but never on two at the same time. With several environments, such
            a function for each name in the rows' field `environment`.
        pool: Environments made before, used first; all environments end up in it. With several environments, a pool
            for each name.
        engine: Samples the completions.
        judge: Rewards added to the environment's before the best candidate is chosen. With `num_threads` it is called
            on several threads concurrently.
        weigh: Computes every agent's reward for a step, the judge's rewards included, before the best candidate is
            chosen.
        sampling: `"tree"`: K candidates for each decision; the best is played on, ties are broken at random.
            `"parallel"`: K episodes of each row, one candidate for each decision.
        num_candidates: K.
        num_continuations: How often each candidate's branch is played to its end, for `Candidate.continuations`.
        choose: Which candidate of a tree is the best: that with the highest `"reward"` for its step, or that with the
            highest `"value"`, its reward plus the mean return of its continuations.
        keep_continuations: Whether `Episode.continuations` has the decisions of continuations.
        seed: Names the rollout. Ties depend only on it and on the decision's place, not on what else is in play.
        default_env_seed: Seed of the environment for rows without one.
        max_envs: Most environments in play at the same time, and so left in a pool. `None`: all episodes; with
            continuations K times as many, so that the engine is as busy with them as with candidates. Stepping
            candidates concurrently adds at most `num_threads` environments.
        max_turns: An episode ends when an agent would decide more often.
        num_threads: Threads on which environments are stepped, beside the engine. If they are slow and are
            restored or replayed, the candidates of one decision are also stepped concurrently, each in its own
            environment, see `stepping.py`. 0: on the caller's thread in a fixed order, so that an engine with a single
            random number generator is reproducible. Threads are for environments that wait (for a sandbox, a server):
            one that computes in Python holds the interpreter's lock, and so blocks the engine's loop.
        env_timeout: Seconds that one call of an environment may take, on threads; then it has failed. Its thread
            cannot be ended: it is abandoned and replaced. Neither `make_env` nor `judge` has a limit.
        crash_reward: Reward of a reply that crashes its environment repeatedly, see `stepping.py`. `None`: such a
            crash is a failure of the environment like any other.
        follow: For each agent with a history, the function that extends its prompt by a turn, see `prompts.py`.
        workers: A worker pool to use instead of `num_threads` threads; it is closed at the end.
        partners: Frozen agents. Candidates are compared so that a policy learns from them; a frozen agent answers
            once, as in evaluation, instead of having the best of K chosen for it.

    Raises:
        TypeError: An observation is not text.
        ValueError: `choose="value"` without a tree or without continuations; the environment gave a reward that is not
            a finite number, or that `weigh` does not accept; or several replies are to be played from one state, and
            it declares that they cannot be.
        EnvironmentFailure: More than a fifth of the instances, and more than one or the only one, were dropped; or
            more than 32 environments of this process have not come back.
    """
    if env_timeout is not None and not num_threads:
        raise ValueError(
            f"env_timeout={env_timeout} with num_threads=0, expected threads: without them nothing can interrupt "
            "a call of the environment. Set num_threads=8, say, or leave env_timeout out."
        )
    if choose == "value" and not (sampling == "tree" and num_continuations):
        raise ValueError(
            f"choose='value' with sampling={sampling!r} and num_continuations={num_continuations}, expected a tree "
            "with continuations of each candidate, whose mean return is its value. Set num_continuations=1, or "
            "choose='reward'."
        )
    num_episodes, width = (1, num_candidates) if sampling == "tree" else (num_candidates, 1)
    own = range(len(rows)) if only is None else only
    if max_envs is None:
        own = list(own)
        max_envs = len(own) * num_episodes * (width if num_continuations else 1)
    workers = workers or (ThreadPool(num_threads, env_timeout) if num_threads else InlinePool())
    branches = width > 1 or num_continuations > 0 or crash_reward is not None
    env_pool = EnvPool(make_env, pool, default_seed=default_env_seed, branches=branches)
    with closing(workers):
        scheduler = RolloutScheduler(
            rows,
            num_episodes=num_episodes,
            only=own,
            env_pool=env_pool,
            engine=engine,
            workers=workers,
            judge=judge,
            weigh=weigh,
            num_candidates=width,
            num_continuations=num_continuations,
            choose=choose,
            keep_continuations=keep_continuations,
            seed=seed,
            max_envs=max_envs,
            max_turns=max_turns,
            env_timeout=env_timeout,
            crashes=None if crash_reward is None else CrashPolicy(crash_reward),
            history=ChatHistory(follow or {}),
            partners=partners,
        )
        finished = scheduler.play()
    return Rollout(
        [run.finish() for run in finished],
        scheduler.dropped,
        scheduler.num_retried,
        scheduler.num_timed_out,
        tuple(crash for run in finished for crash in run.crashed),
        scheduler.num_sampled_tokens,
    )


def merge(parts: Sequence[Rollout], *, num_rows: int) -> Rollout:
    """Combine the rollouts of several processes, each of which played other ones of the same rows.

    Raises:
        EnvironmentFailure: Too many instances were dropped on all processes together.
    """
    whole = Rollout(
        sorted((episode for part in parts for episode in part.episodes), key=attrgetter("instance", "episode")),
        dict(sorted(item for part in parts for item in part.dropped.items())),
        sum(part.retried for part in parts),
        sum(part.timed_out for part in parts),
        tuple(crash for part in parts for crash in part.crashed),
        sum(part.num_sampled_tokens for part in parts),
    )
    check_dropped(whole.dropped, num_rows)
    return whole
