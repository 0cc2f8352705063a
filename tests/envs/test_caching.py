"""What was found before is not looked for again, by however many threads at once."""

import os
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from pettingllms_envs.caching import remembered


def test_threads_that_ask_the_same_at_once_ask_once() -> None:
    asked: list[int] = []
    begun, go = threading.Event(), threading.Event()

    @remembered(8)
    def double(number: int) -> int:
        asked.append(number)
        begun.set()
        go.wait(60)
        return 2 * number

    with ThreadPoolExecutor(4) as threads:
        first = threads.submit(double, 3)
        assert begun.wait(60)
        others = [threads.submit(double, 3) for _ in range(3)]
        go.set()
        assert [each.result(60) for each in (first, *others)] == [6] * 4
    assert asked == [3]


def test_who_waited_for_a_call_that_failed_tries_for_itself() -> None:
    asked: list[str] = []
    begun, go = threading.Event(), threading.Event()

    @remembered(8)
    def shaky(name: str) -> str:
        asked.append(name)
        if len(asked) == 1:
            begun.set()
            go.wait(60)
            raise RuntimeError("the first time")
        return name.upper()

    with ThreadPoolExecutor(2) as threads:
        first = threads.submit(shaky, "a")
        assert begun.wait(60)
        other = threads.submit(shaky, "a")
        go.set()
        assert other.result(60) == "A"
        with pytest.raises(RuntimeError, match="the first time"):
            first.result(60)
    assert shaky("a") == "A"
    assert asked == ["a", "a"]


def test_a_fork_does_not_wait_for_a_thread_of_its_parents() -> None:
    begun, go = threading.Event(), threading.Event()
    parent = os.getpid()

    @remembered(8)
    def where(number: int) -> int:
        if os.getpid() == parent:
            begun.set()
            go.wait(60)
        return os.getpid()

    thread = threading.Thread(target=where, args=(1,))
    thread.start()
    assert begun.wait(60)
    child = os.fork()
    if child == 0:
        os._exit(0 if where(1) == os.getpid() else 1)
    assert os.waitpid(child, 0)[1] == 0
    go.set()
    thread.join(60)
    assert where(1) == parent


def test_the_oldest_is_forgotten() -> None:
    asked: list[int] = []

    @remembered(2)
    def noted(number: int) -> int:
        asked.append(number)
        return number

    for number in (1, 2, 3, 2, 3, 1):
        assert noted(number) == number
    assert asked == [1, 2, 3, 1]
