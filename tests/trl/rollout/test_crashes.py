"""Replies that crash their environment, charged to who wrote them, and environments that fail by themselves, not."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any, ClassVar

import pytest

from group_checks import check_groups
from pettingllms_envs.failures import ServiceFailed
from pettingllms_trl.records import EnvironmentFailure, Request
from pettingllms_trl.rollout import Rollout
from plays import play
from schedules import Patient, Tidal, babble
from third_party import Relay


class Fragile(Relay):
    """Fails at a step where `breaks(action, calls)` says so; `calls` counts them over all environments."""

    def __init__(self, breaks: Callable[[str, int], bool], calls: list[str], closed: list[Any]) -> None:
        super().__init__()
        self.breaks, self.calls, self.closed = breaks, calls, closed
        self.failed = False

    def __deepcopy__(self, memo: Any) -> Fragile:
        twin = type(self)(self.breaks, self.calls, self.closed)
        vars(twin).update({**vars(self), "written": list(self.written)})
        return twin

    def reset(self, seed: int | None = None, options: dict[str, Any] | None = None) -> None:
        super().reset(seed, options)
        self.infos = {agent: {"outcome": {"success": False}} for agent in self.possible_agents}

    def step(self, action: str | None) -> None:
        assert not self.failed, "stepped after it had failed"
        if action is not None:
            self.calls.append(action)
            if self.breaks(action, len(self.calls)):
                self.failed = True
                raise RecursionError(f"cannot read {action!r}")
        super().step(action)

    def close(self) -> None:
        self.closed.append(self)


class FragileRestorable(Fragile):
    """The same with `snapshot` and `restore`; it shall not be copied."""

    def __deepcopy__(self, memo: Any) -> Fragile:
        raise AssertionError("copied, though it can be restored")

    def snapshot(self) -> dict[str, Any]:
        kept = {name: value for name, value in vars(self).items() if name not in ("breaks", "calls", "closed")}
        return {**kept, "written": list(self.written)}

    def restore(self, snapshot: dict[str, Any]) -> None:
        vars(self).update({**snapshot, "written": list(snapshot["written"])})


class FragileReplayed(Fragile):
    """The same where the replies are played again; it shall not be copied."""

    metadata: ClassVar[dict[str, Any]] = {**Fragile.metadata, "branching": "replay"}

    def __deepcopy__(self, memo: Any) -> Fragile:
        raise AssertionError("copied, though it can be replayed")


KINDS = pytest.mark.parametrize(
    "kind", [Fragile, FragileRestorable, FragileReplayed], ids=["copied", "restored", "replayed"]
)


class Workshop:
    """Plays with environments that break, and keeps what they were told and which were closed."""

    def __init__(self, kind: Any, breaks: Callable[[str, int], bool]) -> None:
        self.calls: list[str] = []
        self.closed: list[Any] = []
        self.pool: list[Any] = []
        self.make_env = partial(kind, breaks, self.calls, self.closed)

    def play(self, write: Any, *, num_rows: int = 1, **options: Any) -> Rollout:
        options = {"sampling": "tree", "num_candidates": 3, "crash_reward": -7.0, "engine": Tidal(write), **options}
        rows = [{"seed": seed} for seed in range(num_rows)]
        return play(rows, make_env=self.make_env, pool=self.pool, seed="s", **options)


def bomb(action: str, calls: int) -> bool:
    return "!" in action


def second_of_the_opener(ticket: int, request: Request, k: int) -> str:
    """Each opener's second candidate is a bomb. Of the others, those with more A are better."""
    return ["Z", "!", "A"][k] if request.agent == "opener_0" else ["Z", "A", "ZZ"][k]


@KINDS
def test_a_reply_that_crashes_it_again_is_charged_and_its_siblings_are_scored_as_ever(kind: Any) -> None:
    workshop = Workshop(kind, bomb)
    found = workshop.play(second_of_the_opener)
    (episode,) = found.episodes
    check_groups(found.episodes, num_candidates=3)
    assert [[c.reward for c in d.candidates] for d in episode.decisions] == [[0, -7, 1], [0, 1, 0]] * 2
    assert [d.played.completion.text for d in episode.decisions] == ["A", "A", "A", "A"]
    assert episode.decisions[0].candidates[1].parts == {"crash": -7.0}
    assert episode.returns == {"opener_0": 2.0, "closer_0": 2.0}
    assert (found.retried, found.dropped) == (0, {})
    said = "RecursionError at the instance {'seed': 0} after '!': cannot read '!'"
    assert list(found.crashed) == [said, said]
    # Once, once more, and nothing in its place; then the third candidate.
    assert workshop.calls[:5] == ["Z", "!", "!", "", "A"]
    assert len(workshop.pool) == 1
    assert not workshop.pool[0].failed


@KINDS
def test_a_charged_reply_is_in_nothing_that_follows_and_is_not_continued(kind: Any) -> None:
    def best_crashes(ticket: int, request: Request, k: int) -> str:
        return second_of_the_opener(ticket, request, k) if request.num_candidates == 3 else "Z"

    found = Workshop(kind, bomb).play(best_crashes, num_continuations=1)
    first = found.episodes[0].decisions[0]
    assert [c.continuations for c in first.candidates] == [(0.0,), (0.0,), (0.0,)]
    assert "!" not in found.episodes[0].decisions[1].prompt.messages[0]["content"]


@KINDS
@pytest.mark.parametrize("sampling", ["tree", "parallel"])
def test_where_all_candidates_crash_it_the_episode_ends_with_the_charge(kind: Any, sampling: str) -> None:
    def later(ticket: int, request: Request, k: int) -> str:
        return "!" * (1 + k) if request.agent == "closer_0" else "A"

    found = Workshop(kind, bomb).play(later, sampling=sampling)
    assert len(found.episodes) == (1 if sampling == "tree" else 3)
    for episode in found.episodes:
        assert [d.agent for d in episode.decisions] == ["opener_0", "closer_0"]
        assert {c.reward for c in episode.decisions[1].candidates} == {-7.0}
        assert episode.returns == {"opener_0": 1.0, "closer_0": -7.0}
        assert episode.outcome == {"success": False}


@KINDS
def test_one_that_does_not_crash_it_a_second_time_is_not_to_blame(kind: Any) -> None:
    workshop = Workshop(kind, lambda action, calls: calls == 2)  # the second step of all, whatever it is told
    found = workshop.play(second_of_the_opener)
    assert (found.retried, found.dropped, list(found.crashed)) == (1, {}, [])
    assert [d.candidates[1].reward for d in found.episodes[0].decisions] == [1, 1, 1, 1]


@KINDS
def test_an_environment_that_takes_no_reply_at_all_is_at_fault_itself(kind: Any) -> None:
    with pytest.raises(
        EnvironmentFailure,
        match=r"1 of 1 instances were dropped.*RecursionError.*Fix it, or what it needs.*set crash_reward",
    ):
        Workshop(kind, lambda action, calls: calls > 3).play(babble)


@KINDS
def test_a_crash_of_another_kind_the_second_time_is_not_the_replys(kind: Any) -> None:
    class Whimsical(kind):
        def step(self, action: str | None) -> None:
            if action == "!" and self.calls.count("!") % 2:
                self.calls.append("!")
                raise OSError("the disk is full")
            super().step(action)

    found = Workshop(Whimsical, bomb).play(
        lambda ticket, request, k: ["Z", "!", "A"][k] if ticket < 3 else "A", num_rows=3
    )
    assert list(found.crashed) == []
    assert found.retried == 3


@KINDS
def test_a_service_that_only_some_replies_need_is_never_charged_to_them(kind: Any) -> None:
    class Searching(kind):
        def step(self, action: str | None) -> None:
            if action == "!":
                raise ServiceFailed("the retriever does not answer")
            super().step(action)

    with pytest.raises(EnvironmentFailure, match=r"1 of 1 instances were dropped.*ServiceFailed"):
        Workshop(Searching, lambda action, calls: False).play(second_of_the_opener)


@KINDS
def test_without_a_charge_a_crash_is_the_environments_failure(kind: Any) -> None:
    with pytest.raises(EnvironmentFailure, match="1 of 1 instances were dropped because their environment"):
        Workshop(kind, bomb).play(second_of_the_opener, crash_reward=None)


@KINDS
def test_a_charge_changes_nothing_where_nothing_crashes(kind: Any) -> None:
    plain = Workshop(Relay, bomb)
    plain.make_env = Relay
    expected = plain.play(babble, num_rows=4, crash_reward=None)
    found = Workshop(kind, bomb).play(babble, num_rows=4, engine=Patient(babble), num_threads=2)
    without_outcome = [[replace(d, success=None) for d in e.decisions] for e in found.episodes]  # Relay reports none
    assert without_outcome == [[*e.decisions] for e in expected.episodes]
