"""The schemes beside AT-GRPO and GRPO, on rollouts worked by hand, and the door that they come through.

Where no scale is named it is "none", so that a number is a number minus a mean.
"""

from __future__ import annotations

import json
import math
import random
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import pytest
import torch
from trl.trainer.utils import nanstd

from decisions import candidate, decision_of
from pettingllms_trl.credit import (
    Advantages,
    RunningBaseline,
    Stateful,
    at_grpo,
    best,
    counterfactual,
    dr_mas,
    gigpo,
    grpo,
    loo,
    magrpo,
    max_rl,
    name_of,
    nonzero_variance,
    rae,
    resolve,
    resolve_filter,
)
from pettingllms_trl.credit.grouping import numbers_of
from pettingllms_trl.credit.schemes import success
from pettingllms_trl.records import Decision, Prompt


EPSILON = 1e-4


def choice(
    agent: str,
    rewards: Sequence[float],
    *,
    states: Sequence[str | None] | None = None,
    continuations: Sequence[tuple[float, ...]] | None = None,
    prompt_ids: tuple[int, ...] = (0,),
    chosen: int = 0,
    **given: Any,
) -> Decision:
    """A decision whose first candidate goes on, unless `chosen` says so; `to_go` and `total` are its returns."""
    to_go = given.pop("to_go", rewards[chosen])
    total = given.pop("total", to_go)
    candidates = [
        candidate(reward, state=states[k] if states else None, continuations=continuations[k] if continuations else ())
        for k, reward in enumerate(rewards)
    ]
    prompt = Prompt([{"role": "user", "content": "?"}], prompt_ids)
    return decision_of(
        agent, candidates, chosen=chosen, prompt=prompt, episode_return=total, return_to_go=to_go, **given
    )


def flat(advantages: Advantages) -> list[float]:
    return [value for row in advantages for value in row]


# ---- Values ---------------------------------------------------------------------------------------------------------

# An agent decides twice. First its candidates are paid 2, 1.5 and 1, and the first goes on; it is paid 0.5 more while
# others act, then it chooses between 1 and 2.5, and the second goes on: 2 + 0.5 + 2.5 = 5 in all.
SPINE = [
    choice("a", [2, 1.5, 1], states=["x", "x", "y"], to_go=5, turn=0),
    choice("a", [1, 2.5], states=["v", "w"], chosen=1, to_go=2.5, total=5, turn=1),
]


@pytest.mark.parametrize(
    ("value", "gamma", "expected"),
    [
        ("reward", 1.0, [2, 1.5, 1, 1, 2.5]),
        ("return_to_go", 1.0, [5, 4.5, 1, 1, 2.5]),  # the second sibling reached the first one's state: 1.5 + 3
        ("return_to_go", 0.4, [3.5, 3, 1, 1, 2.5]),  # 2.5 up to the next decision, then 0.4 * 2.5; 1.5 + 1.5
        ("return_to_go", 0.0, [2.5, 2, 1, 1, 2.5]),
        ("outcome", 1.0, [5, 4.5, 1, 3.5, 5]),  # the second decision's with the 2.5 from before it
    ],
)
def test_a_candidate_is_judged_by_its_step_by_what_follows_or_by_the_whole(
    value: Any, gamma: float, expected: list[float]
) -> None:
    assert flat(numbers_of(SPINE, value, gamma)) == pytest.approx(expected)


def test_what_follows_the_played_candidate_is_not_counted_for_a_sibling_where_states_have_no_name() -> None:
    assert numbers_of([choice("a", [2, 1.5, 1], to_go=5)], "return_to_go") == [[5, 1.5, 1]]


def test_the_order_of_decisions_does_not_change_their_discounted_returns() -> None:
    there, back = numbers_of(SPINE, "return_to_go", 0.4), numbers_of(SPINE[::-1], "return_to_go", 0.4)
    assert there == back[::-1]


def test_an_agents_discount_steps_over_its_own_decisions_alone() -> None:
    with_another = [SPINE[0], choice("b", [7, 0], to_go=7), SPINE[1]]
    assert numbers_of(with_another, "return_to_go", 0.4) == [
        pytest.approx([3.5, 3, 1]),
        [7, 0],
        pytest.approx([1, 2.5]),
    ]


@pytest.mark.parametrize(
    ("value", "gamma", "message"),
    [
        ("return_to_go", 1.5, r"gamma=1\.5, expected a discount from 0 to 1"),
        ("return_to_go", -0.1, r"gamma=-0\.1, expected a discount"),
        ("reward", 0.9, r"gamma=0\.9 with value='reward', which has no discount\. Set value='return_to_go'"),
        ("outcome", 0.9, r"gamma=0\.9 with value='outcome', which has no discount"),
    ],
)
def test_a_discount_that_would_do_nothing_or_harm_is_refused(value: Any, gamma: float, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        numbers_of(SPINE, value, gamma)


# ---- Trees ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("gamma", "expected"),
    # Numbers 5, 4.5, 1 with mean 3.5; 3.5, 3, 1 with mean 2.5. Then 1, 2.5 with mean 1.75.
    [(1.0, [1.5, 1, -2.5, -0.75, 0.75]), (0.4, [1, 0.5, -1.5, -0.75, 0.75])],
)
def test_magrpo_in_a_tree_adds_what_followed_to_the_played_candidate(gamma: float, expected: list[float]) -> None:
    assert flat(magrpo(SPINE, gamma=gamma)) == pytest.approx(expected)


@pytest.mark.parametrize(
    ("rewards", "expected"),
    [
        ([3, 0, 0], [3, -1.5, -1.5]),
        ([1, 1, 1, 0], [1 / 3, 1 / 3, 1 / 3, -1]),
        ([2, 2], [0, 0]),
        ([5], [0]),  # nobody to compare with
    ],
)
def test_leave_one_out_subtracts_the_mean_of_the_others(rewards: list[float], expected: list[float]) -> None:
    assert flat(loo([choice("a", rewards)])) == pytest.approx(expected, abs=1e-6)


def test_leave_one_out_is_the_groups_mean_stretched_by_k_over_k_minus_1() -> None:
    group = [choice("a", [0.3, -1.2, 4, 0.3, 2])]
    assert flat(loo(group)) == pytest.approx([5 / 4 * value for value in flat(at_grpo(group, scale="none"))], rel=1e-5)


@pytest.mark.parametrize(
    ("rewards", "expected"),
    [
        ([1, 0, 0, 0], [3, -1, -1, -1]),
        ([1, 1, 1, 0], [1 / 3, 1 / 3, 1 / 3, -1]),
        ([1, 1], [0, 0]),
        ([0, 0, 0], [0, 0, 0]),
        ([0.5, 1.5], [-0.5, 0.5]),
        ([3e-17, 0], [0, 0]),  # what is left of 0.3 - 0.1 - 0.2 is no success
        ([-3e-17, 0], [0, 0]),
    ],
)
def test_max_rl_divides_by_the_mean(rewards: list[float], expected: list[float]) -> None:
    assert flat(max_rl([choice("a", rewards)])) == pytest.approx(expected, abs=1e-6)


@pytest.mark.parametrize(
    ("rewards", "expected"),
    [
        ([1, 0, 1, 0.5], [1, 0, 1, 0]),
        ([0.1 + 0.2, 0.3, 0.0], [1, 1, 0]),  # one number in two roundings
        ([1.0, 1.0 - 2e-6, 0.0], [1, 0, 0]),
        ([-3, -1, -2], [0, 1, 0]),
        ([5, 5, 5], [0, 0, 0]),
        ([0.3, 0.1 + 0.2], [0, 0]),
        ([7], [0]),
        ([1e6, 1e6 - 1, 0], [1, 0, 0]),
    ],
)
def test_the_best_of_a_group_have_1_and_the_others_0(rewards: list[float], expected: list[float]) -> None:
    assert flat(best([choice("a", rewards)])) == expected


def test_the_best_of_several_episodes_have_the_highest_return_to_go_of_their_turn() -> None:
    decisions = [
        choice("a_0", [0.0], episode=episode, turn=turn, prompt_ids=(turn,), to_go=to_go, total=9.0)
        for episode, returns in enumerate([[3.0, 1.0], [2.0, 2.0], [3.0]])
        for turn, to_go in enumerate(returns)
    ]
    scheme = resolve("best", sampling="parallel", scale="group", num_candidates=3)
    assert flat(scheme(decisions)) == [1, 0, 0, 1, 1]


def test_the_replies_played_on_in_an_episode_that_succeeded_have_1() -> None:
    decisions = [
        choice("a", [0, 0, 0], chosen=1, success=won, episode=number) for number, won in enumerate((True, False))
    ]
    assert flat(success(decisions)) == [0, 1, 0, 0, 0, 0]
    assert flat(success([choice("a", [0, 0], success=0.5)])) == [0, 0]  # a share of the tests, say, is no success
    with pytest.raises(
        ValueError, match=r"1 of 3 decisions .* do not say if they succeeded; .* Set keep_fraction=0\.2"
    ):
        success([*decisions, choice("a", [0.0])])


@pytest.mark.parametrize(
    ("returns", "share", "expected"),
    [
        ([3, 1, 1, 0], 0.5, [1, 1, 1, 0]),
        ([3, 0, 0, 0], 0.5, [1, 0, 0, 0]),
        ([2, 2, 2, 2], 0.5, [0, 0, 0, 0]),
        ([5, 4, 3, 2], 0.01, [1, 0, 0, 0]),  # rounded up
        (range(15, 0, -1), 0.2, [1, 1, 1, *[0] * 12]),  # 0.2 * 15 is above 3
    ],
)
def test_the_share_of_episodes_with_the_highest_returns_to_an_agent_has_1(
    returns: Sequence[float], share: float, expected: list[float]
) -> None:
    decisions = [choice("a", [0.0], instance=number, total=total) for number, total in enumerate(returns)]
    of_another = [replace(each, agent="b", episode_return=-each.episode_return) for each in decisions]
    assert flat(success([*decisions, *of_another], keep_fraction=share))[: len(expected)] == expected


def test_max_rl_refuses_penalties_and_says_what_to_do() -> None:
    with pytest.raises(
        ValueError, match=r"the reward -0\.2 of 'b_0' at turn 3, expected at least 0.* Weigh the negative parts"
    ):
        max_rl([choice("a_0", [1, 0]), choice("b_0", [1, -0.2], turn=3)])


# a: 1 + (0 + 0) / 2 and 0 + (3 + 1) / 2, that is 1 and 2: mean 1.5, deviation sqrt(1/2).
# b: 2 + 0 and 0 + 0: mean 1, deviation sqrt(2).
@pytest.mark.parametrize(
    ("scale", "of_a", "of_b"),
    [("none", 0.5, 1), ("group", 0.5 / (math.sqrt(0.5) + EPSILON), 1 / (math.sqrt(2) + EPSILON))],
)
def test_counterfactual_adds_the_mean_of_the_continuations(scale: Any, of_a: float, of_b: float) -> None:
    decisions = [
        choice("a", [1, 0], continuations=[(0.0, 0.0), (3.0, 1.0)], to_go=99),
        choice("b", [2, 0], continuations=[(0.0,), (0.0,)]),
    ]
    assert flat(counterfactual(decisions, scale=scale)) == pytest.approx([-of_a, of_a, of_b, -of_b], rel=1e-6)


def test_counterfactual_without_continuations_of_each_candidate_is_refused() -> None:
    lacking = choice("b_0", [1, 0], continuations=[(0.0, 1.0), ()], turn=2)
    with pytest.raises(
        ValueError,
        match=r"decision 1 \(b_0, turn 2\) has \[2, 0\] continuations of its candidates, expected at least 1",
    ):
        counterfactual([choice("a_0", [1, 0], continuations=[(0.0,), (0.0,)]), lacking])


# ---- Episodes -------------------------------------------------------------------------------------------------------

# Agent a returns 6, 3, 0 in three episodes, and acts twice, twice and once; of the 6 and 3 there are 4 and 2 to go at
# its second decision. Agent b returns 1 in each.
EPISODES = [
    choice("a", [2], episode=0, turn=0, to_go=6, total=6),
    choice("b", [1], episode=0),
    choice("a", [4], episode=0, turn=1, to_go=4, total=6),
    choice("a", [1], episode=1, turn=0, to_go=3, total=3),
    choice("b", [1], episode=1),
    choice("a", [2], episode=1, turn=1, to_go=2, total=3),
    choice("a", [0], episode=2, turn=0, to_go=0, total=0),
    choice("b", [1], episode=2),
]


@pytest.mark.parametrize(
    ("scheme", "a"),
    [
        (partial(grpo, scale="none"), [3, 3, 0, 0, -3]),
        # By decisions: (6 + 6 + 3 + 3 + 0) / 5 = 3.6.
        (partial(dr_mas, scale="none"), [2.4, 2.4, -0.6, -0.6, -3.6]),
        # By turns: 6, 3, 0 with mean 3, then 4, 2 with mean 3.
        (magrpo, [3, 1, 0, -1, -3]),
        # First 2 + 0.5 * 4 = 4, 1 + 0.5 * 2 = 2 and 0, mean 2; then as before.
        (partial(magrpo, gamma=0.5), [2, 1, 0, -1, -2]),
        # The others' means are 1.5, 3, 4.5.
        (partial(loo, value="outcome"), [4.5, 4.5, 0, 0, -4.5]),
        # At the first turn 3 - 0, 2 - 1.5 ... of 2, 1, 0: others' means 0.5, 1, 1.5; at the second of 4, 2: 2, 4.
        (loo, [1.5, 2, 0, -2, -1.5]),
        (partial(max_rl, value="outcome"), [1, 1, 0, 0, -1]),
    ],
    ids=["grpo", "dr_mas", "magrpo", "magrpo discounted", "loo outcome", "loo reward", "max_rl"],
)
def test_decisions_of_k_episodes_are_compared(scheme: Callable[..., Advantages], a: list[float]) -> None:
    advantages = scheme(EPISODES)
    of_a = [value for d, (value,) in zip(EPISODES, advantages, strict=True) if d.agent == "a"]
    of_b = [value for d, (value,) in zip(EPISODES, advantages, strict=True) if d.agent == "b"]
    assert of_a == pytest.approx(a, abs=1e-6)
    assert of_b == [0, 0, 0]


def test_dr_mas_divides_by_the_deviation_of_the_agents_own_decisions() -> None:
    # Once 3 and twice 0: mean 1, deviation sqrt((4 + 1 + 1) / 2) = sqrt(3).
    decisions = [
        choice("a", [0], total=3),
        choice("a", [0], episode=1, total=0),
        choice("a", [0], episode=1, turn=1, total=0),
    ]
    divisor = math.sqrt(3) + EPSILON
    assert flat(dr_mas(decisions)) == pytest.approx([2 / divisor, -1 / divisor, -1 / divisor], rel=1e-6)
    assert flat(grpo(decisions, scale="none")) == [1.5, -1.5, -1.5]


# Episode 0 is in s, comes back to s and is then paid 1; episode 1 is in s once and is paid nothing; both have t last.
#   episodes: returns 1, 0, mean 0.5
#   s, with gamma 0.5: to go 0 + 0.5 * 1, 1, 0: mean 0.5
#   t: to go 0, 0
LOOP = [
    choice("a", [0], state="s", turn=0, to_go=1, total=1),
    choice("a", [1], state="s", turn=1, to_go=1, total=1),
    choice("a", [0], state="t", turn=2, to_go=0, total=1),
    choice("a", [0], state="s", episode=1, turn=0, to_go=0, total=0),
    choice("a", [0], state="t", episode=1, turn=1, to_go=0, total=0),
]
EPISODE_PART = 0.5 / (math.sqrt(0.5) + EPSILON)
STATE_PART = 0.5 / (0.5 + EPSILON)  # the deviation of 0.5, 1, 0 is sqrt((0 + 0.25 + 0.25) / 2) = 0.5


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"scale": "none", "gamma": 0.5}, [0.5, 1, 0.5, -1, -0.5]),
        ({"scale": "none", "gamma": 0.5, "step_weight": 2.0}, [0.5, 1.5, 0.5, -1.5, -0.5]),
        ({"scale": "none", "gamma": 1.0}, [0.5 + 1 / 3, 0.5 + 1 / 3, 0.5, -0.5 - 2 / 3, -0.5]),
        ({"scale": "none", "step_weight": 0.0}, [0.5, 0.5, 0.5, -0.5, -0.5]),
        (
            {"scale": "group", "gamma": 0.5},
            [EPISODE_PART, EPISODE_PART + STATE_PART, EPISODE_PART, -EPISODE_PART - STATE_PART, -EPISODE_PART],
        ),
    ],
)
def test_gigpo_adds_an_advantage_among_decisions_in_the_same_state(
    options: Mapping[str, Any], expected: list[float]
) -> None:
    assert flat(gigpo(LOOP, **options)) == pytest.approx(expected, rel=1e-6)


def test_gigpo_gives_the_docstrings_example() -> None:
    decisions = [
        choice("a", [0], state="start", turn=0, to_go=1, total=1),
        choice("a", [1], state="left", turn=1, to_go=1, total=1),
        choice("a", [0], state="start", episode=1, turn=0, to_go=0, total=0),
        choice("a", [0], state="right", episode=1, turn=1, to_go=0, total=0),
    ]
    assert flat(gigpo(decisions, scale="none", gamma=1.0)) == [1, 0.5, -1, -0.5]


def test_gigpo_takes_equal_prompts_for_equal_states_where_states_have_no_name() -> None:
    prompts = {"s": (1, 2), "t": (3,)}
    nameless = [replace(d, state=None, prompt=Prompt([], prompts[str(d.state)])) for d in LOOP]
    assert gigpo(nameless, gamma=0.5) == gigpo(LOOP, gamma=0.5)


def test_gigpo_compares_states_of_one_instance_and_one_agent_only() -> None:
    apart = [
        choice("a", [0], state="s", to_go=1, total=0),
        choice("a", [0], state="s", to_go=5, total=0, instance=1),
        choice("b", [0], state="s", to_go=9, total=0),
    ]
    assert gigpo(apart) == [[0], [0], [0]]


# ---- Running means --------------------------------------------------------------------------------------------------


def test_a_running_mean_is_read_before_it_takes_in_the_sample() -> None:
    decisions = [choice("a_0", [0], episode=e, total=1) for e in (0, 1)]
    advantages, after = rae(decisions, {}, value="outcome")
    assert flat(advantages) == [1, pytest.approx(0.95)]
    assert after == {"a": pytest.approx(0.0975)}


# With decay 0.5, a's baseline goes 4 -> (4 + 6) / 2 = 5 -> (5 + 3) / 2 = 4 -> (4 + 0) / 2 = 2, and b's 0 -> 0.5 ->
# 0.75 -> 0.875. All decisions of an episode are compared with the same one.
def test_an_episode_is_taken_in_once_and_each_role_has_its_own_mean() -> None:
    advantages, after = rae(EPISODES, {"a": 4.0}, decay=0.5, value="outcome")
    assert flat(advantages) == [6 - 4, 1 - 0, 6 - 4, 3 - 5, 1 - 0.5, 3 - 5, 0 - 4, 1 - 0.75]
    assert after == {"a": 2, "b": 0.875}


def test_agents_of_one_role_share_a_mean() -> None:
    decisions = [choice("solver_0", [0], total=4), choice("solver_1", [0], total=4)]
    advantages, after = rae(decisions, {}, decay=0.5, value="outcome")
    assert flat(advantages) == [4, 2]
    assert after == {"solver": 3}


def test_in_a_tree_a_decision_is_taken_in_once_by_the_mean_of_its_candidates() -> None:
    decisions = [choice("a_0", [3, 1]), choice("a_0", [3, 1], turn=1)]
    advantages, after = rae(decisions, {}, decay=0.5)
    assert advantages == [[3, 1], [2, 0]]  # 0 -> (0 + 2) / 2 = 1 -> (1 + 2) / 2 = 1.5
    assert after == {"a": 1.5}


def test_a_running_mean_goes_on_bit_for_bit_from_a_checkpoint() -> None:
    def rollout(seed: int) -> list[Decision]:
        return [choice("a_0", [seed / 7, 0.1]), choice("b_0", [seed / 3, 0.7])]

    one = RunningBaseline(decay=0.9)
    for seed in range(5):
        one(rollout(seed))
    saved = json.loads(json.dumps(one.state_dict()))
    other = RunningBaseline(decay=0.9)
    other.load_state_dict(saved)
    assert other(rollout(5)) == one(rollout(5))
    assert other.state_dict() == one.state_dict()


def test_what_a_running_mean_saved_does_not_change_after() -> None:
    scheme = RunningBaseline()
    scheme([choice("a_0", [1, 1])])
    saved = scheme.state_dict()
    scheme([choice("a_0", [1, 1])])
    assert saved == {"baselines": {"a": pytest.approx(0.05)}}


@pytest.mark.parametrize("decay", [0.0, 1.0, -1.0, 95.0])
def test_a_decay_out_of_range_is_refused(decay: float) -> None:
    with pytest.raises(ValueError, match=r"expected a number between 0 and 1, such as 0\.95"):
        RunningBaseline(decay=decay)


# ---- Every scheme ---------------------------------------------------------------------------------------------------

WORKS_WITH = {
    "at_grpo": ["tree"],
    "grpo": ["parallel"],
    "magrpo": ["tree", "parallel"],
    "loo": ["tree", "parallel"],
    "rae": ["tree", "parallel"],
    "gigpo": ["parallel"],
    "dr_mas": ["parallel"],
    "max_rl": ["tree", "parallel"],
    "best": ["tree", "parallel"],
    "success": ["parallel", "tree"],
    "counterfactual": ["tree"],
}
UNBASED = ("best", "success")
BY_NAME = [(name, sampling) for name, samplings in WORKS_WITH.items() for sampling in samplings]


def played(sampling: str, pay: Callable[[str, int, int], float]) -> list[Decision]:
    """Two instances, agents and turns and three candidates or episodes, paid by agent, turn and candidate's number."""
    width, num_episodes = (3, 1) if sampling == "tree" else (1, 3)
    decisions = []
    for instance in range(2):
        for episode in range(num_episodes):
            for turn in range(2):
                for agent in ("a_0", "b_0"):
                    rewards = [pay(agent, turn, instance + k + episode) for k in range(width)]
                    to_go = sum(pay(agent, t, instance + episode) for t in range(turn, 2))
                    total = sum(pay(agent, t, instance + episode) for t in range(2))
                    follows = [(2.0 * k, 0.0) for k in range(width)]
                    place = {"instance": instance, "episode": episode, "turn": turn, "to_go": to_go, "total": total}
                    place |= {"success": instance + episode > 0}
                    decisions.append(choice(agent, rewards, continuations=follows, prompt_ids=(turn,), **place))
    return decisions


def by_name(name: str, sampling: Any) -> Any:
    return resolve(name, sampling=sampling, scale="batch", num_candidates=3, num_continuations=2)


@pytest.mark.parametrize(("name", "sampling"), [case for case in BY_NAME if case[0] != "rae"])
def test_records_have_a_schemes_name_as_in_a_configuration(name: str, sampling: str) -> None:
    assert name_of(by_name(name, sampling)) == name


@pytest.mark.parametrize(("name", "sampling"), BY_NAME)
def test_no_agents_advantages_depend_on_what_another_agent_is_paid(name: str, sampling: str) -> None:
    def advantages(of_b: float) -> list[float]:
        decisions = played(sampling, lambda agent, turn, k: float(turn + k * k) * (1.0 if agent == "a_0" else of_b))
        rows = by_name(name, sampling)(decisions)
        return [value for d, row in zip(decisions, rows, strict=True) for value in row if d.agent == "a_0"]

    assert advantages(1.0) == advantages(1000.0)
    assert any(advantages(1.0))


@pytest.mark.parametrize(
    ("name", "sampling"), [pair for pair in BY_NAME if pair[0] not in ("rae", "counterfactual", "success")]
)
def test_a_rollout_in_which_all_were_paid_alike_teaches_nothing(name: str, sampling: str) -> None:
    decisions = played(sampling, lambda agent, turn, k: 0.7)
    if sampling == "tree" and name == "magrpo":
        decisions = decisions[2:4]  # at the last turn: before it, the played candidate alone has more to come
    assert flat(by_name(name, sampling)(decisions)) == pytest.approx([0] * len(flat_rewards(decisions)), abs=1e-5)


def flat_rewards(decisions: Sequence[Decision]) -> list[float]:
    return [candidate.reward for decision in decisions for candidate in decision.candidates]


@pytest.mark.parametrize(
    ("name", "sampling"),
    [pair for pair in BY_NAME if pair[0] not in ("rae", "gigpo", "dr_mas", "grpo", *UNBASED)],
)
def test_advantages_sum_to_zero_over_every_group(name: str, sampling: str) -> None:
    decisions = played(sampling, lambda agent, turn, k: float(turn + k * k))
    sums: dict[Any, float] = {}
    for i, (d, row) in enumerate(zip(decisions, by_name(name, sampling)(decisions), strict=True)):
        group = i if sampling == "tree" else (d.instance, d.agent, d.turn)
        sums[group] = sums.get(group, 0.0) + sum(row)
    assert list(sums.values()) == pytest.approx([0] * len(sums), abs=1e-5)


# ---- The door -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "sampling"),
    [(name, s) for name, works in WORKS_WITH.items() for s in ("tree", "parallel") if s not in works],
)
def test_a_scheme_says_which_sampling_it_needs(name: str, sampling: Any) -> None:
    needs = WORKS_WITH[name][0]
    with pytest.raises(ValueError, match=f"credit='{name}' with sampling='{sampling}'.* Set sampling='{needs}'"):
        resolve(name, sampling=sampling, scale="group", num_candidates=4, num_continuations=1)


@pytest.mark.parametrize("credit", [gigpo, partial(gigpo, gamma=1.0)])
def test_a_scheme_given_as_a_function_says_which_sampling_it_needs(credit: Any) -> None:
    with pytest.raises(ValueError, match=r"credit='gigpo' with sampling='tree'.* Set sampling='parallel'"):
        resolve(credit, sampling="tree", scale="group", num_candidates=4)


@pytest.mark.parametrize("function", [at_grpo, magrpo, loo, max_rl, best, counterfactual, grpo, dr_mas, gigpo])
def test_a_scheme_given_as_a_function_is_the_one_of_its_name(function: Any) -> None:
    sampling: Any = WORKS_WITH[function.__name__][-1]
    decisions = played(sampling, lambda agent, turn, k: float(turn + k * k))
    options: Any = {"sampling": sampling, "scale": "batch", "num_candidates": 3, "num_continuations": 2}
    assert resolve(function, **options)(decisions) == resolve(function.__name__, **options)(decisions)


def test_options_are_set_by_partial_and_the_rest_is_as_for_the_name() -> None:
    decisions = played("parallel", lambda agent, turn, k: float(turn + k * k))
    options: Any = {"sampling": "parallel", "scale": "none", "num_candidates": 3}
    assert resolve(partial(gigpo, gamma=0.5), **options)(decisions) == gigpo(decisions, scale="none", gamma=0.5)
    assert resolve(partial(loo, scale="batch"), **options)(decisions) == loo(decisions, value="outcome", scale="batch")
    assert resolve(partial(loo, value="reward"), **options)(decisions) == loo(decisions, value="reward")


@pytest.mark.parametrize("name", ["loo", "magrpo", "max_rl"])
def test_scale_rewards_is_for_the_schemes_whose_source_divides_by_a_deviation(name: str) -> None:
    decisions = played("tree", lambda agent, turn, k: float(turn + k * k))
    of = {s: resolve(name, sampling="tree", scale=s, num_candidates=3)(decisions) for s in ("group", "none")}
    assert of["group"] == of["none"]


def test_counterfactual_is_refused_where_the_rollout_continues_nothing() -> None:
    with pytest.raises(ValueError, match=r"credit='counterfactual' with 0 continuations of each candidate, expected"):
        resolve("counterfactual", sampling="tree", scale="group", num_candidates=4)


@pytest.mark.parametrize(
    ("credit", "sampling", "message"),
    [
        (partial(at_grpo, gamma=0.9), "tree", r"gamma=0\.9 with value='reward'"),
        (partial(gigpo, gamma=2.0), "parallel", r"gamma=2\.0, expected a discount"),
        (partial(RunningBaseline, decay=2.0), "tree", r"decay=2\.0, expected"),
    ],
)
def test_an_option_out_of_range_is_refused_before_training(credit: Any, sampling: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        resolve(credit, sampling=sampling, scale="group", num_candidates=4)


@pytest.mark.parametrize("credit", ["rae", RunningBaseline, RunningBaseline(decay=0.5)], ids=["name", "class", "own"])
def test_the_rollout_that_a_scheme_is_tried_on_leaves_no_trace_in_its_state(credit: Any) -> None:
    scheme = resolve(credit, sampling="tree", scale="group", num_candidates=4)
    assert isinstance(scheme, Stateful)
    assert scheme.state_dict() == {"baselines": {}}
    assert flat(scheme([choice("a_0", [3, 1])])) == [3, 1]


def test_a_users_own_scheme_with_a_state_is_put_back_as_it_was() -> None:
    class Counted:
        """At-GRPO that counts its calls, in a dict that it hands out and goes on changing."""

        def __init__(self) -> None:
            self.state = {"calls": 2}

        def __call__(self, decisions: Sequence[Decision], /) -> Advantages:
            self.state["calls"] += 1
            return at_grpo(decisions)

        def state_dict(self) -> dict[str, int]:
            return self.state

        def load_state_dict(self, state: dict[str, int]) -> None:
            self.state = state

    scheme = Counted()
    assert resolve(scheme, sampling="tree", scale="group", num_candidates=4) is scheme
    assert scheme.state == {"calls": 2}


def test_two_runs_do_not_share_a_running_mean() -> None:
    one, other = (resolve("rae", sampling="tree", scale="group", num_candidates=4) for _ in range(2))
    one([choice("a_0", [3, 1])])
    assert flat(other([choice("a_0", [3, 1])])) == [3, 1]


# ---- Precision ------------------------------------------------------------------------------------------------------

# 0.04, 0.06, 0 have mean 1/30 and deviation sqrt((0.0067^2 + 0.0267^2 + 0.0333^2) / 2) = 0.030551.
SMALL = [0.006667 / 0.030651, 0.026667 / 0.030651, -0.033333 / 0.030651]


@pytest.mark.parametrize("offset", [0.0, 1.0, 1e3, 1e6, -1e6])
@pytest.mark.parametrize("scale", ["group", "batch"])
def test_large_rewards_that_differ_little_are_told_apart(offset: float, scale: Any) -> None:
    (values,) = at_grpo([choice("a", [offset + 0.04, offset + 0.06, offset])], scale=scale)
    assert values == pytest.approx(SMALL, abs=1e-3)
    assert abs(sum(values)) < 1e-4


def test_large_rewards_that_are_equal_teach_nothing() -> None:
    (values,) = at_grpo([choice("a", [1e6 + 0.1] * 3)])
    assert values == pytest.approx([0, 0, 0], abs=1e-4)


def test_leave_one_out_of_large_rewards_keeps_their_differences() -> None:
    assert flat(loo([choice("a", [1e8 + 3, 1e8, 1e8])])) == pytest.approx([3, -1.5, -1.5])


def test_advantages_of_ordinary_rewards_are_trls_to_the_last_bit() -> None:
    rng = random.Random(0)
    for _ in range(200):
        rewards = [round(rng.uniform(-2, 2), rng.choice((1, 2, 9))) for _ in range(8)]
        row = torch.tensor(rewards)
        expected = (row - row.view(1, 8).nanmean(dim=1)) / (nanstd(row.view(1, 8), dim=1) + EPSILON)
        assert flat(at_grpo([choice("a", rewards)])) == expected.tolist()


# ---- The trial on a made-up rollout ---------------------------------------------------------------------------------


class Remembers:
    """A scheme and a filter that keep what they were given, without a state for checkpoints."""

    def __init__(self, result: Callable[[Sequence[Decision]], Any], held: Any = None) -> None:
        self.result, self.held, self.seen = result, held, list[Decision]()

    def __call__(self, decisions: Sequence[Decision], /) -> Any:
        self.seen += decisions
        return self.result(decisions)


def test_an_objects_memory_is_free_of_the_made_up_rollout() -> None:
    scheme = Remembers(at_grpo)
    assert resolve(scheme, sampling="tree", scale="none", num_candidates=2) is scheme
    kept = Remembers(nonzero_variance)
    assert resolve_filter(kept, sampling="tree") is kept
    assert scheme.seen == kept.seen == []
    shared = Remembers(at_grpo)
    resolve(partial(shared), sampling="tree", scale="none", num_candidates=2)
    assert shared.seen == []


@pytest.mark.parametrize(
    "held", [threading.Lock(), torch.ones(1, requires_grad=True) * 2], ids=["a lock", "a tensor with a graph"]
)
def test_an_object_that_cannot_be_copied_is_tried_itself(held: Any) -> None:
    scheme = Remembers(at_grpo, held=held)
    resolve(scheme, sampling="tree", scale="none", num_candidates=2)
    assert {decision.agent for decision in scheme.seen} == {"first_0", "second_0"}
