"""Credit inside continuations, and groups of equal prompts or equal turns: worked by hand."""

from __future__ import annotations

import itertools
import math
from typing import Any

import pytest

from decisions import decision
from pettingllms_trl.credit import at_grpo, continuation_advantages, facts_of, magrpo, resolve
from pettingllms_trl.credit.grouping import (
    GroupExactness,
    group_exactness,
    same_branch,
    same_continued,
    same_prompt,
    same_turn,
)
from pettingllms_trl.credit.selection import continuations_of, shifted
from pettingllms_trl.records import ContinuationPlace, Decision, Episode, Prompt


def one(
    agent: str, number: float, *, place: tuple[int, int, int] | None = None, prompt: int = 0, **more: int
) -> Decision:
    """A decision with one candidate, whose reward and return to go are the same number."""
    asked = Prompt([{"role": "user", "content": "?"}], (prompt,))
    inside = None if place is None else ContinuationPlace(*place)
    return decision(agent, [number], prompt=asked, return_to_go=number, continuation=inside, **more)


def flat(advantages: Any) -> list[float]:
    return [value for (value,) in advantages]


# ---- Continuations --------------------------------------------------------------------------------------------------


def test_a_decision_is_compared_with_those_at_its_turn_in_the_continuations_of_the_same_decision() -> None:
    decisions = [
        one("b", 3, place=(0, 0, 0)),  # 3 and 1 and 2: mean 2
        one("b", 1, place=(0, 1, 0)),
        one("b", 2, place=(0, 1, 1)),
        one("a", 5, place=(0, 0, 0), turn=1),  # 5 and 0: mean 2.5
        one("a", 0, place=(0, 1, 0), turn=1),
        one("a", 9, place=(1, 0, 0), turn=1),  # of another decision, 9 and 7: mean 8
        one("a", 7, place=(1, 1, 0), turn=1),
        one("b", 8, place=(0, 0, 0), turn=1),  # no other continuation reached b's second turn
        one("b", 4, place=(0, 0, 0), instance=1),  # another instance
    ]
    found = flat(continuation_advantages(decisions, scale="none"))
    assert found == [1.0, -1.0, 0.0, 2.5, -2.5, 1.0, -1.0, 0.0, 0.0]


def test_by_candidate_a_decision_is_compared_with_those_that_continue_the_same_candidate() -> None:
    decisions = [
        one("b", 3, place=(0, 0, 0), prompt=1),  # 3 and 1: mean 2
        one("b", 1, place=(0, 0, 1), prompt=1),
        one("b", 8, place=(0, 1, 0), prompt=2),  # 8 and 4: mean 6
        one("b", 4, place=(0, 1, 1), prompt=2),
        one("a", 5, place=(0, 0, 0), prompt=3),  # 5 and 0: mean 2.5, after different replies
        one("a", 0, place=(0, 0, 1), prompt=4),
        one("a", 9, place=(0, 1, 0), prompt=5),  # in the other continuation of its candidate a does not act
        one("b", 7, place=(1, 0, 0), prompt=1),  # of another decision
    ]
    found = flat(continuation_advantages(decisions, scale="none", group="candidate"))
    assert found == [1.0, -1.0, 2.0, -2.0, 2.5, -2.5, 0.0, 0.0]
    assert group_exactness(decisions, same_branch) == {
        "b": GroupExactness(frac_exact=1.0, frac_without_peers=1 / 5),
        "a": GroupExactness(frac_exact=0.0, frac_without_peers=1 / 3),
    }


def test_continuation_advantages_are_scaled_as_those_of_siblings_are() -> None:
    # b: 3, 1, deviation sqrt(2); a: 6, 0, deviation sqrt(18). Of all of b's 3, 1, 3, 1 it is sqrt(4 / 3).
    decisions = [
        one(who, n, place=(0, k, 0)) for who, row in (("b", (3, 1)), ("a", (6, 0))) for k, n in enumerate(row)
    ]
    expected = [1 / (math.sqrt(2) + 1e-4), 3 / (math.sqrt(18) + 1e-4)]
    found = flat(continuation_advantages(decisions, scale="group"))
    assert found == pytest.approx([expected[0], -expected[0], expected[1], -expected[1]], rel=1e-6)
    twice = [one("b", n, place=(at, k, 0)) for at in (0, 1) for k, n in enumerate((3, 1))]
    assert flat(continuation_advantages(twice, scale="batch"))[0] == pytest.approx(
        1 / (math.sqrt(4 / 3) + 1e-4), rel=1e-6
    )


def test_no_continuations_have_no_advantages() -> None:
    assert list(continuation_advantages([])) == []


# Two candidates lead to the states 0 and 1; in state s the reply 1 has the probability P[s], and reply a returns
# RETURNS[s][a]. The gradient of the expected return with respect to the logit of state s is p (1 - p) (G1 - G0).
P = (0.3, 0.8)
RETURNS = ((1.0, 5.0), (20.0, 14.0))


def test_the_baseline_from_other_states_leaves_the_expected_gradient_as_it_is_but_for_the_factor_of_a_mean() -> None:
    expected = [0.0, 0.0]
    for replies in itertools.product((0, 1), repeat=2):
        probability = math.prod(P[s] if a else 1 - P[s] for s, a in enumerate(replies))
        decisions = [one("b", RETURNS[s][a], place=(0, s, 0), prompt=s) for s, a in enumerate(replies)]
        advantages = flat(continuation_advantages(decisions, scale="none"))
        for s, a in enumerate(replies):
            expected[s] += probability * advantages[s] * (a - P[s])  # the score of a logit is a - p
    gradient = [p * (1 - p) * (of_1 - of_0) for p, (of_0, of_1) in zip(P, RETURNS, strict=True)]
    assert gradient == pytest.approx([0.84, -0.96])
    assert expected == pytest.approx([each / 2 for each in gradient])  # (N - 1) / N, and N is 2


@pytest.mark.parametrize(
    ("credit", "expected"),
    [("at_grpo", "batch"), ("loo", "none"), ({"at_grpo": {"scale": "group"}}, "group"), ("max_rl", "batch")],
    ids=str,
)
def test_the_scale_is_that_of_the_scheme_or_if_it_has_no_deviation_that_of_the_run(credit: Any, expected: str) -> None:
    scheme = resolve(credit, sampling="tree", scale="batch", num_candidates=2)
    assert facts_of(scheme, "tree").deviation(default="batch") == expected


def played(instance: int) -> Episode:
    own = (one("a", 1, instance=instance), one("b", 1, instance=instance))
    inside = tuple(one("b", 1, place=(at, 0, 0), instance=instance) for at in (0, 1))
    return Episode(instance=instance, episode=0, decisions=own, returns={}, outcome={}, continuations=inside)


def test_continuations_are_kept_where_the_decision_that_they_continue_is() -> None:
    episodes = [played(0), played(1)]
    inside = [decision for episode in episodes for decision in episode.continuations]
    assert continuations_of([episodes[0].decisions[1], episodes[1].decisions[0]], episodes, inside) == [1, 2]
    assert continuations_of([], episodes, inside) == []


def test_continuations_of_rows_that_are_played_later_have_instances_of_their_own() -> None:
    (later,) = shifted([played(0)], 5)
    assert [decision.instance for decision in later.continuations] == [5, 5]


# ---- Groups of at_grpo ----------------------------------------------------------------------------------------------


def parallel() -> list[Decision]:
    """Three episodes: all have prompt 0 at the first turn; at the second one, two have prompt 1 and one has 2."""
    first = [one("a", number, episode=e) for e, number in enumerate((3, 0, 0))]
    second = [one("a", n, turn=1, prompt=p, episode=e) for e, (n, p) in enumerate(((4, 1), (0, 1), (8, 2)))]
    return [*first, *second]


@pytest.mark.parametrize(
    ("group", "second"), [("prompt", [2.0, -2.0, 0.0]), ("turn", [0.0, -4.0, 4.0])], ids=["by prompt", "by turn"]
)
def test_at_grpo_compares_episodes_at_equal_prompts_or_at_equal_turns(group: Any, second: list[float]) -> None:
    # The first turn's mean is 1 either way. By prompt the second's are 2 and 8, by turn 4.
    assert flat(at_grpo(parallel(), scale="none", group=group)) == [2.0, -1.0, -1.0, *second]


@pytest.mark.parametrize("group", ["prompt", "turn"])
def test_in_a_tree_both_groups_are_the_siblings(group: Any) -> None:
    tree = [
        decision(
            agent,
            [instance + turn * k for k in range(3)],
            instance=instance,
            turn=turn,
            prompt=Prompt([], (turn,)),
        )
        for instance in (0, 1)
        for turn in (0, 1)
        for agent in ("a", "b")
    ]
    expected = [[-turn, 0.0, turn] for _ in (0, 1) for turn in (0, 1) for _ in "ab"]
    assert at_grpo(tree, scale="none", group=group) == expected
    assert at_grpo(tree, scale="batch", group=group) == at_grpo(tree, scale="batch")


def test_a_prompt_that_comes_again_at_a_later_turn_has_a_group_of_its_own() -> None:
    again = [one("a", n, turn=t, episode=e) for t, row in enumerate(((1, 0), (9, 5))) for e, n in enumerate(row)]
    assert flat(at_grpo(again, scale="none", group="prompt")) == [0.5, -0.5, 2.0, -2.0]


def test_at_grpo_without_a_tree_wants_to_be_told_its_group() -> None:
    with pytest.raises(ValueError, match=r"'parallel': .*expected sampling='tree'.* credit={'at_grpo': {'group': 't"):
        resolve("at_grpo", sampling="parallel", scale="group", num_candidates=3)
    scheme = resolve({"at_grpo": {"group": "turn"}}, sampling="parallel", scale="none", num_candidates=3)
    assert flat(scheme(parallel())) == [2.0, -1.0, -1.0, 0.0, -4.0, 4.0]


# ---- Exactness ------------------------------------------------------------------------------------------------------


def test_a_group_is_exact_if_all_its_members_have_the_same_prompt() -> None:
    # By turn: the first group is exact, the second is not. By prompt: both groups of two or more are, one is alone.
    assert group_exactness(parallel(), same_turn) == {"a": GroupExactness(0.5, 0.0)}
    assert group_exactness(parallel(), same_prompt) == {"a": GroupExactness(1.0, 1 / 6)}


def test_continuations_of_one_candidate_are_exact_at_their_first_decision_and_those_of_several_are_not() -> None:
    inside = [
        one("b", 1, place=(0, 0, 0), prompt=1),
        one("b", 1, place=(0, 0, 1), prompt=1),
        one("b", 1, place=(1, 0, 0), prompt=1),
        one("b", 1, place=(1, 1, 0), prompt=2),
        one("c", 1, place=(0, 0, 0)),
    ]
    assert group_exactness(inside, same_continued) == {"b": GroupExactness(0.5, 0.0), "c": GroupExactness(None, 1.0)}


@pytest.mark.parametrize(
    ("credit", "sampling", "peers"),
    [
        ("at_grpo", "tree", same_prompt),
        ({"at_grpo": {"group": "turn"}}, "parallel", same_turn),
        (magrpo, "parallel", same_turn),
        ("loo", "tree", same_turn),
        ("loo", "parallel", None),
        ("grpo", "parallel", None),
        (lambda ds: [[0.0] * len(d.candidates) for d in ds], "tree", None),
    ],
    ids=["at_grpo", "at_grpo by turn", "magrpo", "loo", "loo of episodes", "grpo", "a function"],
)
def test_the_peers_of_single_decisions_are_known_of_the_schemes_that_compare_them(
    credit: Any, sampling: Any, peers: Any
) -> None:
    scheme = resolve(credit, sampling=sampling, scale="group", num_candidates=2)
    assert facts_of(scheme, sampling).peers is peers
