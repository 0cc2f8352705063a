"""Environments that do not come back: left alone on their threads, replaced, and dropped in the end. In real time."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from pettingllms_trl.config import MultiAgentGRPOConfig
from pettingllms_trl.records import EnvironmentFailure, Request
from pettingllms_trl.rollout import Rollout, workers
from pettingllms_trl.rollout.env_pool import EnvPool
from pettingllms_trl.rollout.stepping import EnvHandle
from pettingllms_trl.rollout.workers import ThreadPool, num_abandoned_threads
from plays import play
from schedules import Patient, Tidal, babble
from third_party import Relay


LIMIT = 0.6  # seconds: several times what anything else here takes on a busy machine
HANGS = 30  # seconds: how long whoever waits for an environment that hangs would wait
ENGINES = pytest.mark.parametrize("engine", [Patient, Tidal])


def by_prompt(ticket: int, request: Request, k: int) -> str:
    return babble(0, request, k)


class Clinic:
    """Makes environments that hang where `hangs(row, steps)` says so, until they are released."""

    def __init__(self) -> None:
        self.released = threading.Event()
        self.made: list[Relay] = []
        self.closed: list[Relay] = []
        self.pool: list[Any] = []

    def play(self, hangs: Callable[[int, int], bool], engine: Any, *, num_rows: int = 6, **options: Any) -> Rollout:
        clinic = self

        class Hangs(Relay):
            def __deepcopy__(self, memo: Any) -> Any:
                twin = type(self)(self.num_turns)
                vars(twin).update({**vars(self), "written": list(self.written)})
                return twin

            def step(self, action: str | None) -> None:
                if action is not None and hangs(self.task, len(self.written)):
                    clinic.released.wait(HANGS)
                super().step(action)

            def close(self) -> None:
                clinic.closed.append(self)

        def make_env() -> Relay:
            self.made.append(Hangs())
            return self.made[-1]

        options = {"sampling": "tree", "num_candidates": 2, "num_threads": 3, "env_timeout": LIMIT, **options}
        rows = [{"seed": seed} for seed in range(num_rows)]
        return play(rows, make_env=make_env, pool=self.pool, engine=engine, seed="s", **options)


@pytest.fixture
def clinic() -> Iterator[Clinic]:
    clinic = Clinic()
    begin = time.monotonic()
    yield clinic
    clinic.released.set()
    while num_abandoned_threads() and time.monotonic() < begin + 20:
        time.sleep(0.005)
    assert num_abandoned_threads() == 0
    assert time.monotonic() - begin < HANGS - 5


def once(row: int, steps: int) -> Callable[[int, int], bool]:
    left = [1]
    return lambda task, written: (task, written) == (row, steps) and bool(left) and bool(left.pop())


@ENGINES
@pytest.mark.parametrize("steps", [0, 3])
def test_an_instance_whose_environment_hangs_is_played_anew_on_a_fresh_one(
    engine: Any, steps: int, clinic: Clinic
) -> None:
    expected = Clinic().play(lambda task, written: False, engine(by_prompt))
    assert (expected.timed_out, expected.retried) == (0, 0)
    found = clinic.play(once(2, steps), engine(by_prompt))
    assert found.episodes == expected.episodes
    assert (found.timed_out, found.retried, found.dropped) == (1, 1, {})
    assert len(clinic.made) == 7
    assert len(clinic.pool) == 6
    assert num_abandoned_threads() == 1


@ENGINES
def test_one_that_hangs_again_and_again_is_dropped_and_counted_and_the_others_are_untouched(
    engine: Any, clinic: Clinic
) -> None:
    expected = Clinic().play(lambda task, written: False, engine(by_prompt))
    found = clinic.play(lambda task, written: task == 2, engine(by_prompt))
    assert found.episodes == [episode for episode in expected.episodes if episode.instance != 2]
    assert found.dropped == {2: "TimeoutError at the instance {'seed': 2}, opener_0: it took longer than 0.6 s"}
    assert (found.timed_out, found.retried) == (3, 2)


def test_one_that_comes_back_late_is_closed_and_nothing_it_did_counts(clinic: Clinic) -> None:
    judged = []

    def judge(choice: Any) -> list[dict[str, float]]:
        judged.append((choice.row["seed"], choice.agent, choice.turn))
        return [{}] * len(choice.completions)

    found = clinic.play(once(2, 1), Patient(by_prompt), judge=judge)
    assert found.timed_out == 1
    before = list(judged)
    clinic.released.set()
    while num_abandoned_threads():
        time.sleep(0.005)
    assert judged == before
    assert len(clinic.closed) == 1
    assert clinic.closed[0] not in clinic.pool


def test_every_call_has_the_whole_time_and_reward_functions_have_no_limit(clinic: Clinic) -> None:
    class Slow(Relay):
        def step(self, action: str | None) -> None:
            time.sleep(0.4 * LIMIT)
            super().step(action)

    def judge(choice: Any) -> list[dict[str, float]]:
        time.sleep(1.2 * LIMIT if choice.agent == "opener_0" else 0.0)
        return [{}] * len(choice.completions)

    options = {"sampling": "tree", "num_candidates": 3, "num_threads": 1, "env_timeout": LIMIT}
    rows = [{"seed": 0}]
    found = play(rows, make_env=lambda: Slow(1), engine=Patient(by_prompt), judge=judge, seed="s", **options)
    assert (found.timed_out, len(found.episodes)) == (0, 1)


def test_one_that_fails_and_hangs_while_it_is_closed_is_replaced_too(clinic: Clinic) -> None:
    made: list[Relay] = []

    class Stuck(Relay):
        def step(self, action: str | None) -> None:
            if len(made) == 1:
                raise OSError("it fails")
            super().step(action)

        def close(self) -> None:
            clinic.released.wait(HANGS)

    def make_env() -> Relay:
        made.append(Stuck())
        return made[-1]

    options = {"sampling": "tree", "num_candidates": 2, "num_threads": 1, "env_timeout": LIMIT}
    found = play([{"seed": 0}], make_env=make_env, engine=Patient(by_prompt), seed="s", **options)
    assert (found.timed_out, found.retried, len(found.episodes)) == (1, 1, 1)


def test_a_rollout_that_ends_in_an_error_does_not_wait_for_who_hangs(clinic: Clinic) -> None:
    def judge(choice: Any) -> list[dict[str, float]]:
        raise ZeroDivisionError("the user's own")

    with pytest.raises(ZeroDivisionError):
        clinic.play(lambda task, written: task == 2, Patient(by_prompt), judge=judge)


def test_with_too_many_left_alone_training_stops_and_says_what_to_do(
    clinic: Clinic, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(workers, "MOST_ABANDONED", 2)
    message = "3 environments have not come back, expected at most 2.*Fix the environment.*or raise env_timeout"
    with pytest.raises(EnvironmentFailure, match=message):
        clinic.play(lambda task, written: task == 2, Patient(by_prompt), num_rows=20)


def test_threads_take_turns_and_one_left_alone_is_replaced(clinic: Clinic) -> None:
    def handle() -> EnvHandle:
        return EnvHandle({"seed": 2}, EnvPool(Relay, None, default_seed=0), time.monotonic)

    def hang() -> None:
        with hanging:
            clinic.released.wait(HANGS)

    workers, hanging = ThreadPool(1, LIMIT), handle()
    workers.submit(1, hang, hanging)
    workers.submit(2, lambda: None, handle())
    ((ticket, error),) = workers.done(block=True)
    where = "at the instance {'seed': 2}, before the first agent"
    assert (ticket, str(error)) == (1, f"TimeoutError {where}: it took longer than 0.6 s")
    assert hanging.is_abandoned
    assert workers.done(block=True) == [(2, None)]
    workers.close()


@pytest.mark.parametrize("options", [{"env_timeout": 3.0}, {"env_timeout": 0.0, "num_threads": 2}])
def test_a_limit_without_threads_or_of_nothing_is_refused(options: Any, tmp_path: Any) -> None:
    with pytest.raises(ValueError, match=r"env_timeout=.*expected seconds above 0, and threads"):
        MultiAgentGRPOConfig(str(tmp_path), use_cpu=True, bf16=False, **options)
