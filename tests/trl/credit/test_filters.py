"""Group filters, and how many rows are played for those they dropped, worked by hand."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import pytest

from decisions import candidate, decision_of
from pettingllms_trl.credit import (
    Kept,
    filters,
    first_rows,
    nonzero_variance,
    resolve,
    resolve_filter,
    rows_to_play,
    signal_to_noise,
)
from pettingllms_trl.credit.grouping import same_turn
from pettingllms_trl.records import Decision


def choice(
    agent: str,
    rewards: Sequence[float],
    *,
    total: float = 0.0,
    to_go: float = 0.0,
    after: Sequence[float] = (),
    **place: int,
) -> Decision:
    """`after`: what the one continuation of each candidate paid."""
    continuations = [(paid,) for paid in after] or [()] * len(rewards)
    candidates = [candidate(reward, continuations=paid) for reward, paid in zip(rewards, continuations, strict=True)]
    return decision_of(agent, candidates, episode_return=total, return_to_go=to_go, **place)


# Variances of the groups: a 8, 2, 0.5, 0; b 0, 0.5.
TREE = [
    choice("a", [2, 0], instance=0),
    choice("b", [5, 5], instance=0),
    choice("a", [1, 0], instance=1),
    choice("b", [1, 0], instance=1),
    choice("a", [4, 0], instance=2),
    choice("a", [7, 7], instance=3),
]


def test_groups_whose_rewards_are_all_equal_are_dropped_and_counted_by_agent() -> None:
    kept = nonzero_variance(TREE)
    assert kept.indices == (0, 2, 3, 4)
    assert kept.decisions == tuple(TREE[i] for i in kept.indices)
    assert kept.dropped == {"a": 1, "b": 1}


def test_an_agent_that_lost_nothing_is_counted_too() -> None:
    assert nonzero_variance([choice("a", [1, 0]), choice("b", [0, 0])]).dropped == {"a": 0, "b": 1}


def test_rewards_that_differ_by_rounding_are_equal() -> None:
    assert nonzero_variance([choice("a", [0.1 + 0.2, 0.3])]).indices == ()


# An agent returns 1, 1 in instance 0, and 1, 0 in instance 1, where it decides twice in the first episode.
PARALLEL = [
    choice("a", [9], instance=0, episode=0, total=1),
    choice("a", [1], instance=0, episode=1, total=1),
    choice("a", [0], instance=1, episode=0, turn=0, total=1),
    choice("a", [1], instance=1, episode=0, turn=1, total=1),
    choice("a", [0], instance=1, episode=1, total=0),
]


def test_with_parallel_sampling_an_instances_episodes_are_a_group() -> None:
    kept = resolve_filter("nonzero_variance", sampling="parallel")(PARALLEL)
    assert kept.indices == (2, 3, 4)
    assert kept.dropped == {"a": 2}


def test_a_group_may_be_that_of_the_credit_scheme() -> None:
    # Turn 0: rewards 9, 1 in instance 0 and 0, 0 in instance 1; turn 1: a single one.
    assert nonzero_variance(PARALLEL, peers=same_turn).indices == (0, 1)


# No reply of the first is paid at its own step, but later; the second's are, and pay nothing later.
PAID_LATER = [
    choice("a", [0, 0], after=[1, 0], to_go=1, instance=0),
    choice("a", [1, 0], after=[0, 1], to_go=0, instance=1),
]
# Two episodes of equal returns. What is still to come is 1, 1 at turn 0, but 0, 1 at turn 1.
BY_TURN = [
    choice("a", [1], episode=0, turn=0, total=1, to_go=1),
    choice("a", [0], episode=0, turn=1, total=1, to_go=0),
    choice("a", [0], episode=1, turn=0, total=1, to_go=1),
    choice("a", [1], episode=1, turn=1, total=1, to_go=1),
]
SEATS = [choice("player_0", [1], total=1), choice("player_1", [0], total=0)]


@pytest.mark.parametrize(
    ("credit", "sampling", "decisions", "indices"),
    [
        ("counterfactual", "tree", PAID_LATER, (0,)),  # values 1, 0 and 1, 1
        ({"loo": {"value": "value"}}, "tree", PAID_LATER, (0,)),
        ("return_to_go", "tree", PAID_LATER, (0,)),  # 1, 0 and 0, 0
        ("magrpo", "tree", PAID_LATER, (0,)),
        ("at_grpo", "tree", PAID_LATER, (1,)),
        ("return_to_go", "parallel", BY_TURN, (1, 3)),
        ({"at_grpo": {"group": "turn"}}, "parallel", BY_TURN, (0, 1, 2, 3)),
        ({"return_to_go": {"gamma": 0.0}}, "parallel", BY_TURN, (0, 1, 2, 3)),
        ("grpo", "parallel", BY_TURN, ()),
        ("loo", "parallel", BY_TURN, ()),
        ({"at_grpo": {"group": "role"}}, "parallel", SEATS, (0, 1)),  # the seats of a role are compared
        ("grpo", "parallel", SEATS, ()),
    ],
)
@pytest.mark.parametrize("name", ["nonzero_variance", {"signal_to_noise": {"threshold": 1.0}}], ids=["any", "most"])
def test_a_filter_by_name_keeps_what_the_credit_learns_from(
    name: Any, credit: Any, sampling: Any, decisions: list[Decision], indices: tuple[int, ...]
) -> None:
    options: Any = {"sampling": sampling, "num_candidates": 2, "num_continuations": 1}
    scheme = resolve(credit, scale="group", **options)
    assert resolve_filter(name, credit=scheme, **options)(decisions).indices == indices
    assert tuple(i for i, values in enumerate(scheme(decisions)) if any(values)) == indices


def test_a_filters_own_value_goes_before_the_credits() -> None:
    options: Any = {"sampling": "tree", "num_candidates": 2, "num_continuations": 1}
    scheme = resolve("counterfactual", scale="group", **options)
    by_reward = resolve_filter({"nonzero_variance": {"value": "reward"}}, credit=scheme, **options)
    assert by_reward(PAID_LATER).indices == (1,)


def test_a_credit_by_value_needs_continuations() -> None:
    with pytest.raises(ValueError, match=r"credit='at_grpo' with 0 continuations of each candidate, expected at"):
        resolve({"at_grpo": {"value": "value"}}, sampling="tree", scale="group", num_candidates=2)


# a's variances sum to 10.5: the 8 alone holds 0.76 of it, with the 2 it is 0.95.
@pytest.mark.parametrize(
    ("threshold", "indices", "dropped"),
    [
        (0.1, (3, 4), {"a": 3, "b": 1}),
        (0.7, (3, 4), {"a": 3, "b": 1}),
        (0.8, (0, 3, 4), {"a": 2, "b": 1}),
        (0.96, (0, 2, 3, 4), {"a": 1, "b": 1}),
        (1.0, (0, 2, 3, 4), {"a": 1, "b": 1}),
    ],
)
def test_the_fewest_groups_that_hold_the_share_of_an_agents_variance_stay(
    threshold: float, indices: tuple[int, ...], dropped: dict[str, int]
) -> None:
    kept = signal_to_noise(TREE, threshold=threshold)
    assert kept.indices == indices
    assert kept.dropped == dropped


def test_an_agents_units_do_not_crowd_out_another_agents_groups() -> None:
    shouting = [choice("a", [1, 0]), choice("b", [1e6, 0])]
    assert signal_to_noise(shouting, threshold=0.9).indices == (0, 1)


@pytest.mark.parametrize("threshold", [0.0, -1.0, 1.1])
def test_a_threshold_out_of_range_is_refused(threshold: float) -> None:
    with pytest.raises(ValueError, match=r"expected the share of the variance to keep, above 0 to 1"):
        signal_to_noise(TREE, threshold=threshold)


@pytest.mark.parametrize(
    ("filled", "num_played", "num_wanted", "more"),
    [
        (8, 8, 8, 0),
        (9, 16, 8, 0),
        (4, 8, 8, 8),  # every second is kept: 4 * 8 / 4
        (6, 8, 8, 3),  # 2 * 8 / 6 = 2.7
        (7, 8, 8, 2),  # 1 * 8 / 7 = 1.1
        (1, 8, 8, 8),  # 7 * 8 / 1 = 56, but no more at a time than a batch
        (0, 8, 8, 8),
    ],
)
def test_as_many_rows_are_played_as_the_rate_of_keeping_asks_for(
    filled: int, num_played: int, num_wanted: int, more: int
) -> None:
    decisions = [choice(agent, [1, 0], instance=i) for i in range(num_played) for agent in ("a", "b")]
    kept = Kept.of(decisions, range(2 * filled))
    assert rows_to_play(decisions, kept, num_played=num_played, num_wanted=num_wanted) == more


def test_a_row_counts_by_the_share_of_its_decisions_that_stay() -> None:
    # 8 rows of two decisions, 12 of which stay: as much as 6 rows hold, though every row has one that stays.
    decisions = [choice(agent, [1, 0], instance=i) for i in range(8) for agent in ("a", "b")]
    kept = Kept.of(decisions, [i for i in range(16) if i % 4 != 1])
    assert rows_to_play(decisions, kept, num_played=8, num_wanted=8) == 3  # 2 * 8 / 6 = 2.7


def test_a_row_whose_environment_failed_is_played_for() -> None:
    decisions = [choice("a", [1, 0], instance=i) for i in range(8) if i != 2]
    kept = Kept.of(decisions, range(7))
    assert rows_to_play(decisions, kept, num_played=8, num_wanted=8) == 2  # 1 * 8 / 7 = 1.1
    assert rows_to_play([], Kept.of([], []), num_played=8, num_wanted=8) == 8


# TREE: 4 rows of 6 decisions, 1.5 a row, of which rows 0 and 2 keep one, row 1 two and row 3 none.
@pytest.mark.parametrize(("num_wanted", "indices"), [(1, (0, 2, 3)), (2, (0, 2, 3)), (3, (0, 2, 3, 4)), (0, ())])
def test_the_surplus_is_cut_by_rows(num_wanted: int, indices: tuple[int, ...]) -> None:
    kept = first_rows(TREE, nonzero_variance(TREE), num_wanted)
    assert kept.indices == indices
    assert kept.dropped == {
        agent: sum(d.agent == agent for i, d in enumerate(TREE) if i not in indices) for agent in "ab"
    }


def test_rows_are_counted_once_however_many_there_are(monkeypatch: pytest.MonkeyPatch) -> None:
    counted: list[int] = []
    monkeypatch.setattr(filters, "_num_rows", lambda decisions: counted.append(len(decisions)) or 4)
    assert first_rows(TREE, nonzero_variance(TREE), 2).indices == (0, 2, 3)
    assert counted == [6]


def test_playing_until_nothing_is_missing_fills_the_batch() -> None:
    """As the trainer does it, with an environment in which every third row teaches something."""
    decisions: list[Decision] = []
    kept, num_played = Kept((), (), {}), 0
    while more := rows_to_play(decisions, kept, num_played=num_played, num_wanted=8):
        decisions += [choice("a", [1, 0] if i % 3 == 0 else [0, 0], instance=num_played + i) for i in range(more)]
        num_played += more
        kept = nonzero_variance(decisions)
    assert len(first_rows(decisions, kept, 8).decisions) == 8
    assert num_played <= 3 * 8 + 3


@pytest.mark.parametrize(
    ("group_filter", "error", "message"),
    [
        ("non_zero_variance", ValueError, r"no group filter 'non_zero_variance'\. Did you mean 'nonzero_variance'\?"),
        (3, TypeError, r"the group filter is 3, expected a name \(nonzero_variance, signal_to_noise\)"),
    ],
)
def test_what_is_no_filter_is_refused(group_filter: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        resolve_filter(group_filter, sampling="tree")


def test_a_filter_with_options_is_completed_and_one_of_the_users_is_taken_as_it_is() -> None:
    def mine(decisions: Sequence[Decision], /) -> Kept:
        return Kept((), (), {})

    assert resolve_filter(mine, sampling="parallel") is mine
    strict = resolve_filter(partial(signal_to_noise, threshold=0.5), sampling="parallel")
    assert strict(PARALLEL).indices == (2, 3, 4)
