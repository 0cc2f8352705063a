"""Several engines as one: who is asked, who waits for whom, and what is done elsewhere in the meantime."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

import pytest

from pettingllms_trl.engines.api import ApiEngine, ask_sequentially
from pettingllms_trl.engines.batched import BatchedEngine
from pettingllms_trl.engines.router import EngineRouter
from pettingllms_trl.records import Completion, Prompt, Request, Sampled
from plays import play
from schedules import Patient, Tidal, babble
from third_party import Relay


HELLO = [{"role": "user", "content": "Hello"}]


class Opened:
    """A rollout begins and ends; what it was called is kept."""

    rollouts: list[str]

    @contextmanager
    def rollout(self, name: str) -> Any:
        self.rollouts = [*getattr(self, "rollouts", []), name]
        yield


class Flow(Opened, Patient):
    pass


class Wave(Opened, Tidal):
    pass


def requests(*tickets: int, agent: str) -> list[tuple[int, Request]]:
    return [(ticket, Request(agent, Prompt(HELLO), 1)) for ticket in tickets]


def submit(engine: Any, *asked: tuple[int, Request]) -> None:
    for ticket, request in asked:
        engine.submit(ticket, request)


def test_each_request_goes_to_its_agents_engine_and_each_engine_is_opened_once() -> None:
    one, other = Flow(babble), Flow(babble)
    several = EngineRouter({"a_0": one, "a_1": one, "b_0": other})
    with several.rollout("0/3"):
        submit(several, *requests(0, agent="a_0"), *requests(1, agent="a_1"), *requests(2, agent="b_0"))
        assert sorted(ticket for ticket, _ in several.step()) == [0, 1, 2]
    assert (one.rollouts, other.rollouts) == (["0/3"], ["0/3"])
    assert (one.asked, other.asked) == ([["0 a", "1 a"]], [["2 b"]])


def test_no_engine_waits_for_a_slower_one() -> None:
    quick, slow = Flow(babble), Flow(babble, delay=lambda ticket: 5)
    several = EngineRouter({"quick": quick, "slow": slow})
    with several.rollout("r"):
        submit(several, *requests(0, agent="quick"), *requests(1, agent="slow"))
        order = []
        for number in range(5):
            for ticket, _ in several.step():
                order.append((number, ticket))
                if ticket != 1:
                    submit(several, *requests(ticket + 2, agent="quick"))
    assert order == [(0, 0), (1, 2), (2, 4), (3, 6), (4, 8), (4, 1)]


def test_an_engine_without_requests_is_not_stepped() -> None:
    idle, busy = Flow(babble), Flow(babble)
    several = EngineRouter({"idle": idle, "busy": busy})
    with several.rollout("r"):
        submit(several, *requests(0, agent="busy"))
        several.step()
    assert (idle.asked, busy.asked) == ([], [["0 b"]])


def test_a_wave_waits_until_nobody_else_is_at_work_and_is_announced() -> None:
    flow, wave = Flow(babble, delay=lambda ticket: 2), Wave(babble)
    several = EngineRouter({"flow": flow, "wave": wave})
    with several.rollout("r"):
        assert several.is_batched  # nothing is in flight: whoever is still being reset may join
        submit(several, *requests(0, agent="flow"), *requests(1, agent="wave"))
        assert not several.is_batched
        assert several.step() == []
        assert [ticket for ticket, _ in several.step()] == [0]
        submit(several, *requests(2, agent="wave"))
        assert several.is_batched
        assert [ticket for ticket, _ in several.step()] == [1, 2]
    assert wave.waves == [["1 w", "2 w"]]
    assert not EngineRouter({"flow": flow}).is_batched


def test_apis_are_asked_on_threads_and_hold_up_nobody() -> None:
    """The reply comes only once the engine of this process has answered three times: it would hang otherwise."""
    released = threading.Event()

    def api(messages: Sequence[Any]) -> str:
        assert released.wait(10)
        return "A" + messages[-1]["content"]

    engine = Flow(babble)
    several = EngineRouter({"engine": engine, "user": ApiEngine({"user": api}, num_threads=1)})
    with several.rollout("r"):
        submit(several, *requests(7, agent="user"), *requests(0, agent="engine"))
        for number in range(3):
            assert [ticket for ticket, _ in several.step()] == [number]
            submit(several, *requests(number + 1, agent="engine"))
        released.set()
        answers = {}
        while 7 not in answers:
            answers.update(several.step())
    assert answers[7] == Sampled(Prompt(HELLO), (Completion(ids=(), text="AHello"),))


class Far(Flow):
    """Works elsewhere; `timeouts` lists how long each step might have waited."""

    is_remote = True

    def __init__(self) -> None:
        super().__init__(babble, delay=lambda ticket: 9)
        self.timeouts: list[float] = []

    def step(self, timeout: float = 0.0) -> Any:
        self.timeouts.append(timeout)
        return super().step(timeout)


def test_remote_engines_are_waited_for_only_while_no_engine_of_this_process_works() -> None:
    here, one, other = Flow(babble), Far(), Far()
    several = EngineRouter({"here": here, "one": one, "other": other})
    with several.rollout("r"):
        submit(several, *requests(0, agent="here"), *requests(1, agent="one"), *requests(2, agent="other"))
        for _ in range(2):
            several.step(0.5)
    assert one.timeouts == other.timeouts == [0.0, 0.25]  # which the two then share


def test_what_an_api_was_asked_before_a_rollout_broke_off_is_not_answered_in_the_next() -> None:
    began, released = threading.Event(), threading.Event()

    def api(messages: Sequence[Any]) -> str:
        began.set()
        assert released.wait(10)
        return "late"

    asking = ApiEngine({"user": api}, num_threads=1)
    several = EngineRouter({"user": asking})

    def break_off() -> None:
        with several.rollout("broken off"):
            submit(several, *requests(0, 1, agent="user"))
            assert began.wait(10)
            threading.Timer(0.05, released.set).start()
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        break_off()
    with several.rollout("next"):
        submit(several, *requests(5, agent="user"))
        answers: list[Any] = []
        while not answers:
            answers.extend(several.step())
    assert [ticket for ticket, _ in answers] == [5]


@pytest.mark.parametrize("kind", ["flow", "wave"])
@pytest.mark.parametrize("num_threads", [0, 3])
def test_a_team_of_engines_plays_what_one_engine_plays(kind: str, num_threads: int) -> None:
    def api(messages: Sequence[Any]) -> str:
        return "AZ"[len(messages[-1]["content"]) % 2]

    def write(ticket: int, request: Request, k: int) -> str:
        return api(request.prompt.messages) if request.agent == "closer_0" else babble(ticket, request, k)

    def played(engine: Any) -> Any:
        return play(
            [{"seed": seed} for seed in range(5)],
            make_env=Relay,
            engine=engine,
            sampling="tree",
            num_candidates=3,
            seed="s",
            num_threads=num_threads,
            partners=["closer_0"],
        )

    asking: Callable[[], Any] = lambda: (  # noqa: E731
        ApiEngine({"closer_0": api}, num_threads=3)
        if num_threads
        else BatchedEngine(partial(ask_sequentially, {"closer_0": api}))
    )
    several = EngineRouter({"opener_0": (Flow if kind == "flow" else Wave)(babble), "closer_0": asking()})
    with several.rollout("s"):
        found = played(several)
    expected = played(Patient(write))
    assert len(found.episodes) == 5
    for one, other in zip(found.episodes, expected.episodes, strict=True):
        assert one.returns == other.returns
        for mine, theirs in zip(one.decisions, other.decisions, strict=True):
            assert [c.completion.text for c in mine.candidates] == [c.completion.text for c in theirs.candidates]
            assert len(mine.candidates) == (3 if mine.agent == "opener_0" else 1)
