"""Plays many environments concurrently, as trees or in parallel, and returns episodes. Needs no torch."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, fields, replace
from functools import partial
from operator import attrgetter
from typing import Protocol

from pettingzoo import AECEnv

from pettingllms_trl.records import DataRow, Engine, Judge, Rollout, RolloutOptions
from pettingllms_trl.rollout.branching import RewardWeigher, scored
from pettingllms_trl.rollout.env_pool import EnvPool, MakeEnv
from pettingllms_trl.rollout.episode import Rules
from pettingllms_trl.rollout.loop import RolloutLoop, check_dropped
from pettingllms_trl.rollout.prompts import ChatHistory, ExtendPrompt
from pettingllms_trl.rollout.workers import InlinePool, ThreadPool, WorkerPool


class EpisodeSource(Protocol):
    """Turns rows of the data set into episodes, sampled by an engine."""

    def play(
        self,
        rows: Sequence[DataRow],
        engine: Engine,
        options: RolloutOptions,
        *,
        seed: str,
        only: Iterable[int] | None = None,
        judge: Judge | None = None,
        partners: Collection[str] = (),
    ) -> Rollout:
        """See [`play`], whose arguments these are."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EnvironmentSource:
    """An [`EpisodeSource`] of PettingZoo environments, which the pool keeps from one call to the next."""

    make_env: MakeEnv | Mapping[str, MakeEnv]
    pool: Mapping[str, list[AECEnv]]
    weigh: RewardWeigher | None = None
    extensions: Mapping[str, ExtendPrompt | None] | None = None
    unplayed: Mapping[str, Collection[str]] | None = None

    @property
    def play(self) -> Callable[..., Rollout]:
        return partial(play, **{each.name: getattr(self, each.name) for each in fields(self)})


def play(
    rows: Sequence[DataRow],
    engine: Engine,
    options: RolloutOptions,
    *,
    make_env: MakeEnv | Mapping[str, MakeEnv],
    seed: str,
    only: Iterable[int] | None = None,
    pool: list[AECEnv] | Mapping[str, list[AECEnv]] | None = None,
    judge: Judge | None = None,
    weigh: RewardWeigher | None = None,
    extensions: Mapping[str, ExtendPrompt | None] | None = None,
    unplayed: Mapping[str, Collection[str]] | None = None,
    partners: Collection[str] = (),
    workers: WorkerPool | None = None,
) -> Rollout:
    """Play every row: one tree each, or `num_candidates` independent episodes each.

    If an environment raises, its instance is restarted in a fresh one, at most twice; then it is dropped with all its
    episodes, and never scored.

    Args:
        rows: Instances. `row["seed"]` seeds the environment, the other fields are its reset options.
        make_env: Called once for each environment in play at the same time, which are reset and reused; perhaps on a
            thread, but never on two at the same time. With several environments, a function for each name in the rows'
            field `environment`.
        seed: Names the rollout. Ties depend only on it and on the decision's place, not on what else is in play.
        only: Indices of the rows that this process plays, as if all were played here; the next one is taken when
            `max_envs` leaves room for it, so that an iterator may depend on what other processes have taken by then.
            `None`: all.
        pool: Environments made before, used first; all end up in it. With several environments, a pool for each name.
        judge: Rewards added to the environment's before the best candidate is chosen. With `num_threads` it is called
            on several threads concurrently.
        weigh: Computes every agent's reward for a step, the judge's included, before the best candidate is chosen.
        extensions: For each agent with a history, the function that extends its prompt by a turn, see `prompts.py`.
        unplayed: Fields of rows that are no reset options, by the environment's name: the judge alone reads them.
        partners: Frozen agents, who answer once, as in evaluation, instead of having the best of K chosen for them.
        workers: A worker pool to use instead of `num_threads` threads; it is closed at the end.

    Raises:
        ValueError: The environment gave a reward that is not a finite number, or that `weigh` does not accept; or
            several replies are to be played from one state, and it declares that they cannot be.
        EnvironmentFailure: More than a fifth of the instances, and more than one or the only one, were dropped; or
            more than 32 environments of this process have not come back.
    """
    own = range(len(rows)) if only is None else only
    if options.max_envs is None:
        own = list(own)
        options = replace(options, max_envs=len(own) * options.num_episodes * options.num_siblings)
    score = partial(scored, judge=judge, weigh=weigh)
    rules = Rules(options=options, seed=seed, score=score, partners=partners, history=ChatHistory(extensions or {}))
    branches = options.num_siblings > 1 or options.num_continuations > 0 or options.crash_reward is not None
    env_pool = EnvPool(make_env, pool, default_seed=options.default_env_seed, branches=branches, unplayed=unplayed)
    if workers is None:
        workers = ThreadPool(options.num_threads, options.env_timeout) if options.num_threads else InlinePool()
    with closing(workers):
        return RolloutLoop(rows, own, rules, env_pool, engine, workers).play()


def merge(parts: Sequence[Rollout], *, num_rows: int) -> Rollout:
    """Combine the rollouts of several processes, each of other rows. Raises `EnvironmentFailure` as `play`."""
    whole = Rollout(
        sorted((episode for part in parts for episode in part.episodes), key=attrgetter("instance", "episode")),
        dict(sorted(item for part in parts for item in part.dropped.items())),
        sum(part.retried for part in parts),
        sum(part.timed_out for part in parts),
        tuple(crash for part in parts for crash in part.crashed),
        sum(part.num_sampled_tokens for part in parts),
        sum(part.num_failed for part in parts),
    )
    if whole.dropped:
        check_dropped(whole.dropped, num_rows)
    return whole
