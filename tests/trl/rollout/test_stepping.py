"""Candidates of slow environments, stepped at once: when they are, and that nothing but the time tells."""

from __future__ import annotations

import copy
import random
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from group_checks import check_groups
from pettingllms_trl.records import EnvironmentFailure, Request
from pettingllms_trl.rollout import Rollout, stepping
from pettingllms_trl.rollout.workers import ThreadPool, num_abandoned_threads
from plays import play
from schedules import Dawdlers, Patient, Tidal, Whimsical, babble
from third_party import Relay


TIMEOUT = 20  # seconds; a test that waits so long has failed
SLOWLY = 2 * stepping.SLOW
Step = Callable[["Room", str], None]


def quickly(room: Room, action: str) -> None:
    """Take no time."""


def slowly(room: Room, action: str) -> None:
    """Wait so long that it counts as slow."""
    time.sleep(SLOWLY)


def now_and_then(room: Room, action: str) -> None:
    """Wait for a while of the reply's own: half of them count as slow."""
    time.sleep(random.Random(f"{room.task}{room.written}{action}").uniform(0, 2 * stepping.SLOW))


class Room(Relay):
    """With `snapshot` and `restore`; it shall not be copied, nor used by two at once, nor after it has failed."""

    def __init__(self, house: House) -> None:
        super().__init__(house.num_turns)
        self.house = house
        self.failed = self.entered = False

    def __deepcopy__(self, memo: Any) -> Room:
        raise AssertionError("copied, though it can be restored")

    def snapshot(self) -> dict[str, Any]:
        own = ("house", "failed", "entered")
        return copy.deepcopy({name: value for name, value in vars(self).items() if name not in own})

    def restore(self, snapshot: dict[str, Any]) -> None:
        self.house.num_restores += 1
        vars(self).update(copy.deepcopy(snapshot))

    def reset(self, seed: int | None = None, options: dict[str, Any] | None = None) -> None:
        super().reset(seed, options)
        self.house.num_resets += 1
        self.infos = {agent: {"outcome": {"success": False}} for agent in self.possible_agents}

    def step(self, action: str | None) -> None:
        assert not self.failed, "stepped after it had failed"
        assert not self.entered, "stepped by two at once"
        if action is not None:
            self.entered = True
            with self.house.counted(self.task):
                try:
                    self.house.during(self, action)
                except Exception:
                    self.failed = True
                    raise
            self.entered = False
        super().step(action)

    def close(self) -> None:
        self.failed = True
        self.house.closed.append(self)


class House:
    """Makes environments whose steps take what `during` says, and knows where each of them is."""

    def __init__(self, during: Step = quickly, num_turns: int = 2) -> None:
        self.during, self.num_turns = during, num_turns
        self.made: list[Room] = []
        self.closed: list[Room] = []
        self.pool: list[Any] = []
        self.num_resets = self.num_restores = 0
        self.most_inside: Counter[int] = Counter()  # of an instance, at the same time
        self.inside: Counter[int] = Counter()
        self.lock = threading.Lock()
        self._making = threading.Lock()

    def make_env(self) -> Room:
        assert self._making.acquire(blocking=False), "called by two threads at once"
        time.sleep(0.001)
        self.made.append(Room(self))
        self._making.release()
        return self.made[-1]

    def counted(self, instance: int) -> Any:
        return _Counted(self, instance)

    def play(self, engine: Any = None, *, num_rows: int = 3, **options: Any) -> Rollout:
        options = {"sampling": "tree", "num_candidates": 3, "engine": engine or Patient(by_prompt), **options}
        rows = [{"seed": seed} for seed in range(num_rows)]
        return play(rows, make_env=self.make_env, pool=self.pool, seed="s", **options)

    def check(self, *, most: int) -> None:
        """Every environment that was made is in the pool or closed, and there are not too many."""
        assert {*map(id, self.pool)} | {*map(id, self.closed)} == {*map(id, self.made)}
        assert not {*map(id, self.pool)} & {*map(id, self.closed)}
        assert len({*map(id, self.pool)}) == len(self.pool) <= most
        assert not any(room.failed or room.entered for room in self.pool)


class _Counted:
    def __init__(self, house: House, instance: int) -> None:
        self._house, self._instance = house, instance

    def __enter__(self) -> None:
        house = self._house
        with house.lock:
            house.inside[self._instance] += 1
            house.most_inside[self._instance] = max(house.most_inside[self._instance], house.inside[self._instance])

    def __exit__(self, *_: Any) -> None:
        with self._house.lock:
            self._house.inside[self._instance] -= 1


def by_prompt(ticket: int, request: Request, k: int) -> str:
    """The ticket is of no matter: who is played anew asks under another, and shall be told the same."""
    return babble(0, request, k)


@pytest.fixture
def all_slow(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every step counts as slow, however quick."""
    monkeypatch.setattr(stepping, "SLOW", 0.0)


# ---- At once --------------------------------------------------------------------------------------------------------


def test_all_candidates_of_a_slow_environment_are_in_it_at_the_same_time() -> None:
    all_three, two_more = threading.Barrier(3, timeout=TIMEOUT), threading.Barrier(2, timeout=TIMEOUT)

    def meet(room: Room, action: str) -> None:
        if room.written:
            all_three.wait()  # breaks unless two others come while this one is here
        elif first:
            first.pop()  # alone, for nobody knows yet that it is slow
        else:
            two_more.wait()
        time.sleep(SLOWLY)

    first = [True]
    house = House(meet)
    found = house.play(num_rows=1, num_threads=3)
    assert (len(found.episodes), found.retried) == (1, 0)
    assert house.most_inside[0] == 3
    house.check(most=3)


def test_the_time_of_a_decision_is_that_of_a_step_and_not_of_all() -> None:
    # Four decisions of eight candidates of 0.05 s: 1.6 s in turn. At once 0.25 s, as the first of all is alone.
    class InTurn(ThreadPool):
        def __init__(self) -> None:
            super().__init__(8)
            self.num_workers = 1

    def seconds(**options: Any) -> float:
        begin = time.monotonic()
        found.append(House(lambda room, action: time.sleep(0.05)).play(num_rows=1, num_candidates=8, **options))
        return time.monotonic() - begin

    found: list[Rollout] = []
    at_once, in_turn = seconds(num_threads=8), seconds(workers=InTurn())
    assert found[0] == found[1]
    assert in_turn >= 1.6
    assert at_once < in_turn / 2


def test_quick_environments_are_stepped_in_turn_and_no_more_of_them_are_made(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stepping, "SLOW", 2.0)  # a busy machine may stop a thread for longer than the real one
    house = House()
    house.play(num_threads=8)
    assert (len(house.made), house.num_resets) == (3, 3)
    assert max(house.most_inside.values()) == 1


@pytest.mark.parametrize("num_threads", [0, 1])
def test_where_nothing_can_be_done_at_once_nothing_is_parted(num_threads: int, all_slow: None) -> None:
    house = House()
    house.play(num_threads=num_threads)
    assert (len(house.made), house.num_resets) == (3, 3)
    assert house.num_restores == 3 * 4 * 3  # for each decision's second and third candidate, and to the best's end


def test_an_environment_that_was_slow_and_is_quick_again_is_stepped_in_turn_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # Slow in the first turn alone. In the second decision of four all are at once, and quick; the others in turn.
    monkeypatch.setattr(stepping, "SLOW", 0.5)
    house = House(lambda room, action: time.sleep(0 if room.written else 0.6))
    house.play(num_rows=1, num_threads=3)
    resets = house.num_resets
    assert 1 < resets <= 1 + 2 + 2  # the run's own, and those of two candidates in the first decision and the second


def test_one_without_snapshots_is_copied_and_stepped_in_turn() -> None:
    inside, most = [], []

    class Copied(Relay):
        def step(self, action: str | None) -> None:
            inside.append(self)
            most.append(len(inside))
            time.sleep(SLOWLY)
            super().step(action)
            inside.pop()

    rows = [{"seed": 0}]
    options = {"sampling": "tree", "num_candidates": 3, "seed": "s"}
    found = play(rows, make_env=Copied, engine=Patient(by_prompt), num_threads=4, **options)
    assert (len(found.episodes), found.retried, max(most)) == (1, 0, 1)


def test_no_more_environments_are_made_than_threads_beside_those_in_play() -> None:
    house = House(slowly)
    house.play(num_rows=4, num_candidates=6, num_threads=2, max_envs=3)
    house.check(most=3 + 2)
    assert max(house.most_inside.values()) == 2
    assert len(house.made) > 3, "none was lent"


def test_the_instance_and_its_options_are_those_of_every_environment() -> None:
    told = set()

    class Told(Room):
        def reset(self, seed: int | None = None, options: dict[str, Any] | None = None) -> None:
            told.add((id(self), seed, (options or {}).get("level")))
            super().reset(seed, options)

    house = House(slowly)
    play(
        [{"seed": 3, "level": 7}],
        make_env=lambda: Told(house),
        engine=Patient(by_prompt),
        sampling="tree",
        num_candidates=4,
        num_threads=4,
        seed="s",
    )
    assert {(seed, level) for _, seed, level in told} == {(3, 7)}
    assert len(told) > 1


# ---- The same episodes ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("num_threads", [2, pytest.param(3, marks=pytest.mark.slow), 8])
@pytest.mark.parametrize("engine", [Patient, Tidal])
@pytest.mark.parametrize(
    "options", [{}, {"num_continuations": 1}, {"num_continuations": 1, "choose": "value"}, {"max_envs": 2}], ids=str
)
def test_they_are_those_of_environments_stepped_in_turn(num_threads: int, engine: Any, options: Any) -> None:
    expected = House().play(engine(babble), **options)
    house = House(now_and_then)
    found = house.play(engine(babble), num_threads=num_threads, **options)
    assert found == expected
    assert max(house.most_inside.values()) > 1
    check_groups(found.episodes, num_candidates=3)
    most = options.get("max_envs") or 3 * (3 if options.get("num_continuations") else 1)
    house.check(most=most + num_threads)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    seed=st.integers(0, 2**32),
    num_rows=st.integers(1, 4),
    num_candidates=st.integers(1, 4),
    num_continuations=st.integers(0, 1),
    by_value=st.booleans(),
    max_envs=st.none() | st.integers(1, 4),
    at_once=st.integers(2, 5),
    waves=st.booleans(),
    fails=st.integers(0, 2),
    charged=st.booleans(),
)
def test_no_order_of_jobs_and_no_failure_changes_them(
    all_slow: None,
    seed: int,
    num_rows: int,
    num_candidates: int,
    num_continuations: int,
    by_value: bool,
    max_envs: int | None,
    at_once: int,
    waves: bool,
    fails: int,
    charged: bool,
) -> None:
    rng = random.Random(seed)
    fails = min(fails, 1) if charged else fails  # what fails twice alike is charged
    left = Counter(dict.fromkeys(range(0, num_rows, 2), fails))

    def fail(room: Room, action: str) -> None:
        # Some replies of every other row, as often as an instance is played anew for it.
        if left[room.task] and random.Random(f"{seed}{room.task}{room.written}{action}").random() < 0.3:
            left[room.task] -= 1
            raise OSError("it failed")

    options = {"num_rows": num_rows, "num_candidates": num_candidates, "num_continuations": num_continuations}
    options |= {"crash_reward": -1.0} if charged else {}
    options |= {"choose": "value"} if by_value and num_continuations else {}
    expected = House().play(Patient(by_prompt), **options)
    house = House(fail)
    engine = Tidal(by_prompt) if waves else Whimsical(by_prompt, rng)
    found = house.play(engine, workers=Dawdlers(rng, at_once), max_envs=max_envs, **options)
    assert found.episodes == expected.episodes
    assert found.dropped == {}
    # One is lent at a time, for this pool does one job after the other; one that fails is not replaced from the pool.
    house.check(most=(max_envs or num_rows * (num_candidates if num_continuations else 1)) + 1 + found.retried)


def test_the_same_instances_are_dropped_for_the_same_reason(all_slow: None) -> None:
    # Of row 1's first candidates the second and the third fail, always.
    def bad(room: Room, action: str) -> None:
        if room.task == 1 and action in ("b", "c"):
            raise OSError(f"it failed at {action}")

    def write(ticket: int, request: Request, k: int) -> str:
        return "abc"[k]

    expected = House(bad).play(Patient(write), num_rows=10)
    for at_once in (2, 3, 5):
        house = House(bad)
        found = house.play(Patient(write), num_rows=10, workers=Dawdlers(random.Random(at_once), at_once))
        assert found == expected
        assert list(found.dropped.values()) == ["OSError at the instance {'seed': 1}: it failed at b"]
        house.check(most=10 + 1)


def test_once_one_has_failed_the_others_are_not_begun(all_slow: None) -> None:
    steps = []

    def fail(room: Room, action: str) -> None:
        if room.written:
            steps.append(action)
            raise OSError("it failed")

    with pytest.raises(EnvironmentFailure, match="it failed"):
        House(fail).play(num_rows=1, workers=Dawdlers(random.Random(0), 3))
    assert len(steps) == 3, "one in each attempt"


@pytest.mark.parametrize("threads", [2, 5])
def test_replies_that_crash_it_are_charged_alike(threads: int) -> None:
    def bomb(room: Room, action: str) -> None:
        slowly(room, action)
        if "!" in action:
            raise RecursionError(f"cannot read {action!r}")

    def write(ticket: int, request: Request, k: int) -> str:
        return ["Z", "!", "A", "!!"][k] if request.agent == "opener_0" else ["Z", "A", "ZZ", "!"][k]

    options = {"num_rows": 2, "num_candidates": 4, "crash_reward": -7.0}
    expected = House(bomb).play(Patient(write), **options)
    house = House(bomb)
    found = house.play(Patient(write), num_threads=threads, **options)
    assert found.episodes == expected.episodes
    assert list(found.crashed) == list(expected.crashed)
    assert len(found.crashed) == 2 * 2 * 3
    assert (found.retried, found.dropped) == (0, {})
    assert max(house.most_inside.values()) > 1
    house.check(most=2 + threads)


def test_an_instance_is_played_anew_in_turn_for_it_may_have_failed_for_being_played_at_once() -> None:
    # A server that bears one session at a time.
    def lonely(room: Room, action: str) -> None:
        time.sleep(3 * SLOWLY)
        if room.house.inside[room.task] > 1:
            raise ConnectionError("too many sessions")

    house = House(lonely)
    found = house.play(num_rows=1, num_threads=3)
    assert found.episodes == House().play(num_rows=1).episodes
    assert found.retried == 1
    house.check(most=3)


def test_a_reward_function_is_asked_once_for_each_decision_with_its_candidates_in_their_order(all_slow: None) -> None:
    def judged(**options: Any) -> tuple[Rollout, list[Any]]:
        asked: list[Any] = []

        def judge(choice: Any) -> list[dict[str, float]]:
            asked.append((choice.row["seed"], choice.agent, choice.turn, [c.text for c in choice.completions]))
            return [{"length": float(len(c.text))} for c in choice.completions]

        return House().play(judge=judge, **options), sorted(asked)

    expected = judged()
    assert judged(workers=Dawdlers(random.Random(0), 3)) == expected
    assert judged(num_threads=4) == expected
    assert len(expected[1]) == 3 * 4


def test_a_reward_function_that_raises_ends_the_rollout_at_once(all_slow: None) -> None:
    def judge(choice: Any) -> list[dict[str, float]]:
        raise ZeroDivisionError("the user's own")

    with pytest.raises(ZeroDivisionError, match="the user's own"):
        House().play(judge=judge, num_threads=4)
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("environments")]


def test_a_maker_that_fails_on_a_thread_ends_the_rollout_with_what_it_raised(all_slow: None) -> None:
    class Poor(House):
        def make_env(self) -> Room:
            if len(self.made) == 1:
                raise MemoryError("no second one")
            return super().make_env()

    with pytest.raises(MemoryError, match="no second one"):
        Poor(slowly).play(num_rows=1, num_threads=3)


# ---- Time limits ----------------------------------------------------------------------------------------------------


LIMIT = 0.3  # seconds: more than ten times what anything else here takes


@pytest.fixture
def released() -> Iterator[threading.Event]:
    released, begin = threading.Event(), time.monotonic()
    yield released
    released.set()
    while num_abandoned_threads() and time.monotonic() < begin + TIMEOUT:
        time.sleep(0.005)
    assert num_abandoned_threads() == 0


@pytest.mark.parametrize("candidate", ["a", "b", "c"])
def test_one_candidate_that_hangs_is_left_alone_and_its_instance_played_anew(
    candidate: str, released: threading.Event
) -> None:
    def write(ticket: int, request: Request, k: int) -> str:
        return "abc"[k]

    left = [1]

    def hang(room: Room, action: str) -> None:
        time.sleep(SLOWLY)
        if (room.task, len(room.written), action) == (2, 2, candidate) and left:
            left.pop()
            assert released.wait(TIMEOUT)

    expected = House().play(Patient(write), num_rows=4)
    house = House(hang)
    found = house.play(Patient(write), num_rows=4, num_threads=4, env_timeout=LIMIT)
    assert found.episodes == expected.episodes
    assert (found.timed_out, found.retried, found.dropped) == (1, 1, {})
    assert num_abandoned_threads() == 1
    released.set()
    while num_abandoned_threads():
        time.sleep(0.005)
    house.check(most=4 + 4)
    assert len(house.closed) == 1


def test_one_that_always_hangs_is_dropped_and_leaves_no_environment_behind(released: threading.Event) -> None:
    def hang(room: Room, action: str) -> None:
        time.sleep(SLOWLY)
        if room.task == 2 and action == "b":
            assert released.wait(TIMEOUT)

    def write(ticket: int, request: Request, k: int) -> str:
        return "abc"[k]

    expected = House().play(Patient(write), num_rows=6)
    house = House(hang)
    found = house.play(Patient(write), num_rows=6, num_threads=4, env_timeout=LIMIT)
    assert found.episodes == [episode for episode in expected.episodes if episode.instance != 2]
    assert found.dropped == {2: "TimeoutError at the instance {'seed': 2}, opener_0: it took longer than 0.3 s"}
    assert (found.timed_out, found.retried) == (3, 2)
    released.set()
    while num_abandoned_threads():
        time.sleep(0.005)
    house.check(most=6 + 4)


def test_every_step_has_the_whole_time_and_so_has_the_reset_before_it() -> None:
    class Tired(Room):
        def reset(self, seed: int | None = None, options: dict[str, Any] | None = None) -> None:
            time.sleep(0.6 * LIMIT)
            super().reset(seed, options)

    house = House(lambda room, action: time.sleep(0.6 * LIMIT), num_turns=1)
    options = {"sampling": "tree", "num_candidates": 3, "num_threads": 3, "env_timeout": LIMIT, "seed": "s"}
    found = play([{"seed": 0}], make_env=lambda: Tired(house), engine=Patient(by_prompt), **options)
    assert (found.timed_out, found.retried, len(found.episodes)) == (0, 0, 1)
    assert house.most_inside[0] > 1


def test_an_environment_that_always_fails_says_so_as_ever(all_slow: None) -> None:
    def fail(room: Room, action: str) -> None:
        raise OSError("it failed")

    for crash_reward in (None, -1.0):
        house = House(fail)
        with pytest.raises(EnvironmentFailure, match=r"OSError at the instance \{'seed': 0\}: it failed"):
            house.play(num_rows=1, num_threads=3, crash_reward=crash_reward)
        assert {*map(id, house.closed)} == {*map(id, house.made)}
