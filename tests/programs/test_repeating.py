"""Calls at the same time have one order, and what differs from run to run is found and shown."""

from __future__ import annotations

import http.client
import itertools
import json
import random
import re
import threading
import time
import urllib.parse
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from calls import ask, chat, played
from pettingllms_envs.branching import ReplayError, ReplayWrapper
from pettingllms_envs.failures import EpisodeRestart
from pettingllms_envs.programs import program, session
from pettingllms_envs.programs.repeating import check_repeats


AGENTS = (*(f"worker_{k}" for k in range(4)), "judge")


def fan_out(base_url: str, row: Any) -> float:
    """Four calls at once, in an order by chance, then one."""
    order = random.sample(range(4), 4)
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda k: ask(base_url, f"worker_{k}", f"Part {k}?"), order))
    return float(ask(base_url, "judge", "All?"))


def played_again(env: Any, times: int = 10) -> tuple[list[tuple[str, str]], int]:
    """What is shown in an episode, which is restarted as often as the environment wants."""
    for restarts in range(times):
        try:
            return played(env, lambda text: time.sleep(0.01) or "1"), restarts  # type: ignore[func-returns-value]
        except EpisodeRestart:
            continue
    raise AssertionError(f"restarted {times} times")


def test_calls_at_the_same_time_are_taken_by_agent_after_a_restart_at_most() -> None:
    make = program(fan_out, agents=AGENTS)
    found = [played_again(make()) for _ in range(20)]
    in_order = [(agent, f"Part {k}?") for k, agent in enumerate(AGENTS[:4])] + [("judge", "All?")]
    assert all(shown == in_order for shown, _ in found)
    assert sum(restarts for _, restarts in found) <= 7  # each but the first has doubled the wait, from 20 ms to 1 s
    assert make.program.state.wait >= 0.02


def test_a_program_that_is_declared_parallel_waits_from_the_beginning() -> None:
    make = program(fan_out, agents=AGENTS, parallel=True)
    assert [played_again(make())[1] for _ in range(3)] == [0, 0, 0]


def test_a_call_that_comes_too_late_for_its_place_doubles_the_wait_of_all_runs_at_once() -> None:
    shown = threading.Event()

    def team(base_url: str, row: Any) -> float:
        late = threading.Thread(target=lambda: (shown.wait(), chat(base_url, "first", "?")))
        late.start()
        chat(base_url, "second", "?")
        late.join()
        return 1.0

    make = program(team, agents=("first", "second"), parallel=True)
    env = make()
    env.reset(seed=0)
    assert env.agent_selection == "second"
    shown.set()
    until = time.monotonic() + 10
    while make.program.state.wait < 0.04:  # before the call that was taken is answered
        assert time.monotonic() < until
        time.sleep(0.001)
    with pytest.raises(EpisodeRestart, match="played again with a longer wait"):
        env.step("1")
    assert make.program.state.wait == 0.04
    assert played(env, lambda text: "1") == [("first", "?"), ("second", "?")]


def test_a_late_call_that_belongs_behind_the_one_that_was_taken_restarts_nothing() -> None:
    shown = threading.Event()

    def team(base_url: str, row: Any) -> float:
        late = threading.Thread(target=lambda: (shown.wait(), chat(base_url, "second", "?")))
        late.start()
        chat(base_url, "first", "?")
        late.join()
        return 1.0

    env = program(team, agents=("first", "second"))()
    env.reset(seed=0)
    shown.set()
    while not env.program.state.wait:  # both are open
        time.sleep(0.001)
    env.step("1")
    assert env.agent_selection == "second"
    env.step("1")
    assert env.rewards == {"first": 1.0, "second": 1.0}


def test_a_call_that_was_given_up_is_not_open_at_the_same_time_as_the_next() -> None:
    shown, asked = threading.Event(), []

    def team(base_url: str, row: Any) -> float:
        url = urllib.parse.urlsplit(f"{base_url}/chat/completions")
        slow = http.client.HTTPConnection(url.hostname or "", url.port)
        slow.request("POST", url.path, json.dumps({"model": "second", "messages": [{"role": "user", "content": "?"}]}))
        shown.wait()
        slow.close()
        asked.append(ask(base_url, "first", "And you?"))
        return 1.0

    env = program(team, agents=("first", "second"))()
    env.reset(seed=0)
    shown.set()
    time.sleep(0.1)
    env.step("Too late.")  # before the first agent's call would have its place
    assert env.agent_selection == "first"
    env.step("I.")
    assert asked == ["I."]
    assert env.program.state.wait == 0
    env.close()


def test_a_program_that_asks_one_at_a_time_never_waits() -> None:
    def chain(base_url: str, row: Any) -> float:
        return float(sum(int(ask(base_url, f"worker_{k % 4}", f"{k}?")) for k in range(20)) == 20)

    make = program(chain, agents=AGENTS[:4])
    played(make(), lambda text: "1")
    assert make.program.state.wait == 0


NUMBERS = itertools.count()


def forgetful(base_url: str, row: Any) -> float:
    """A writer, and a critic whose prompt has another number in every run."""
    ask(base_url, "writer", f"Write {row['seed']}.")
    return float(ask(base_url, "critic", f"Request {next(NUMBERS)}: is it good?") == "yes")


def test_what_differs_from_run_to_run_is_shown_with_the_place_marked_and_the_cure() -> None:
    env = program(forgetful, agents=("writer", "critic"))()
    with pytest.raises(ReplayError) as caught:
        check_repeats(env, 0, None)
    was, now = re.findall(r"Request >>>(\d+)<<<: is it good\?", str(caught.value))
    assert int(now) == int(was) + 1
    assert "its call 1 asks" in str(caught.value)
    assert "normalize=lambda text: re.sub(" in str(caught.value)


def test_what_normalize_takes_out_is_not_compared_but_shown_to_the_model() -> None:
    env = program(forgetful, agents=("writer", "critic"), normalize=lambda text: re.sub(r"Request \d+", "", text))()
    check_repeats(env, 0, None)
    wrapped = ReplayWrapper(env)
    wrapped.reset(seed=0)
    wrapped.step("a poem")
    point, before = wrapped.snapshot(), env.observe("critic")
    wrapped.step("yes")
    wrapped.restore(point)
    after = env.observe("critic")
    assert before != after
    assert re.fullmatch(r"Request \d+: is it good\?", after["messages"][0]["content"])


def test_a_tree_says_where_a_request_differs_and_what_to_do() -> None:
    wrapped = ReplayWrapper(program(forgetful, agents=("writer", "critic"))())
    wrapped.reset(seed=0)
    wrapped.step("a poem")
    point = wrapped.snapshot()
    wrapped.step("yes")
    with pytest.raises(ReplayError, match=r"(?s)Request >>>\d+<<<.*Request >>>\d+<<<.*normalize="):
        wrapped.restore(point)


def test_the_key_of_a_run_in_a_request_is_not_compared_and_in_no_error() -> None:
    def team(base_url: str, row: Any) -> float:
        return float(ask(base_url, "writer", f"Ask {base_url}, {next(NUMBERS)}.") == "0")

    env = program(team, agents=("writer",), normalize=lambda text: re.sub(", .*", "", text))()
    check_repeats(env, 0, None)
    env = program(team, agents=("writer",))()
    with pytest.raises(ReplayError, match=r"/s/\*\*\*/v1, \d*>>>"):
        check_repeats(env, 0, None)


def unlike(paid: Callable[[int], float]) -> Callable[[str, Any], float]:
    def team(base_url: str, row: Any) -> float:
        ask(base_url, "writer", "Write.")
        return paid(next(NUMBERS))

    return team


def test_a_program_that_fails_on_the_reply_in_the_same_way_is_the_same() -> None:
    def picky(base_url: str, row: Any) -> float:
        return {"yes": 1.0}[ask(base_url, "writer", "Good?")]

    check_repeats(program(picky, agents=("writer",))(), 0, None)


def late(seconds: float) -> Callable[[str, Any], float]:
    """Two workers that are asked at the same time, of which the first is late in every other run."""

    def team(base_url: str, row: Any) -> float:
        is_late = next(NUMBERS) % 2

        def worker(k: int) -> str:
            time.sleep(seconds * (k != is_late))
            return ask(base_url, f"worker_{k}", "?")

        with ThreadPoolExecutor(2) as pool:
            return float(len(list(pool.map(worker, range(2)))))

    return team


def shuffled(base_url: str, row: Any) -> float:
    """Two workers that are asked one after the other, by turns in this order and in that one."""
    for k in sorted(range(2), reverse=bool(next(NUMBERS) % 2)):
        ask(base_url, f"worker_{k}", "?")
    return 1.0


def test_an_order_that_differs_though_no_calls_are_open_at_the_same_time_is_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(session, "LONGEST_WAIT", 2 * session.FIRST_WAIT)
    make = program(shuffled, agents=AGENTS[:2])
    with pytest.raises(ReplayError, match=r"its call 0 is asked by\n    worker_>>>\d<<<"):
        check_repeats(make(), 0, None)
    assert make.program.state.has_waited_longest


def test_runs_that_are_equal_by_chance_after_they_differed_prove_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session, "LONGEST_WAIT", 2 * session.FIRST_WAIT)
    orders = iter([0, 1, *[0] * 100])

    def team(base_url: str, row: Any) -> float:
        for k in sorted(range(2), reverse=bool(next(orders))):
            ask(base_url, f"worker_{k}", "?")
        return 1.0

    with pytest.raises(ReplayError, match="its call 0 is asked by"):
        check_repeats(program(team, agents=AGENTS[:2])(), 0, None)


@pytest.mark.parametrize(
    "paid", [lambda number: number % 2, lambda number: [1.0, float("nan")][number % 2]], ids=["a reward", "a failure"]
)
def test_what_is_paid_is_no_matter_of_the_order(paid: Callable[[int], float]) -> None:
    make = program(unlike(paid), agents=("writer",))
    with pytest.raises(ReplayError, match="its call 0 is followed by"):
        check_repeats(make(), 0, None)
    assert make.program.state.wait == 0


# Without `parallel` they are never open at the same time, either.
@pytest.mark.parametrize("parallel", [True, pytest.param(False, marks=pytest.mark.slow)])
def test_calls_that_come_after_an_immediate_reply_are_waited_for_longer_before_they_are_said_to_differ(
    parallel: bool,
) -> None:
    make = program(late(0.2), agents=AGENTS[:2], parallel=parallel)  # ten times the first wait
    check_repeats(make(), 0, None)
    assert 0.04 <= make.program.state.wait <= 1.0


def test_a_replay_waits_for_as_many_calls_as_were_open_before_and_no_longer() -> None:
    make = program(late(0.2), agents=AGENTS[:2], parallel=True)
    env, seconds = make(), []
    for make.program.state.wait in (0.7, 0.02, 0.02, 0.7):  # in every other run worker_0 is late
        began = time.monotonic()
        env.reset(seed=0)
        seconds.append(time.monotonic() - began)
        assert env.agent_selection == "worker_0"
        env.step("a")
        env.step("b")
    assert seconds[0] > 0.7 > seconds[3]


def test_a_team_that_waited_longest_and_still_differs_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session, "LONGEST_WAIT", session.FIRST_WAIT)
    with pytest.raises(ReplayError, match=r"(?s)is asked by\n    worker_>>>\d<<<.*parallel=True"):
        check_repeats(program(late(0.1), agents=AGENTS[:2], parallel=True)(), 0, None)


def test_equal_calls_at_the_same_time_have_no_order_to_replay() -> None:
    def team(base_url: str, row: Any) -> float:
        with ThreadPoolExecutor(2) as pool:
            return float(len(list(pool.map(lambda _: ask(base_url, "worker_0", "?"), range(2)))))

    make = program(team, agents=AGENTS[:1], parallel=True)
    with pytest.raises(ReplayError, match="asks an agent the same twice at the same time"):
        check_repeats(make(), 0, None)
    assert played(make(), lambda text: "1") == [("worker_0", "?")] * 2
