"""Engines over several processes: who does not play takes the steps of who does. Threads stand for the processes."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from queue import Queue
from typing import Any

import pytest

from pettingllms_trl.engines.vllm.params import VllmRequest
from pettingllms_trl.processes.tensor_parallel import TensorParallelGroup, leader_of


class Steps:
    """An engine that notes the tickets of each step."""

    def __init__(self) -> None:
        self.taken: list[list[int]] = []

    def follow(self, requests: Sequence[VllmRequest]) -> None:
        self.taken.append([asked.ticket for asked in requests])


def asked(ticket: int) -> VllmRequest:
    return VllmRequest(ticket, "opener_0", (1, 2), {})


def both(lead: Callable[[list[Any]], None], *, meanwhile: Callable[[], None] = lambda: None) -> list[Steps]:
    """The follower's two engines, after the leader has played; `lead` is given the announcements of its own two."""
    sent: Queue[Any] = Queue()

    def tell(step: Any) -> Any:
        sent.put(step)
        return step

    leader = TensorParallelGroup(size=2, is_leader=True, broadcast=tell)
    follower = TensorParallelGroup(size=2, is_leader=False, broadcast=lambda _: sent.get(timeout=5))
    engines = [Steps(), Steps()]
    for engine in engines:
        follower.add(engine)
    announce = [leader.add(Steps()) for _ in engines]
    errors: list[BaseException] = []

    def play() -> None:
        try:
            with leader.rollout():
                lead(announce)
        except BaseException as error:  # noqa: BLE001  # given to the test below
            errors.append(error)

    thread = threading.Thread(target=play)
    thread.start()
    try:
        with follower.rollout():
            meanwhile()
    finally:
        thread.join(5)
        if errors:
            raise errors[0]
    return engines


def test_a_follower_takes_the_steps_of_its_leader_on_the_same_engines_with_the_same_requests() -> None:
    def lead(announce: list[Any]) -> None:
        announce[1]([asked(4), asked(2)])
        announce[0]([asked(1)])
        announce[1]([])  # a step without new requests is a step

    first, second = both(lead)
    assert first.taken == [[1]]
    assert second.taken == [[4, 2], []]


def test_a_follower_is_released_when_its_leader_fails() -> None:
    def lead(announce: list[Any]) -> None:
        announce[0]([asked(1)])
        raise RuntimeError("no board today")

    with pytest.raises(RuntimeError, match="no board today"):
        both(lead)


def test_a_follower_that_fails_takes_the_steps_before_it_says_so() -> None:
    taken: list[int] = []

    def lead(announce: list[Any]) -> None:
        for ticket in range(3):
            announce[0]([asked(ticket)])
            taken.append(ticket)

    def fail() -> None:
        raise RuntimeError("stale weights")

    with pytest.raises(RuntimeError, match="stale weights"):
        both(lead, meanwhile=fail)
    assert taken == [0, 1, 2]


def test_a_process_that_does_not_play_sends_no_requests() -> None:
    group = TensorParallelGroup(size=2, is_leader=False, broadcast=lambda step: step)
    with pytest.raises(AssertionError, match="does not play"):
        group.add(Steps())([asked(1)])


def test_groups_are_consecutive_processes() -> None:
    assert [leader_of(process, 2) for process in range(6)] == [0, 0, 2, 2, 4, 4]
    assert [leader_of(process, 4) for process in range(8)] == [0] * 4 + [4] * 4


def test_a_follower_whose_step_fails_hears_of_the_leaders_end_before_it_says_so() -> None:
    class Fails:
        def follow(self, requests: Sequence[VllmRequest]) -> None:
            raise RuntimeError(f"no memory for {requests[0].ticket}")

    sent = [(0, [asked(1)]), None]
    group = TensorParallelGroup(size=2, is_leader=False, broadcast=lambda _: sent.pop(0))
    group.add(Fails())
    with pytest.raises(RuntimeError, match="no memory for 1"), group.rollout():
        pass
    assert not sent, "the leader, whose step failed, too, would wait for it"
