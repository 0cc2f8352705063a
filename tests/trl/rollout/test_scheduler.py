"""Rollouts without barriers: who is asked when, what runs beside what, and that no order changes the episodes."""

from __future__ import annotations

import gc
import random
import threading
import time
from collections.abc import Sequence
from functools import partial
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from group_checks import check_groups
from pettingllms_envs import plan_path_v0
from pettingllms_envs.teams.functions import Game
from pettingllms_trl.records import Request, Sampled
from pettingllms_trl.rollout import Rollout
from pettingllms_trl.rollout.env_pool import EnvPool
from pettingllms_trl.rollout.stepping import EnvHandle
from pettingllms_trl.rollout.workers import InlinePool, ThreadPool
from plays import play
from schedules import Dawdlers, Patient, Tidal, Whimsical, babble, wander
from third_party import Relay


TIMEOUT = 30  # seconds; a test that waits so long has failed
PLAN_PATH = partial(plan_path_v0.env, size=4, num_turns=2)


def rollout(make_env: Any, engine: Any, *, num_rows: int = 3, num_candidates: int = 2, **options: Any) -> Rollout:
    options = {"sampling": "tree", "seed": "s", **options}
    rows = [{"seed": seed} for seed in range(num_rows)]
    return play(rows, make_env=make_env, engine=engine, num_candidates=num_candidates, **options)


# ---- No barrier -----------------------------------------------------------------------------------------------------


def test_the_others_go_on_while_one_waits_for_its_tokens() -> None:
    # Tickets 1 and 2 are answered at every step, 0 at every third: its closer speaks when they are long gone.
    engine = Patient(babble, delay=lambda ticket: 3 if ticket == 0 else 1)
    rollout(partial(Relay, 1), engine)
    assert engine.asked == [["0 o", "1 o", "2 o"], ["1 c", "2 c"], [], ["0 c"], [], []]


def test_a_free_place_is_taken_at_once_and_not_when_the_others_are_done() -> None:
    # Two places for three rows. Row 1 is over after the second step, so row 2 asks before row 0's first answer.
    engine = Patient(babble, delay=lambda ticket: 4 if ticket == 0 else 1)
    rollout(partial(Relay, 1), engine, max_envs=2)
    assert engine.asked == [["0 o", "1 o"], ["1 c"], ["2 o"], ["2 c"], ["0 c"], [], [], []]


def test_requests_of_all_roles_and_turns_are_in_the_engine_together() -> None:
    # Rows fall behind one step each; in the third step a first opener, a first closer and a second opener are asked.
    # Row i waits i + 1 steps for its first answer and one for each after it. In step 3 a second opener joins a first
    # closer, in step 4 openers and closers of two turns.
    class Falling(Patient):
        def submit(self, ticket: int, request: Request) -> None:
            self._delay = lambda ticket: 1 + ticket * (not self.asked)
            super().submit(ticket, request)

    engine = Falling(babble)
    rollout(Relay, engine)
    assert engine.asked == [
        ["0 o", "1 o", "2 o"],
        ["0 c"],
        ["0 o", "1 c"],
        ["0 c", "1 o", "2 c"],
        ["1 c", "2 o"],
        ["2 c"],
    ]


def test_an_episode_that_waits_holds_no_state_of_candidates_that_were_not_chosen() -> None:
    class Counting(Patient):
        def submit(self, ticket: int, request: Request) -> None:
            held.append(sum(type(each) is Game for each in gc.get_objects()))
            super().submit(ticket, request)

    held: list[int] = []
    gc.collect()
    before = sum(type(each) is Game for each in gc.get_objects())
    rollout(PLAN_PATH, Counting(wander), num_rows=1, num_candidates=4)
    assert len(held) > 1
    assert {each - before for each in held} == {1}


# ---- Threads --------------------------------------------------------------------------------------------------------


def test_two_environments_are_stepped_at_the_same_time() -> None:
    both = threading.Barrier(2, timeout=TIMEOUT)

    class Meets(Relay):
        def step(self, action: str | None) -> None:
            both.wait()  # breaks unless the other comes while this one is here
            super().step(action)

    found = rollout(Meets, Patient(babble), num_rows=2, num_candidates=1, num_threads=2)
    assert (len(found.episodes), found.retried) == (2, 0)


def test_an_environment_is_stepped_while_the_engine_works() -> None:
    engine_works, env_stepped = threading.Event(), threading.Event()

    class Beside(Relay):
        def step(self, action: str | None) -> None:
            if self.task == 0:
                assert engine_works.wait(TIMEOUT)
                env_stepped.set()
            super().step(action)

    class Slow(Patient):
        def step(self) -> Sequence[tuple[int, Sampled]]:
            if len(self.asked) == 1:  # row 0 has its first answer, row 1 waits for it
                engine_works.set()
                assert env_stepped.wait(TIMEOUT)
            return super().step()

    engine = Slow(babble, delay=lambda ticket: 1 + ticket)
    found = rollout(Beside, engine, num_rows=2, num_candidates=1, num_threads=1)
    assert (len(found.episodes), found.retried) == (2, 0)


def test_without_threads_everything_happens_on_the_callers() -> None:
    names = set()

    class Where(Relay):
        def step(self, action: str | None) -> None:
            names.add(threading.current_thread().name)
            super().step(action)

    rollout(Where, Patient(babble))
    assert names == {threading.current_thread().name}
    rollout(Where, Patient(babble), num_threads=1)
    assert any(name.startswith("environments") for name in names)


def test_a_crew_gives_back_what_was_done_and_what_was_raised() -> None:
    def fail() -> None:
        raise KeyError("mine")

    handle = EnvHandle({}, EnvPool(Relay, None, default_seed=0), time.monotonic)
    for workers in (InlinePool(), ThreadPool(2)):
        workers.submit(5, lambda: None, handle)
        workers.submit(6, fail, handle)
        found = list(workers.done(block=True))
        while len(found) < 2:
            found += workers.done(block=True)
        workers.close()
        (_, nothing), (_, error) = sorted(found, key=lambda done: done[0])
        assert nothing is None
        assert isinstance(error, KeyError)
        assert workers.done(block=False) == []


def test_threads_are_gone_after_a_rollout_also_after_one_that_failed() -> None:
    class Broken(Relay):
        def step(self, action: str | None) -> None:
            super().step(action)
            self.rewards["closer_0"] = float("nan")

    def at_work() -> list[str]:
        return [thread.name for thread in threading.enumerate() if thread.name.startswith("environments")]

    rollout(Relay, Patient(babble), num_threads=3)
    assert at_work() == []
    with pytest.raises(ValueError, match="must be finite"):
        rollout(Broken, Patient(babble), num_threads=3)
    assert at_work() == []


# ---- Waves ----------------------------------------------------------------------------------------------------------


class Uneven(Relay):
    """Row 1 takes two turns, the others one; each step takes a while, the first row's longest."""

    def reset(self, seed: int | None = None, options: dict[str, Any] | None = None) -> None:
        super().reset(seed, options)
        self.num_turns = 2 if seed == 1 else 1

    def step(self, action: str | None) -> None:
        time.sleep(0.003 / (1 + self.task))
        super().step(action)


@pytest.mark.parametrize("num_threads", [0, 1, 4])
@pytest.mark.parametrize(
    ("max_envs", "expected"),
    [
        (None, [["0 o", "1 o", "2 o"], ["0 c", "1 c", "2 c"], ["1 o"], ["1 c"]]),
        (2, [["0 o", "1 o"], ["0 c", "1 c"], ["1 o", "2 o"], ["1 c", "2 c"]]),
        (1, [["0 o"], ["0 c"], ["1 o"], ["1 c"], ["1 o"], ["1 c"], ["2 o"], ["2 c"]]),
    ],
)
def test_an_engine_that_works_in_waves_is_given_all_requests_together_in_their_order(
    max_envs: int | None, expected: list[list[str]], num_threads: int
) -> None:
    engine = Tidal(babble)
    rollout(Uneven, engine, max_envs=max_envs, num_threads=num_threads)
    assert engine.waves == expected


# ---- The same episodes, whatever the order --------------------------------------------------------------------------


class Jittery(Relay):
    """Each step takes a time of its own."""

    def step(self, action: str | None) -> None:
        time.sleep(random.Random(f"{self.task}{self.written}{action}").expovariate(2000))
        super().step(action)


@pytest.mark.parametrize("num_threads", [0, 1, 4])
@pytest.mark.parametrize("max_envs", [None, 3])
@pytest.mark.parametrize("sampling", ["tree", "parallel"])
@pytest.mark.parametrize(
    ("make_env", "write"), [(Jittery, babble), (PLAN_PATH, wander)], ids=["third_party", "plan_path"]
)
def test_the_order_of_answers_and_the_number_of_threads_change_no_episode(
    make_env: Any, write: Any, sampling: str, max_envs: int | None, num_threads: int
) -> None:
    options = {"num_rows": 4, "sampling": sampling, "num_candidates": 3, "num_continuations": sampling == "tree"}
    expected = rollout(make_env, Tidal(write), **options)
    engine = Whimsical(write, random.Random(num_threads))
    assert rollout(make_env, engine, max_envs=max_envs, num_threads=num_threads, **options) == expected
    check_groups(expected.episodes, num_candidates=3 if sampling == "tree" else 1)


def test_a_ticket_follows_from_the_place_so_that_an_engine_may_seed_by_it() -> None:
    def tickets(workers: Any, max_envs: int | None) -> dict[tuple[str, str], set[int]]:
        found: dict[tuple[str, str], set[int]] = {}

        class Notes(Patient):
            def submit(self, ticket: int, request: Request) -> None:
                found.setdefault((request.agent, request.prompt.messages[0]["content"]), set()).add(ticket)
                super().submit(ticket, request)

        rollout(
            Relay, Notes(babble), num_rows=4, num_candidates=3, num_continuations=2, workers=workers, max_envs=max_envs
        )
        return found

    expected = tickets(None, None)
    assert len({ticket for used in expected.values() for ticket in used}) > 4 * 3 * 2
    for seed in range(3):
        assert tickets(Dawdlers(random.Random(seed)), 2 + seed) == expected


@settings(max_examples=60, deadline=None)
@given(
    seed=st.integers(0, 2**32),
    num_rows=st.integers(1, 5),
    num_candidates=st.integers(1, 3),
    num_continuations=st.integers(0, 2),
    by_value=st.booleans(),
    max_envs=st.none() | st.integers(1, 6),
    sampling=st.sampled_from(["tree", "parallel"]),
    waves=st.booleans(),
)
def test_every_schedule_of_answers_and_steps_ends_with_every_place_once(
    seed: int,
    num_rows: int,
    num_candidates: int,
    num_continuations: int,
    by_value: bool,
    max_envs: int | None,
    sampling: str,
    waves: bool,
) -> None:
    rng = random.Random(seed)
    options = {
        "num_rows": num_rows,
        "num_candidates": num_candidates,
        "num_continuations": num_continuations,
        "sampling": sampling,
        "choose": "value" if by_value and num_continuations and sampling == "tree" else "reward",
        "keep_continuations": True,
    }
    engine = Tidal(babble) if waves else Whimsical(babble, rng)
    found = rollout(Relay, engine, workers=Dawdlers(rng), max_envs=max_envs, **options)
    num_episodes = 1 if sampling == "tree" else num_candidates
    places = [(episode.instance, episode.episode) for episode in found.episodes]
    assert places == [(i, e) for i in range(num_rows) for e in range(num_episodes)]
    assert found == rollout(Relay, Patient(babble), **options)
