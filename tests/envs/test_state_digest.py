"""Digests of states with bytes and arrays."""

from __future__ import annotations

import time
from collections import deque
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import numpy as np
import pytest

from pettingllms_envs.aec import TextEnv
from pettingllms_envs.array_digest import written
from pettingllms_envs.core import Unreadable
from pettingllms_envs.state_digest import with_task
from pettingllms_envs.tasks.base import OpenTask
from pettingllms_envs.teams.single import Single


class Pair(NamedTuple):
    """Two values."""

    one: Any
    other: Any


@dataclass(frozen=True)
class Cell:
    """A value."""

    value: Any


def frozen(*numbers: int) -> np.ndarray[Any, Any]:
    array = np.array(numbers)
    array.setflags(write=False)
    return array


def test_states_without_arrays_are_written_as_repr_has_them() -> None:
    for value in (Pair(1, ("a", b"\0")), Cell({"array(": [1, 2]}), "array([1])", Pair("array(", Cell(0))):
        assert written(value) == repr(value)


def test_every_element_of_an_array_counts() -> None:
    one = frozen(*range(5000))
    other = frozen(*range(2500), 0, *range(2501, 5000))
    assert repr(one) == repr(other)  # numpy leaves the middle out
    for around in (lambda x: x, lambda x: Pair(1, (x,)), Cell, lambda x: {"a": [x]}):
        assert written(around(one)) != written(around(other))
        assert written(around(one)) == written(around(frozen(*range(5000))))


def test_type_and_shape_of_an_array_count() -> None:
    square = frozen(1, 2, 3, 4).reshape(2, 2)
    small = frozen(1, 2, 3, 4).astype(np.int32)
    small.setflags(write=False)
    assert len({written(frozen(1, 2, 3, 4)), written(square), written(small)}) == 3


def test_an_array_that_could_be_changed_in_a_snapshot_raises() -> None:
    with pytest.raises(TypeError, match=r"shape \(2,\) in a state can be written to.*setflags\(write=False\)"):
        written(Pair(0, np.array([1, 2])))


def test_the_task_of_a_state_is_replaced_in_named_tuples_and_dataclasses() -> None:
    @dataclass(frozen=True)
    class State:
        task: Any
        turn: int

    assert with_task(State("big", 2), None) == State(None, 2)


class Large(NamedTuple):
    """A megabyte, and a number."""

    content: bytes
    count: int


@dataclass(frozen=True, slots=True)
class Counting(OpenTask[Large]):
    """Adds the length of replies."""

    name: ClassVar[str] = "counting"

    def generate(self, seed: int, *, split: str = "train") -> Large:
        return Large(bytes(1 << 20), seed)

    def rules(self) -> str:
        return "Write three letters."

    def show(self, state: Large) -> str:
        return f"The count is {state.count}."

    def apply(self, state: Large, move: Any) -> Large:
        return state._replace(count=state.count + len(move))

    def solved(self, state: Large) -> bool:
        return state.count == 3


@dataclass(frozen=True, slots=True)
class Digested(Counting):
    """The same with a digest of its own."""

    def digest(self, state: Large) -> str:
        return str(state.count)


def hash_of(task: OpenTask[Large], *replies: str) -> str:
    env = TextEnv(Single(task))
    env.reset(seed=0)
    for reply in replies:
        env.step(reply)
    return env.state_hash()


@pytest.mark.parametrize("task", [Counting(), Digested()])
def test_a_state_hash_tells_states_apart(task: OpenTask[Large]) -> None:
    assert hash_of(task, "a") == hash_of(task, "a") != hash_of(task, "ab")


def test_a_digest_of_the_tasks_own_saves_the_time_of_repr() -> None:
    env = TextEnv(Single(Counting()))
    own = TextEnv(Single(Digested()))
    times = []
    for each in (env, own):
        each.reset(seed=0)
        start = time.process_time()
        for _ in range(3):
            each.state_hash()
        times.append(time.process_time() - start)
    assert times[1] < times[0] / 10


def test_an_open_ended_task_of_six_members_plays_and_has_no_oracle() -> None:
    env = TextEnv(Single(Counting(), num_turns=2))
    env.reset(seed=0)
    assert not env.metadata["has_oracle"]
    with pytest.raises(ValueError, match="has no oracle"):
        env.oracle()
    assert env.observe("planner_0")["system"] == "Write three letters.\nYou are the planner. Your moves are played."
    env.step("")
    assert env.rewards == {"planner_0": -0.2}
    env.step("abc")
    assert env.terminations == {"planner_0": True}
    assert env.rewards == {"planner_0": 2.0}  # progress and success
    assert env.infos["planner_0"]["outcome"] == {"success": True}
    assert isinstance(Counting().parse("  "), Unreadable)


def read_only(array: Any) -> Any:
    array.setflags(write=False)
    return array


def test_a_long_array_inside_an_object_that_is_not_looked_into_counts_whole() -> None:
    one, other = np.zeros(5_000), np.zeros(5_000)
    other[2_500] = 1e-12
    assert written((deque([read_only(one)]),)) != written((deque([read_only(other)]),))


def test_a_masked_array_raises() -> None:
    with pytest.raises(TypeError, match="in a state is a MaskedArray; expected a read-only array of numbers"):
        written((np.ma.masked_array(np.zeros(3), mask=np.array([False, True, False])),))
