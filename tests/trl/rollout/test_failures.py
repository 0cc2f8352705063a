"""Environments that fail: replaced and played anew, or dropped with all that hangs on them, and never scored."""

from __future__ import annotations

import copy
import random
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pettingzoo import AECEnv
from pettingzoo.utils import BaseWrapper

from pettingllms_envs import plan_path_v0
from pettingllms_trl.records import EnvironmentFailure, Request
from pettingllms_trl.rollout import Rollout
from plays import play
from schedules import Dawdlers, Holding, Patient, Tidal, Whimsical, babble, wander
from third_party import Relay


PLAN_PATH = partial(plan_path_v0.env, size=4, num_turns=2)
METHODS = ("reset", "observe", "step", "infos")


class Breaks(BaseWrapper):
    """Raises where `breaks(instance, method)` says so. An environment that has failed may only be closed."""

    def __init__(self, env: AECEnv, breaks: Callable[[int, str], bool], closed: list[Breaks]) -> None:
        super().__init__(env)
        self.breaks = breaks
        self.closed = closed
        self.instance = -1
        self.failed = False

    def __deepcopy__(self, memo: Any) -> Breaks:
        copied = type(self)(copy.deepcopy(self.env, memo), self.breaks, self.closed)
        copied.instance = self.instance
        return copied

    def may_break(self, method: str) -> None:
        assert not self.failed, f"{method}() of an environment that has failed"
        if self.breaks(self.instance, method):
            self.failed = True
            raise OSError(f"{method} failed")

    def reset(self, seed: int | None = None, options: dict[str, Any] | None = None) -> None:
        assert seed is not None
        self.instance = seed
        self.may_break("reset")
        super().reset(seed, options)

    def observe(self, agent: str) -> Any:
        self.may_break("observe")
        return super().observe(agent)

    def step(self, action: str | None) -> None:
        self.may_break("step")
        super().step(action)

    @property
    def infos(self) -> Any:
        self.may_break("infos")
        return self.env.infos

    def close(self) -> None:
        self.closed.append(self)


class BreaksRestorable(Breaks):
    """Around an environment that makes snapshots."""

    def snapshot(self) -> Any:
        return self.instance, self.env.snapshot()

    def restore(self, snapshot: Any) -> None:
        self.instance, inner = snapshot
        self.env.restore(inner)


class Shop:
    """Makes environments and keeps them all."""

    def __init__(self, make_env: Callable[[], AECEnv], breaks: Callable[[int, str], bool]) -> None:
        self.made: list[Breaks] = []
        self.closed: list[Breaks] = []
        self.pool: list[AECEnv] = []
        self._make_env, self._breaks = make_env, breaks

    def __call__(self) -> Breaks:
        env = self._make_env()
        kind = BreaksRestorable if hasattr(env, "snapshot") else Breaks
        self.made.append(kind(env, self._breaks, self.closed))
        return self.made[-1]

    def play(self, engine: Any, *, num_rows: int = 4, **options: Any) -> Rollout:
        options = {"sampling": "tree", "num_candidates": 2, **options}
        rows = [{"seed": seed} for seed in range(num_rows)]
        return play(rows, make_env=self, pool=self.pool, engine=engine, seed="s", **options)


def never(instance: int, method: str) -> bool:
    return False


def planned(plan: dict[tuple[int, str], set[int]]) -> Callable[[int, str], bool]:
    """Break at these calls of a method at an instance, counted from 0 over all environments that play it."""
    calls: dict[tuple[int, str], int] = {}

    def breaks(instance: int, method: str) -> bool:
        place = instance, method
        calls[place] = calls.get(place, -1) + 1
        return calls[place] in plan.get(place, ())

    return breaks


def by_prompt(ticket: int, request: Request, k: int) -> str:
    """The ticket is of no matter: who is played anew asks under another, and shall be told the same."""
    return babble(0, request, k)


GAMES = pytest.mark.parametrize(
    ("make_env", "write"),
    [(Relay, by_prompt), (PLAN_PATH, lambda ticket, request, k: wander(0, request, k))],
    ids=["third_party", "plan_path"],
)


# ---- Played anew ----------------------------------------------------------------------------------------------------


@GAMES
@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("num_threads", [0, 3])
def test_an_instance_whose_environment_failed_is_played_anew_on_a_fresh_one(
    make_env: Any, write: Any, method: str, num_threads: int
) -> None:
    expected = Shop(make_env, never).play(Patient(write))
    # Once at the very beginning, and once in the middle of the second attempt (`reset` is called once an attempt).
    shop = Shop(make_env, planned({(2, method): {0, 1 if method == "reset" else 3}}))
    found = shop.play(Patient(write), num_threads=num_threads)
    assert found.episodes == expected.episodes
    assert (found.retried, found.dropped) == (2, {})
    assert len(shop.made) == 4 + 2
    assert len(shop.pool) == 4
    assert len(shop.closed) == 2
    assert not set(map(id, shop.closed)) & set(map(id, shop.pool))
    if make_env is PLAN_PATH:  # a third-party one may have failed in a copy
        assert all(env.failed for env in shop.closed)


@settings(max_examples=60, deadline=None)
@given(
    plan=st.lists(st.tuples(st.sampled_from(METHODS), st.integers(0, 12)), max_size=2),
    second=st.lists(st.tuples(st.sampled_from(METHODS), st.integers(0, 12)), max_size=2),
    seed=st.integers(0, 2**32),
    num_continuations=st.integers(0, 1),
    by_value=st.booleans(),
    max_envs=st.none() | st.integers(1, 4),
)
def test_wherever_it_fails_the_episodes_are_those_of_a_run_without_failure(
    plan: list[tuple[str, int]],
    second: list[tuple[str, int]],
    seed: int,
    num_continuations: int,
    by_value: bool,
    max_envs: int | None,
) -> None:
    calls = {(row, method): set[int]() for row in (0, 2) for method in METHODS}
    for row, places in ((0, plan), (2, second)):
        for method, call in places:
            calls[row, method].add(call)
    options: dict[str, Any] = {"num_continuations": num_continuations, "keep_continuations": True}
    options["choose"] = "value" if by_value and num_continuations else "reward"
    expected = Shop(Relay, never).play(Patient(by_prompt), **options)
    rng = random.Random(seed)
    found = Shop(Relay, planned(calls)).play(
        Whimsical(by_prompt, rng), workers=Dawdlers(rng), max_envs=max_envs, **options
    )
    assert found.episodes == expected.episodes
    assert found.dropped == {}


def test_an_environment_that_cannot_even_be_closed_is_replaced_all_the_same() -> None:
    class Stuck(Breaks):
        def close(self) -> None:
            raise RuntimeError("it will not close")

    class StuckShop(Shop):
        def __call__(self) -> Breaks:
            breaks = never if self.made else planned({(0, "step"): {0}})
            self.made.append(Stuck(Relay(), breaks, self.closed))
            return self.made[-1]

    found = StuckShop(Relay, never).play(Patient(by_prompt))
    assert (len(found.episodes), found.retried) == (4, 1)


# ---- Dropped --------------------------------------------------------------------------------------------------------


@GAMES
@pytest.mark.parametrize("num_threads", [0, 3])
def test_an_instance_that_fails_three_times_is_dropped_and_the_others_are_untouched(
    make_env: Any, write: Any, num_threads: int
) -> None:
    whole = Shop(make_env, never).play(Tidal(write), num_rows=10)
    shop = Shop(make_env, lambda instance, method: (instance, method) == (3, "step"))
    found = shop.play(Tidal(write), num_rows=10, num_threads=num_threads)
    assert found.episodes == [episode for episode in whole.episodes if episode.instance != 3]
    assert found.dropped == {3: "OSError at the instance {'seed': 3}: step failed"}
    assert found.retried == 2
    assert len(shop.closed) == 3
    assert len(shop.pool) == 9


@pytest.mark.parametrize("num_threads", [0, 3])
def test_one_episode_that_fails_three_times_takes_all_episodes_of_its_instance_along(num_threads: int) -> None:
    def write(ticket: int, request: Request, k: int) -> str:
        return "BOOM" if ticket % 30 == 3 * 3 + 1 else babble(0, request, k)  # the second of row 3's three episodes

    class Explosive(Relay):
        def step(self, action: str | None) -> None:
            if action == "BOOM":
                raise OSError("it went off")
            super().step(action)

    shop = Shop(Explosive, never)
    found = shop.play(Patient(write), sampling="parallel", num_candidates=3, num_rows=10, num_threads=num_threads)
    assert [(e.instance, e.episode) for e in found.episodes] == [(i, e) for i in range(10) if i != 3 for e in range(3)]
    assert list(found.dropped) == [3]
    assert found.retried == 2
    assert len(shop.pool) == 3 * 10 - 1


def test_what_a_dropped_instance_had_asked_for_is_not_played() -> None:
    steps = []

    class Notes(Relay):
        def step(self, action: str | None) -> None:
            steps.append(self.task)
            if action == "BOOM":
                raise OSError("it went off")
            super().step(action)

    # Two episodes of a row: the first blows up at once and thrice, while the second still waits for its tokens.
    engine = Patient(
        lambda ticket, request, k: "AZ" if ticket == 3 else "BOOM" * (ticket % 4 == 2) or "ZA",
        delay=lambda ticket: 9 if ticket == 3 else 1,
    )
    shop = Shop(Notes, never)
    found = shop.play(engine, sampling="parallel", num_rows=2)
    assert list(found.dropped) == [1]
    assert steps.count(1) == 3
    assert len(engine.asked) == 9
    assert len(shop.pool) == 3


def test_an_environment_that_fails_after_its_instance_was_dropped_counts_no_more() -> None:
    # Row 1's second episode (tickets 3, 7, 11) fails thrice while the first one's step (ticket 2) is still at work.
    shop = Shop(Relay, lambda instance, method: (instance, method) == (1, "step"))
    found = shop.play(Patient(by_prompt), sampling="parallel", num_rows=2, workers=Holding(2))
    assert (list(found.dropped), found.retried) == ([1], 2)
    assert len(shop.closed) == 4


@pytest.mark.parametrize(("num_rows", "most"), [(1, 0), (2, 1), (5, 1), (9, 1), (10, 2), (20, 4)])
@pytest.mark.parametrize("num_threads", [0, 3])
def test_more_than_a_fifth_dropped_raises_the_failure_with_its_cause(
    num_rows: int, most: int, num_threads: int
) -> None:
    def some_break(number: int) -> Shop:
        return Shop(Relay, lambda instance, method: instance < number and method == "observe")

    found = some_break(most).play(Tidal(by_prompt), num_rows=num_rows, num_threads=num_threads)
    assert sorted(found.dropped) == list(range(most))
    with pytest.raises(EnvironmentFailure, match=r"OSError at the instance \{'seed': \d+\}: observe failed") as caught:
        some_break(most + 1).play(Tidal(by_prompt), num_rows=num_rows, num_threads=num_threads)
    assert isinstance(caught.value.__cause__, OSError)


# ---- Not the environment's failure ----------------------------------------------------------------------------------


@pytest.mark.parametrize("num_threads", [0, 3])
def test_a_reward_function_that_raises_ends_the_rollout_at_once(num_threads: int) -> None:
    def judge(choice: Any) -> list[dict[str, float]]:
        raise ZeroDivisionError("the user's own")

    shop = Shop(Relay, never)
    with pytest.raises(ZeroDivisionError, match="the user's own"):
        shop.play(Tidal(by_prompt), judge=judge, num_threads=num_threads)
    assert len(shop.made) == 4
    assert shop.closed == []


@pytest.mark.parametrize("num_threads", [0, 3])
@pytest.mark.parametrize("value", [float("nan"), float("-inf")])
def test_a_reward_that_is_not_finite_ends_the_rollout_at_once(value: float, num_threads: int) -> None:
    class Broken(Relay):
        def step(self, action: str | None) -> None:
            super().step(action)
            self.rewards["opener_0"] = value

    shop = Shop(Broken, never)
    with pytest.raises(ValueError, match=r"the environment gave .* after 'opener_0' said .*must be finite"):
        shop.play(Tidal(by_prompt), num_threads=num_threads)
    assert len(shop.made) == 4


@pytest.mark.parametrize("num_threads", [0, 3])
def test_an_observation_that_is_not_text_ends_the_rollout_at_once(num_threads: int) -> None:
    class Mute(Relay):
        def observe(self, agent: str) -> Any:
            return [1, 2]

    shop = Shop(Mute, never)
    with pytest.raises(TypeError, match="expected text"):
        shop.play(Tidal(by_prompt), num_threads=num_threads)
    assert len(shop.made) == 4
