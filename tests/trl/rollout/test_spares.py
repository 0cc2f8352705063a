"""Spare environments: how many are at a decision when it is sampled, and what becomes of those that are not needed."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from clients import Count
from pettingllms_trl.records import Request, Sampled
from pettingllms_trl.rollout import Rollout, stepping
from plays import play
from schedules import Tidal


TIMEOUT = 20  # seconds; a test that waits so long has failed


class Road(Count):
    """Knows which actions have led to where it is; `during` is called at each reset, with its number over all."""

    metadata = {**Count.metadata, "branching": "replay"}

    def __init__(self, fleet: Fleet) -> None:
        self.fleet, self.way, self.is_made, self.interrupted = fleet, (), False, threading.Event()
        super().__init__()
        self.is_made = True

    def reset(self, seed: int | None = None, options: dict[str, Any] | None = None) -> None:
        if self.is_made:
            with self.fleet.lock:
                self.fleet.num_resets += 1
                number = self.fleet.num_resets
            self.fleet.during(self, number)
        super().reset(seed, options)
        self.way = ()

    def step(self, action: str | None) -> None:
        super().step(action)
        self.way = (*self.way, action)

    def interrupt(self) -> None:
        self.interrupted.set()

    def close(self) -> None:
        self.fleet.closed.append(self)


class Fleet:
    """Makes the environments, and plays a row in them as a tree of four candidates."""

    def __init__(self, during: Callable[[Road, int], object] = lambda env, number: None) -> None:
        self.during = during
        self.made: list[Road] = []
        self.closed: list[Road] = []
        self.pool: list[Any] = []
        self.num_resets, self.lock = 0, threading.Lock()

    def make_env(self) -> Road:
        self.made.append(Road(self))
        return self.made[-1]

    def play(self, engine: Any = None, **options: Any) -> Rollout:
        options = {"num_threads": 8, "engine": engine or Tidal(number("1235")), **options}
        tree = {"sampling": "tree", "num_candidates": 4, "make_env": self.make_env, "pool": self.pool}
        return play([{"seed": 3}], seed="s", **tree, **options)

    def in_play(self) -> list[Road]:
        at_rest = [env.unwrapped for env in self.pool]
        return [env for env in self.made if env not in at_rest]

    def check(self) -> None:
        """Each environment is in the pool, or closed."""
        at_rest = [env.unwrapped for env in self.pool]
        assert {*map(id, at_rest)} | {*map(id, self.closed)} == {*map(id, self.made)}
        assert not {*map(id, at_rest)} & {*map(id, self.closed)}


def number(texts: str) -> Callable[[int, Request, int], str]:
    return lambda ticket, request, k: texts[k]


class Waiting(Tidal):
    """Answers once so many environments are where the decision is taken, after the best reply to each one before."""

    def __init__(self, fleet: Fleet, texts: str, expected: int) -> None:
        super().__init__(number(texts))
        self.fleet, self.expected, self.found = fleet, expected, list[int]()

    def step(self, timeout: float = 0.0) -> Sequence[tuple[int, Sampled]]:
        until, way = time.monotonic() + TIMEOUT, ("5",) * len(self.waves)
        while (there := sum(env.way == way for env in self.fleet.in_play())) < self.expected:
            assert time.monotonic() < until, f"{there} are there"
            time.sleep(0.001)
        self.found.append(there)
        return super().step(timeout)


@pytest.fixture(autouse=True)
def all_slow(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every reset and step counts as slow, however quick."""
    monkeypatch.setattr(stepping, "SLOW", 0.0)


@pytest.fixture(scope="module")
def expected() -> Rollout:
    return Fleet().play(num_threads=0)


@pytest.mark.parametrize("texts", ["1235", "5123"], ids=["in a spare one", "in its own"])
@pytest.mark.parametrize(("max_envs", "there"), [(None, 4), (3, 3), (1, 1)])
def test_while_the_engine_samples_environments_are_brought_to_the_decision_as_far_as_there_is_room(
    texts: str, max_envs: int | None, there: int
) -> None:
    fleet = Fleet()
    engine = Waiting(fleet, texts, there)
    found = fleet.play(engine, max_envs=max_envs)
    assert engine.found == [there] * 4
    assert found.episodes == Fleet().play(Tidal(number(texts)), num_threads=0).episodes
    fleet.check()


@pytest.mark.parametrize("texts", ["1235", "1523", "5123"])
def test_the_episode_goes_on_in_the_environment_of_the_best_candidate(texts: str) -> None:
    fleet = Fleet()
    fleet.play(Waiting(fleet, texts, 4))
    assert fleet.num_resets == 1 + 4 * 3  # the episode's own, and three further ones for each of four decisions
    assert (len(fleet.made), fleet.closed) == (4, [])


def test_an_error_on_the_way_is_a_failure_of_the_episode(expected: Rollout) -> None:
    def fail(env: Road, number: int) -> None:
        if number == 3:
            raise ConnectionError("reset by peer")

    fleet = Fleet(fail)
    found = fleet.play()
    assert (found.episodes, found.retried, found.dropped) == (expected.episodes, 1, {})
    assert len(fleet.closed) >= 1
    fleet.check()


def test_one_that_hangs_on_the_way_is_abandoned_and_closed_once_it_comes_back(expected: Rollout) -> None:
    def hang(env: Road, number: int) -> None:
        if number == 3:
            assert env.interrupted.wait(TIMEOUT)
            raise ConnectionError("interrupted")

    fleet = Fleet(hang)
    found = fleet.play(env_timeout=1.0)
    assert (found.episodes, found.retried, found.timed_out) == (expected.episodes, 1, 1)
    until = time.monotonic() + TIMEOUT
    while len(fleet.pool) + len(fleet.closed) < len(fleet.made):
        assert time.monotonic() < until
        time.sleep(0.001)
    fleet.check()


def test_where_they_are_late_more_are_sent_and_those_left_at_the_end_are_closed(expected: Rollout) -> None:
    fleet = Fleet(lambda env, number: time.sleep(0.05))
    found = fleet.play(max_envs=8)
    assert (found.episodes, found.retried) == (expected.episodes, 0)
    assert len(fleet.made) > 4
    assert len(fleet.pool) <= 8
    fleet.check()
