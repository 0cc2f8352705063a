"""How an environment is branched is declared, and states are the same however they are come back to."""

from __future__ import annotations

import copy
import pickle
import random
import re
from functools import partial
from typing import Any

import pytest
from pettingzoo.utils import BaseWrapper

import pettingllms_envs
from clients import Count, RestorableCount, Transcript
from hosted import Hosted, HostedCopy, Server
from pettingllms_envs import plan_path_v0
from pettingllms_envs.branching import (
    ReplayError,
    ReplayPoint,
    ReplayWrapper,
    branchable,
    branching_of,
    check_replayable,
    save_state,
)
from pettingllms_envs.episodes.replay import replay
from pettingllms_envs.research import influence
from pettingllms_envs.testing import check


class Copied(BaseWrapper):
    """Says itself how it is copied."""

    def __deepcopy__(self, memo: Any) -> Any:
        return type(self)(copy.deepcopy(self.env, memo))


def declaring(kind: type, mode: Any) -> Any:
    return type(kind.__name__, (kind,), {"metadata": {**kind.metadata, "branching": mode}})()


# ---- What is declared -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("make_env", "mode"),
    [
        (RestorableCount, "snapshot"),
        (Count, "copy"),
        (lambda: Transcript(RestorableCount()), "snapshot"),
        (lambda: Copied(RestorableCount()), "copy"),
        (partial(plan_path_v0.env, size=4), "snapshot"),
        (partial(declaring, RestorableCount, "snapshot"), "snapshot"),
        (partial(declaring, RestorableCount, "copy"), "copy"),
        (partial(declaring, RestorableCount, "replay"), "replay"),
        (lambda: Transcript(declaring(Count, "none")), "none"),
    ],
)
def test_an_environment_is_branched_as_it_declares_or_else_by_what_it_has(make_env: Any, mode: str) -> None:
    assert branching_of(make_env()) == mode


@pytest.mark.parametrize(
    ("kind", "declared", "message"),
    [
        (
            Count,
            "fork",
            r"'count_v0' has metadata\[\"branching\"\] = 'fork'; expected one of 'snapshot', 'copy', 'rep",
        ),
        (Count, "snapshot", r"= 'snapshot', but no snapshot\(\) and restore\(\); .* Add them, or declare 'copy'"),
    ],
)
def test_a_wrong_declaration_raises_with_what_was_expected(kind: type, declared: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        branching_of(declaring(kind, declared))


def test_only_an_environment_that_is_replayed_is_wrapped_and_once() -> None:
    for env in (Count(), RestorableCount(), plan_path_v0.env(size=4)):
        assert branchable(env) is env
    replayed = branchable(declaring(Count, "replay"))
    assert isinstance(replayed, ReplayWrapper)
    assert branchable(replayed) is replayed
    with pytest.raises(ValueError, match=r"= 'none', so that only one .* Set sampling=\"parallel\""):
        branchable(declaring(Count, "none"))


# ---- Replay ---------------------------------------------------------------------------------------------------------


class Calls(Count):
    """Notes how it is called."""

    def __init__(self) -> None:
        self.calls: list[Any] = []
        super().__init__()

    def reset(self, seed: int | None = None, options: dict[str, Any] | None = None) -> None:
        self.calls.append(("reset", seed, options))
        super().reset(seed, options)

    def step(self, action: str | None) -> None:
        self.calls.append(action)
        super().step(action)


def after(*actions: str, options: dict[str, Any] | None = None) -> tuple[ReplayWrapper, Calls]:
    inner = Calls()
    env = ReplayWrapper(inner)
    env.reset(seed=7, options=options)
    for action in actions:
        env.step(action)
    inner.calls.clear()
    return env, inner


def test_a_state_is_reached_by_the_same_reset_and_the_same_steps() -> None:
    env, inner = after("1", "2", options={"level": 3})
    point = env.snapshot()
    assert (point.seed, point.options, point.actions) == (7, {"level": 3}, ("1", "2"))
    env.step("8")
    inner.calls.clear()
    env.restore(point)
    assert inner.calls == [("reset", 7, {"level": 3}), "1", "2"]
    assert (inner.sum, inner.agent_selection, inner.rewards) == (3, "one", {"one": 0.0, "other": 3.0})


def test_no_step_is_taken_twice_on_the_way_to_a_state() -> None:
    point = after("1", "2", "3")[0].snapshot()
    for on_the_way, missing in (((), ["1", "2", "3"]), (("1",), ["2", "3"]), (("1", "2", "3"), [])):
        env, inner = after(*on_the_way)
        env.restore(point)
        assert inner.calls == missing
        assert inner.sum == 6


@pytest.mark.parametrize("reset", [{"seed": 8}, {"seed": 7, "options": {"level": 1}}], ids=["seed", "options"])
def test_another_instance_is_reset_even_at_the_same_actions(reset: Any) -> None:
    env, inner = after()
    point = env.snapshot()
    env.reset(**reset)
    inner.calls.clear()
    env.restore(point)
    assert inner.calls == [("reset", 7, None)]


def test_dead_steps_are_replayed() -> None:
    env, inner = after("1", "1", "1", "1")
    env.step(None)
    point = env.snapshot()
    env.step(None)
    assert inner.agents == []
    env.restore(point)
    assert inner.agents == ["other"]


def test_after_an_error_it_is_reset_for_its_state_is_unknown() -> None:
    env, inner = after("1")
    point = env.snapshot()
    with pytest.raises(ValueError, match="invalid literal"):
        env.step("no number")
    with pytest.raises(RuntimeError, match=r"snapshot\(\) before reset\(\), or after an error"):
        env.snapshot()
    env.restore(point)
    assert (inner.sum, inner.num_steps) == (1, 1)


def test_each_call_of_the_environment_is_told_so_that_it_is_timed_by_itself() -> None:
    env, _ = after("1", "2")
    point = env.snapshot()
    env.step("3")
    told: list[int] = []
    env.restore(point, lambda: told.append(1))
    assert len(told) == 3  # a reset and two steps


def test_a_state_is_good_for_another_environment_and_survives_pickling() -> None:
    server = Server()
    env, other = ReplayWrapper(Hosted(server)), ReplayWrapper(Hosted(server))
    env.reset(seed=3)
    env.step("Moves: R")
    other.restore(pickle.loads(pickle.dumps(env.snapshot())))
    assert other.state_hash() == env.state_hash()
    assert other.session != env.session


def test_an_episode_without_a_seed_cannot_be_replayed() -> None:
    env = ReplayWrapper(Count())
    env.reset()
    with pytest.raises(ValueError, match=r"reset\(\) got no seed; expected one, to replay the episode"):
        env.snapshot()


class Unseeded(Count):
    """Shows a number that no seed determines."""

    def observe(self, agent: str) -> str:
        return f"sum {self.sum} of {self.luck}"

    def reset(self, seed: int | None = None, options: dict[str, Any] | None = None) -> None:
        super().reset(seed, options)
        self.luck = random.Random().random()


def test_a_replay_that_leads_elsewhere_names_the_first_difference() -> None:
    env = ReplayWrapper(Unseeded())
    env.reset(seed=3)
    point = env.snapshot()
    env.step("1")
    with pytest.raises(ReplayError, match=r"'count_v0' .* not deterministic: reset\(seed=3\) and 0 steps, .* \(obs"):
        env.restore(point)


def test_an_error_of_a_replay_is_one_of_the_environment() -> None:
    env, inner = after("1")
    point = env.snapshot()
    env.step("2")
    inner.step = lambda action: 1 / 0  # type: ignore[method-assign,assignment]
    with pytest.raises(ReplayError, match=r"raised ZeroDivisionError: .* when reset\(seed=7\) and 1 step were played"):
        env.restore(point)


def test_what_two_readings_of_one_state_differ_in_is_not_compared() -> None:
    class Noisy(Count):
        def observe(self, agent: str) -> str:
            return f"{random.Random().random()}"

    env = ReplayWrapper(Noisy())
    env.reset(seed=3)
    point = env.snapshot()
    env.step("1")
    env.restore(point)
    assert env.sum == 0


def test_a_wrapper_inside_is_replayed_with_the_environment_and_one_around_it_is_restored() -> None:
    env = Transcript(ReplayWrapper(Transcript(Count())))
    env.reset(seed=3)
    env.step("1")
    saved = save_state(env)
    assert saved is not None
    assert isinstance(saved.snapshot, ReplayPoint)
    env.step("2")
    saved.restore(env)
    assert env.observe("one") == "sum 1\nSaid so far: 1\nSaid so far: 1"


# ---- The conformance suite ------------------------------------------------------------------------------------------

BRANCHES = ["snapshots", "branches"]


@pytest.mark.parametrize(
    ("make_env", "how"),
    [
        (
            lambda: Hosted(Server()),
            "by playing the same replies again, as metadata[\"branching\"] = 'replay' declares",
        ),
        (
            partial(plan_path_v0.env, size=4),
            "by snapshot() and restore(), as metadata[\"branching\"] = 'snapshot' decl",
        ),
        (lambda: Copied(plan_path_v0.env(size=4)), "by copying it, as a wrapper defines how"),
    ],
)
def test_the_suite_branches_as_is_declared_and_says_how(make_env: Any, how: str) -> None:
    report = check(make_env, seeds=range(2), only=BRANCHES)
    assert report.ok, str(report)
    assert all(how in result.detail for result in report)


def test_the_suite_fails_a_hosted_environment_that_declares_a_copy_and_skips_one_that_declares_nothing() -> None:
    report = check(lambda: HostedCopy(Server()), seeds=range(2), only=BRANCHES)
    assert [result.status for result in report] == ["failed", "failed"]
    kind = type("HostedOnce", (Hosted,), {"metadata": {**Hosted.metadata, "branching": "none"}})
    report = check(lambda: kind(Server()), seeds=range(2), only=BRANCHES)
    assert [result.detail for result in report] == ["it declares metadata[\"branching\"] = 'none'"] * 2


# ---- Recorded episodes ----------------------------------------------------------------------------------------------


AGAIN = r"= 'none', .* expected another mode, to play a recorded episode again"


def test_an_episode_of_an_environment_that_declares_none_is_not_played_again() -> None:
    check_replayable(Hosted(Server()))
    with pytest.raises(ValueError, match=AGAIN):
        replay(declaring(Count, "none"), {})


def test_the_influence_of_roles_is_not_measured_in_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pettingllms_envs, "make", lambda name, **settings: declaring(Count, "none"))
    header = {"kind": "bench", "config": {"env": "count_v0", "settings": {}}}
    rows = [{"steps": [{"agent": "one", "reply": "1"}], "error": None}]
    assert re.search(AGAIN, str(influence.of_roles(header, lambda: rows, num_replies=1)))
