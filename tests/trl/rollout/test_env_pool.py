"""Each row is played in an environment of its own, whatever the function that makes environments returns."""

from __future__ import annotations

import copy
import itertools
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from datasets import Dataset
from pettingzoo import AECEnv
from pettingzoo.utils import BaseWrapper

from pettingllms_trl import MultiAgentGRPOTrainer
from pettingllms_trl.rollout import Rollout
from pettingllms_trl.rollout.branch_probe import Branching
from pettingllms_trl.rollout.env_checks import check_envs
from pettingllms_trl.rollout.env_pool import EnvPool
from plays import play
from schedules import Patient, babble
from short_runs import settings
from third_party import Relay


AGAIN = r"env returned a \w+ that it had returned before and .* expected another one at every call, .* Make it inside"
TREE = Branching.of(sampling="tree", num_continuations=0, crash_reward=None)


def rollout(make_env: Any, *, sampling: Any = "tree", num_rows: int = 2, **options: Any) -> Rollout:
    rows = [{"seed": seed} for seed in range(num_rows)]
    options = {"num_candidates": 2, "seed": "s", "sampling": sampling, **options}
    return play(rows, make_env=make_env, engine=Patient(babble), **options)


def always(env: AECEnv) -> Callable[[], AECEnv]:
    return lambda: env


class WithoutUnwrapped(Relay):
    """A wrapper around something that is no environment."""

    @property
    def unwrapped(self) -> Any:
        raise AttributeError("unwrapped")


class Equal(Relay):
    """As a dataclass is: equal to others of its kind, and so without a hash."""

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Equal)

    __hash__ = None  # type: ignore[assignment]


RELAY, BARE, EQUAL = Relay(), WithoutUnwrapped(), Equal()


@pytest.mark.parametrize(
    "make_env",
    [always(RELAY), lambda: BaseWrapper(RELAY), itertools.cycle([RELAY, BaseWrapper(RELAY)]).__next__, always(EQUAL)],
    ids=["bare", "a new wrapper each time", "bare and wrapped", "without a hash"],
)
@pytest.mark.parametrize("sampling", ["tree", "parallel"])
@pytest.mark.parametrize("num_threads", [0, 2])
def test_an_environment_that_is_in_play_is_not_taken_again(make_env: Any, sampling: str, num_threads: int) -> None:
    with pytest.raises(ValueError, match=AGAIN):
        rollout(make_env, sampling=sampling, num_threads=num_threads)


def test_one_that_does_not_say_what_it_wraps_is_compared_itself() -> None:
    env_pool = EnvPool(always(BARE), None, default_seed=0)
    env_pool.acquire("")
    with pytest.raises(ValueError, match=AGAIN):
        env_pool.acquire("")


def test_two_names_do_not_share_one_environment() -> None:
    with pytest.raises(ValueError, match=AGAIN):
        check_envs({"a": always(RELAY), "b": always(RELAY)}, 42, [])


def test_a_replayed_one_that_comes_again_is_refused_when_the_trainer_is_created() -> None:
    class Replayed(Relay):
        metadata = {**Relay.metadata, "branching": "replay"}

    with pytest.raises(ValueError, match=AGAIN):
        check_envs(always(Replayed()), 42, [], TREE)


@pytest.mark.parametrize("options", [{"max_envs": 1}, {"num_rows": 1}], ids=["one at a time", "one row"])
def test_one_environment_is_enough_where_one_is_in_play(options: dict[str, Any]) -> None:
    fresh, one = rollout(Relay, **options), rollout(always(Relay()), **options)
    assert one.episodes == fresh.episodes


def test_released_environments_are_handed_out_again_by_the_pool() -> None:
    made = iter([Relay(), Relay()])
    pool: list[AECEnv] = []
    first = rollout(made.__next__, pool=pool)
    assert len(pool) == 2
    assert rollout(made.__next__, pool=pool).episodes == first.episodes
    with pytest.raises(ValueError, match=AGAIN):  # those that are idle are in use, too
        EnvPool(always(pool[0]), pool, default_seed=0).acquire("", fresh=True)


def test_copies_of_an_environment_may_share_what_they_wrap() -> None:
    class Sharing(BaseWrapper):
        """Copies are this wrapper again, around the same; of which there is nothing to see in a game of one reply."""

        def __deepcopy__(self, memo: Any) -> Any:
            return Sharing(self.env)

    first = Sharing(Relay())
    pool = EnvPool(Relay, [first, copy.deepcopy(first)], default_seed=0)
    assert pool.acquire("").unwrapped is pool.acquire("").unwrapped is first.unwrapped


def test_equal_environments_are_different_ones() -> None:
    assert len(rollout(Equal).episodes) == 2


def test_the_id_of_an_environment_that_is_gone_may_be_anothers() -> None:
    env_pool = EnvPool(Relay, None, default_seed=0)
    ids = {id(env_pool.acquire("")) for _ in range(100)}
    assert len(ids) < 100  # else this shows nothing


class Breaks(Relay):
    """Fails at its first step of all; once closed, it is given back to whoever makes environments."""

    def __init__(self, idle: list[AECEnv]) -> None:
        super().__init__()
        self.idle, self.has_failed = idle, False

    def __deepcopy__(self, memo: Any) -> Any:
        raise AssertionError("copied, though one reply is played at a time")

    def step(self, action: str | None) -> None:
        if not self.has_failed:
            self.has_failed = True
            raise ConnectionError("reset by peer")
        super().step(action)

    def close(self) -> None:
        self.idle.append(self)


def test_a_closed_environment_may_be_returned_again() -> None:
    idle: list[AECEnv] = []
    idle.append(Breaks(idle))
    played = rollout(idle.pop, num_rows=1, num_candidates=1)
    assert (played.retried, len(played.episodes)) == (1, 1)


def test_closed_environments_may_be_returned_again_to_the_check_of_branching() -> None:
    class Random(Relay):
        """Leads elsewhere each time, so that fresh environments are compared."""

        numbers = itertools.count()

        def step(self, action: str | None) -> None:
            super().step(action)
            self.rewards = {agent: float(next(self.numbers)) for agent in self.rewards}

        def close(self) -> None:
            idle.append(self)

    idle: list[AECEnv] = []
    with pytest.warns(UserWarning, match="leads elsewhere when the same replies are played again"):
        check_envs(lambda: idle.pop() if idle else Random(), 42, [], TREE)


def test_evaluation_and_training_take_no_environment_twice(model_path: str, tmp_path: Path) -> None:
    rows = Dataset.from_dict({"seed": range(8)})
    env = Relay()
    trainer = MultiAgentGRPOTrainer(model_path, always(env), settings(tmp_path), rows, rows)
    for call in (trainer.evaluate, trainer.train, partial(trainer.play, rows)):
        with pytest.raises(ValueError, match=AGAIN):
            call()
