"""Plays many environments at once, as trees or in parallel, and returns episodes. Needs no torch.

`play` asks for tokens through an `Engine`, and knows neither models nor policies. No instance waits for another: as
soon as one's tokens are there it is stepped (on a thread, beside the engine), and as soon as it knows what to ask next
the engine is asked. Only an engine that works in waves is given all instances' requests together.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field, fields
from functools import partial
from typing import Literal, Protocol

from pettingzoo import AECEnv

from pettingllms_trl.records import Engine, Episode, Judge, Row
from pettingllms_trl.rollout.branching import RewardWeigher
from pettingllms_trl.rollout.env_pool import EnvPool, MakeEnv
from pettingllms_trl.rollout.prompts import ChatHistory, Follow
from pettingllms_trl.rollout.scheduler import RolloutScheduler
from pettingllms_trl.rollout.stepping import CrashPolicy
from pettingllms_trl.rollout.timeouts import check_dropped
from pettingllms_trl.rollout.workers import Caller, Threads, WorkerPool


@dataclass(frozen=True, slots=True)
class Rollout:
    """What playing the rows gave.

    Args:
        episodes: In the order of rows, then of episodes; none of an instance that was dropped.
        dropped: Why an instance was dropped, by its index: its environment failed again and again.
        retried: How often an instance was begun anew on a fresh environment, because one had failed.
        timed_out: How often an environment took longer than it may, and was left alone on its thread.
        crashed: For each reply in the episodes that crashed its environment and was charged for it, what was raised.
        num_sampled_tokens: In all completions, also of continuations and of what was begun anew or dropped.
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
    default_env_seed: int = 0
    max_envs: int | None = None
    max_turns: int | None = None
    num_threads: int = 0
    env_timeout: float | None = None
    crash_reward: float | None = None


class EpisodeSource(Protocol):
    """Turns rows of the data set into episodes, sampled by an engine."""

    def play(
        self,
        rows: Sequence[Row],
        engine: Engine,
        options: RolloutOptions,
        *,
        seed: str,
        only: Collection[int] | None = None,
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
        only: Collection[int] | None = None,
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
    only: Collection[int] | None = None,
    make_env: MakeEnv | Mapping[str, MakeEnv],
    pool: list[AECEnv] | Mapping[str, list[AECEnv]] | None = None,
    engine: Engine,
    judge: Judge | None = None,
    weigh: RewardWeigher | None = None,
    sampling: Literal["tree", "parallel"],
    num_candidates: int,
    num_continuations: int = 0,
    seed: str,
    default_env_seed: int = 0,
    max_envs: int | None = None,
    max_turns: int | None = None,
    num_threads: int = 0,
    env_timeout: float | None = None,
    crash_reward: float | None = None,
    follow: Mapping[str, Follow | None] | None = None,
    crew: WorkerPool | None = None,
    partners: Collection[str] = (),
) -> Rollout:
    """Play every row: one tree each, or `num_candidates` independent episodes each.

    An environment that raises is thrown away, and its instance played anew on a fresh one, twice at most; then the
    instance is dropped with all its episodes, never scored.

    Args:
        rows: Instances. `row["seed"]` seeds the environment, the other fields are its reset options.
        only: Indices of the rows that are played here, where others play the rest. What follows from a row's place,
            in tickets, ties and records, is as if all were. `None`: all.
        make_env: Called as many times as environments are in play at once; they are reset and used again. It may be
            called on a thread, but never on two at once. Or such a function for each name that rows have in their
            field `environment`.
        pool: Environments made before, used first; all that were in play are left in it. Of several kinds, a pool by
            name for each.
        engine: Samples the completions.
        judge: Rewards beside the environment's, added before the best candidate is chosen. With `num_threads` it is
            called on several threads at once.
        weigh: What every agent is paid for a step, the judge's rewards included, before the best candidate is chosen.
        sampling: `"tree"`: K candidates for each decision, the best is played on, ties broken by chance.
            `"parallel"`: K episodes of each row, one candidate for each decision.
        num_candidates: K.
        num_continuations: How often each candidate's branch is played to its end, for `Candidate.continuations`.
        seed: Names the rollout. Ties are broken by it and the decision's place alone, whatever else is in play.
        default_env_seed: Seeds the environment where a row has no seed.
        max_envs: Bound on the environments in play at once, and so on those left in a pool. `None`: all episodes; with
            continuations K times as many, so that the engine has as much to do with them as with candidates. Where
            candidates are stepped at once, `num_threads` environments more at most.
        max_turns: An episode ends when an agent would decide more often.
        num_threads: Environments are stepped on so many threads beside the engine; of slow ones that can be restored
            also the candidates of one decision at once, each in one of its own, see `stepping.py`. 0: on the
            caller's, in a fixed order, so that an engine which samples by one stream of random numbers repeats itself.
            Threads are for environments that wait (a sandbox, a server): one that computes in Python holds the
            interpreter's lock meanwhile, and with it the engine's loop.
        env_timeout: Seconds that one call of an environment may take, on threads; then it has failed. Its thread
            cannot be ended: it is left alone, and another takes its place. Neither `make_env` nor `judge` has a limit.
        crash_reward: What an agent gets for a reply that crashes its environment again and again, see `crashes.py`.
            `None`: such a crash is a failure of the environment like any other.
        follow: How conversations go on in tokens, for each agent that remembers its own, see `prompts.py`.
        crew: Steps the environments in place of those threads, and is closed at the end; for a clock of its own.
        partners: Agents who do not learn. Candidates are compared so that their policy learns from it; a partner
            answers once, as it would when it is evaluated, instead of having the best of K picked for it.

    Raises:
        TypeError: An agent is shown something that is not text.
        ValueError: The environment gave a reward that is not a finite number, or one that `weigh` refuses.
        EnvironmentFailure: More than a fifth of the instances had to be dropped, and more than one or the only one; or
            more than 32 environments of this process have not come back.
    """
    if env_timeout is not None and not num_threads:
        raise ValueError(
            f"env_timeout={env_timeout} with num_threads=0, expected threads: without them nobody is there to look at "
            "the clock while an environment is at work. Set num_threads, or leave env_timeout out."
        )
    num_episodes, width = (1, num_candidates) if sampling == "tree" else (num_candidates, 1)
    places = [(i, e) for i in range(len(rows)) for e in range(num_episodes)]
    own = range(len(rows)) if only is None else only
    crew = crew or (Threads(num_threads, env_timeout) if num_threads else Caller())
    stock = EnvPool(make_env, pool, default_seed=default_env_seed)
    with closing(crew):
        table = RolloutScheduler(
            rows,
            places,
            only=own,
            stock=stock,
            engine=engine,
            crew=crew,
            judge=judge,
            weigh=weigh,
            width=width,
            num_continuations=num_continuations,
            seed=seed,
            max_envs=max_envs or sum(i in own for i, _ in places) * (width if num_continuations else 1),
            max_turns=max_turns,
            env_timeout=env_timeout,
            crashes=None if crash_reward is None else CrashPolicy(partial(stock.take, fresh=True), crash_reward),
            memory=ChatHistory(follow or {}),
            partners=partners,
        )
        ended = table.play()
    return Rollout(
        [run.finish() for run in ended],
        table.dropped,
        table.num_retried,
        table.num_timed_out,
        tuple(crash for run in ended for crash in run.crashed),
        table.num_sampled_tokens,
    )


def merge(parts: Sequence[Rollout], *, num_rows: int) -> Rollout:
    """What several processes have played of the same rows, each its own share of them, in the order of the shares.

    Raises:
        EnvironmentFailure: Too many instances had to be dropped, of all of them together.
    """
    whole = Rollout(
        [episode for part in parts for episode in part.episodes],
        {instance: reason for part in parts for instance, reason in part.dropped.items()},
        sum(part.retried for part in parts),
        sum(part.timed_out for part in parts),
        tuple(crash for part in parts for crash in part.crashed),
        sum(part.num_sampled_tokens for part in parts),
    )
    check_dropped(whole.dropped, num_rows)
    return whole
