"""Rewards with their parts weighed anew, worked by hand."""

from __future__ import annotations

import math
from typing import Any

import pytest

from decisions import candidate, decision_of
from pettingllms_trl.credit import at_grpo, check_weights, counterfactual, magrpo, reweighed, weigh
from pettingllms_trl.records import Decision


PARTS = {"progress": 0.5, "success": 1.0, "format": -0.2}  # 1.3
TEAM = ("progress", "success")


@pytest.mark.parametrize(
    ("weights", "alpha", "expected"),
    [
        ({}, None, 1.3),
        ({"format": 2.0}, None, 1.1),
        ({"format": 0.0, "progress": 0.0}, None, 1.0),
        ({}, 1.0, 1.3),
        ({}, 0.5, 0.55),
        ({"format": 2.0}, 0.5, 0.35),
        ({"success": 3.0}, 2.0, 6.8),  # 2 * (0.5 + 3) - 0.2
        ({}, 0.0, -0.2),
        ({"elsewhere": 9.0}, None, 1.3),  # a part that this step does not have
    ],
)
def test_a_reward_is_the_weighted_sum_of_its_parts(weights: dict[str, float], alpha: Any, expected: float) -> None:
    assert weigh(1.3, PARTS, weights=weights, alpha=alpha, team=TEAM) == pytest.approx(expected)


def test_without_weights_a_reward_is_left_as_it_is_to_the_last_bit() -> None:
    reward = 0.1 + 0.2 + 0.3
    assert weigh(reward, {"a": 0.3, "b": 0.2, "c": 0.1}, weights={}) == reward
    assert weigh(7.0, {}, weights={}) == 7.0  # an environment that names no parts


@pytest.mark.parametrize(
    ("reward", "parts", "message"),
    [
        (0.55, PARTS, r"a reward of 0\.55 has the parts progress 0\.5, success 1, format -0\.2, expected .*alpha=1"),
        (1.0, {}, r"a reward of 1 has the parts none, expected .*does not name them all"),
    ],
    ids=["the environment has an alpha of its own", "a third-party environment"],
)
def test_parts_that_do_not_add_up_to_the_reward_are_refused(
    reward: float, parts: dict[str, float], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        weigh(reward, parts, weights={"format": 2.0})


def test_alpha_without_the_teams_parts_is_refused() -> None:
    with pytest.raises(ValueError, match=r"alpha=0\.5 without the team's parts: progress, success, format could be"):
        weigh(1.3, PARTS, weights={}, alpha=0.5)


def decision(*rewards: dict[str, float]) -> Decision:
    candidates = [candidate(math.fsum(parts.values()), parts=parts, continuations=(1.0,)) for parts in rewards]
    return decision_of("planner_0", candidates, turn=1, episode_return=2.0, return_to_go=2.0)


def test_decisions_are_judged_by_other_weights() -> None:
    # 0.6 - 0.2 and 0.5: the second is the better, until the format counts nothing.
    played = [decision({"progress": 0.6, "format": -0.2}, {"progress": 0.5})]
    again = reweighed(played, parts={"format": 0.0})
    assert at_grpo(played, scale="none") == [pytest.approx([-0.05, 0.05])]
    assert at_grpo(again, scale="none") == [pytest.approx([0.05, -0.05])]
    assert again[0].candidates[0].parts == played[0].candidates[0].parts
    assert again[0].chosen == played[0].chosen


@pytest.mark.parametrize(
    ("scheme", "message"),
    [
        (magrpo, r"re-weighed after they had been played, so their returns are unknown"),
        (counterfactual, r"\[0, 0\] c"),
    ],
)
def test_returns_are_unknown_once_rewards_are_reweighed(scheme: Any, message: str) -> None:
    again = reweighed([decision({"progress": 0.6}, {"progress": 0.5})], parts={"progress": 2.0})
    with pytest.raises(ValueError, match=message):
        scheme(again)


def test_a_complaint_names_the_decision() -> None:
    with pytest.raises(ValueError, match=r"decision 0 \(planner_0, turn 1\): alpha=2 without the team's parts"):
        reweighed([decision({"progress": 0.6})], parts={}, alpha=2.0)


@pytest.mark.parametrize(
    ("weights", "alpha", "message"),
    [
        ({"progres": 2.0}, None, r"no reward part 'progres'\. Did you mean 'progress'\? Known: progress, success, fo"),
        ({"progress": math.nan}, None, r"the weight of the reward part 'progress' is nan, expected a finite number"),
        ({}, -1.0, r"alpha=-1\.0, expected the weight of the team's rewards, finite and at least 0"),
        ({}, math.inf, r"alpha=inf"),
    ],
)
def test_a_weight_that_cannot_be_meant_is_refused(weights: dict[str, float], alpha: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        check_weights(weights, alpha, known=PARTS)


def test_sound_weights_pass() -> None:
    check_weights({"progress": 0.0, "format": -1.0}, 0.0, known=PARTS)
    check_weights({}, None, known=())
