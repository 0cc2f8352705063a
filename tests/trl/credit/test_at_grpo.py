"""Credit schemes on groups worked by hand. `std` is the unbiased deviation, and 1e-4 is TRL's guard against zero."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Sequence

import pytest
import torch
from trl.trainer.utils import nanstd

from decisions import decision
from pettingllms_trl.credit import Advantages, at_grpo, check_advantages, grpo, resolve
from pettingllms_trl.credit.schemes import SCHEMES
from pettingllms_trl.records import Decision


EPSILON = 1e-4
NAMES = ", ".join(SCHEMES)


# One agent's two groups, 1 0 and 4 0, beside another agent's 100 0. Means 0.5, 2 and 50.
#   group: std of (1, 0) is sqrt(1/2), of (4, 0) sqrt(8), of (100, 0) sqrt(5000)
#   batch: std of (1, 0, 4, 0), mean 1.25, is sqrt((0.0625 + 1.5625 + 7.5625 + 1.5625) / 3) = sqrt(10.75 / 3)
@pytest.mark.parametrize(
    ("scale", "divisors"),
    [
        ("group", (math.sqrt(0.5) + EPSILON, math.sqrt(8) + EPSILON, math.sqrt(5000) + EPSILON)),
        ("batch", (math.sqrt(10.75 / 3) + EPSILON, math.sqrt(10.75 / 3) + EPSILON, math.sqrt(5000) + EPSILON)),
        ("none", (1, 1, 1)),
    ],
)
def test_at_grpo_subtracts_the_groups_mean_and_divides_by_the_scale(scale: str, divisors: tuple[float, ...]) -> None:
    decisions = [decision("a", [1, 0]), decision("b", [100, 0]), decision("a", [4, 0], turn=1)]
    first, other, second = at_grpo(decisions, scale=scale)
    assert first == pytest.approx([0.5 / divisors[0], -0.5 / divisors[0]], rel=1e-6)
    assert second == pytest.approx([2 / divisors[1], -2 / divisors[1]], rel=1e-6)
    assert other == pytest.approx([50 / divisors[2], -50 / divisors[2]], rel=1e-6)


@pytest.mark.parametrize("scale", ["group", "batch", "none"])
def test_at_grpo_is_trls_own_formula_to_the_last_bit(scale: str) -> None:
    drawn = random.Random(0)
    rewards = [[drawn.gauss(0, 1) for _ in range(8)] for _ in range(16)]
    rows = torch.tensor(rewards)  # GRPOTrainer._generate_and_score_completions, with its names for the scales
    expected = rows - torch.nanmean(rows, dim=1, keepdim=True)
    if scale != "none":
        std = nanstd(rows, dim=1, keepdim=True) if scale == "group" else nanstd(rows)
        expected = expected / (std + EPSILON)
    assert at_grpo([decision("a", row, turn=t) for t, row in enumerate(rewards)], scale=scale) == expected.tolist()


def test_at_grpo_gives_the_docstrings_example() -> None:
    assert at_grpo([decision("a", [1, 0, 0, 1])]) == [pytest.approx([0.866, -0.866, -0.866, 0.866], abs=5e-4)]


@pytest.mark.parametrize("scale", ["group", "batch", "none"])
def test_a_group_of_equal_rewards_gets_zeros(scale: str) -> None:
    assert at_grpo([decision("a", [0.7, 0.7, 0.7])], scale=scale) == [[0.0, 0.0, 0.0]]


@pytest.mark.parametrize("scale", ["group", "batch", "none"])
def test_at_grpo_sums_to_zero_over_every_group(scale: str) -> None:
    groups = [[0.1, 0.9, -0.4, 2.0], [5.0, 5.0, 5.0, 5.5], [-1.0, 0.0, 0.0, 0.0]]
    decisions = [decision(agent, rewards, turn=t) for agent in ("a", "b") for t, rewards in enumerate(groups)]
    for advantages in at_grpo(decisions, scale=scale):
        assert sum(advantages) == pytest.approx(0, abs=1e-6)


def test_a_role_is_judged_by_its_own_candidates_even_when_another_agent_comes_first() -> None:
    first, second = at_grpo([decision("drafter_0", [3, 3]), decision("planner_0", [0, 1])], scale="none")
    assert first == [0, 0]
    assert second == [-0.5, 0.5]


# Agent a decides three times in each of three episodes and returns 6, 3, 0: mean 3, std 3.
# Agent b decides once in episodes 0 and 1 and never in episode 2, and returns 2, 4: mean 3, std sqrt(2).
RETURNS = {"a": {0: 6.0, 1: 3.0, 2: 0.0}, "b": {0: 2.0, 1: 4.0}}


def episodes_of_three() -> list[Decision]:
    return [
        decision(agent, [0.0], episode=episode, turn=turn, total=returned)
        for agent, returns in RETURNS.items()
        for episode, returned in returns.items()
        for turn in range(3 if agent == "a" else 1)
    ]


@pytest.mark.parametrize(
    ("scale", "a", "b"),
    [
        ("group", 3 / (3 + EPSILON), 1 / (math.sqrt(2) + EPSILON)),
        ("batch", 3 / (3 + EPSILON), 1 / (math.sqrt(2) + EPSILON)),
        ("none", 3, 1),
    ],
)
def test_grpo_gives_every_decision_of_an_episode_that_episodes_advantage(scale: str, a: float, b: float) -> None:
    advantages = [value for (value,) in grpo(episodes_of_three(), scale=scale)]
    assert advantages == pytest.approx([a, a, a, 0, 0, 0, -a, -a, -a, -b, b], rel=1e-6, abs=1e-7)


def test_grpo_compares_episodes_of_one_instance_only() -> None:
    decisions = [decision("a", [0.0], instance=i, episode=e, total=100.0 * i + e) for i in (0, 1) for e in (0, 1)]
    assert grpo(decisions, scale="none") == [[-0.5], [0.5], [-0.5], [0.5]]


def test_grpo_scales_by_the_deviation_of_all_the_agents_episodes_under_batch() -> None:
    # Returns 0 1 and 100 101: std of all four, mean 50.5, is sqrt((50.5^2 + 49.5^2 + 49.5^2 + 50.5^2) / 3).
    decisions = [decision("a", [0.0], instance=i, episode=e, total=100.0 * i + e) for i in (0, 1) for e in (0, 1)]
    std = math.sqrt((2 * 50.5**2 + 2 * 49.5**2) / 3)
    assert [v for (v,) in grpo(decisions, scale="batch")] == pytest.approx([-0.5 / std, 0.5 / std] * 2, rel=1e-5)


def test_an_agent_that_acts_in_a_single_episode_of_an_instance_has_no_peers_and_gets_zero() -> None:
    assert grpo([decision("a", [0.0], total=5.0), decision("b", [0.0], total=1.0)]) == [[0.0], [0.0]]


@pytest.mark.parametrize(
    ("credit", "sampling", "message"),
    [
        ("at_grop", "tree", rf"no credit scheme 'at_grop'\. Did you mean 'at_grpo'\? Known: {NAMES}; or give a"),
        ("ppo9999", "tree", rf"no credit scheme 'ppo9999'.*Known: {NAMES}"),
        ("grpo", "tree", r"credit='grpo' with sampling='tree'.* Set sampling='parallel' or choose another credit"),
        ("at_grpo", "parallel", r"credit='at_grpo' with sampling='parallel'.* Set sampling='tree'"),
    ],
)
def test_a_name_that_is_unknown_or_needs_other_sampling_is_refused(credit: str, sampling: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        resolve(credit, sampling=sampling, scale="group", num_candidates=4)


def test_what_is_neither_a_name_nor_a_function_is_refused() -> None:
    with pytest.raises(
        TypeError, match=rf"credit is 3, expected a name \({NAMES}\), a name with options .*, or a function"
    ):
        resolve(3, sampling="tree", scale="group", num_candidates=4)


def best_of_k(decisions: Sequence[Decision]) -> Advantages:
    """+1 for the best candidates, -1 for the others: a scheme a researcher might write."""
    return [
        [1.0 if c.reward == max(s.reward for s in d.candidates) else -1.0 for c in d.candidates] for d in decisions
    ]


@pytest.mark.parametrize("sampling", ["tree", "parallel"])
def test_a_function_of_the_decisions_is_a_credit_scheme(sampling: str) -> None:
    assert resolve(best_of_k, sampling=sampling, scale="group", num_candidates=4) is best_of_k
    assert best_of_k([decision("a", [1, 0, 0])]) == [[1, -1, -1]]


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (lambda ds: [[0.0] * 4], r"advantages for 1 decisions, expected 8: return one sequence per decision"),
        (lambda ds: [[0.0] * 3 for _ in ds], r"\[0.0, 0.0, 0.0\] for decision 0 .*, expected 4 numbers, one per cand"),
        (lambda ds: [0.0 for _ in ds], r"0\.0 for decision 0 .*, expected 4 numbers"),
        (lambda ds: [[0.0, math.nan, 0.0, 0.0] for _ in ds], r"must be finite\. .*guard the division"),
        (lambda ds: [[0.0, 0.0, 0.0, math.inf] for _ in ds], r"must be finite"),
    ],
    ids=["decisions", "values", "no sequence", "nan", "inf"],
)
def test_a_function_that_returns_anything_else_is_refused_before_training(
    wrong: Callable[[Sequence[Decision]], Advantages], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        resolve(wrong, sampling="tree", scale="group", num_candidates=4)


def test_a_division_by_a_constant_groups_deviation_is_found_before_training() -> None:
    def unguarded(decisions: Sequence[Decision]) -> Advantages:
        return [[math.nan if d.candidates[0].reward == d.candidates[-1].reward else 1.0] * 4 for d in decisions]

    with pytest.raises(ValueError, match="A group whose rewards are all equal has deviation 0"):
        resolve(unguarded, sampling="tree", scale="group", num_candidates=4)


def test_a_complaint_names_the_decision() -> None:
    with pytest.raises(ValueError, match=r"for decision 1 \(b_0, turn 2\), expected 2 numbers"):
        check_advantages([[0, 0], [0]], [decision("a_0", [1, 2]), decision("b_0", [1, 2], turn=2)])
