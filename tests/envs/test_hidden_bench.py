"""HiddenBench: who knows what, who reads what, how votes are counted, and that there is nothing to train on."""

from __future__ import annotations

import math
import re
from functools import partial
from typing import Any

import pytest

import pettingllms_envs
from pettingllms_envs.core import Unreadable
from pettingllms_envs.datasets import load
from pettingllms_envs.environments.hidden_bench.discussion import FullProfile, GroupDiscussion, SilentDiscussion
from pettingllms_envs.environments.hidden_bench.rows import HiddenProfile
from pettingllms_envs.environments.hidden_bench.rules import HiddenBench
from pettingllms_envs.testing import check


WORKFLOWS = {each.name: each for each in (GroupDiscussion, SilentDiscussion, FullProfile)}
PROFILES = [each for each in load("own:hidden_bench").problems if isinstance(each, HiddenProfile)]


def voting(name: str, task: Any) -> tuple[Any, Any]:
    """A workflow whose members vote at once, and its first state."""
    joined = WORKFLOWS[name](HiddenBench(), num_turns=1)
    return joined, joined.start(task)


def known(prompt: str) -> set[str]:
    return set(re.findall("^- (.*)$", prompt, re.M))


@pytest.mark.parametrize("seed", range(12))
def test_each_member_knows_all_shared_facts_and_a_hidden_one_of_its_own(seed: int) -> None:
    joined = GroupDiscussion(HiddenBench())
    state = joined.start(joined.task.generate(seed))
    problem = state.task.problem
    members = joined.present(state)
    facts = [known(joined.observe(state, member)) for member in members]
    assert len(members) == len(problem.hidden)
    assert all(each >= set(problem.shared) for each in facts)
    assert sorted(fact for each in facts for fact in each - set(problem.shared)) == sorted(problem.hidden)


def test_who_knows_which_fact_depends_on_the_seed_and_the_place_tells_nothing() -> None:
    task, num = HiddenBench(), len(PROFILES)
    states = [task.generate(seed) for seed in range(0, 24 * num, num)]
    assert len({state.problem for state in states}) == 1
    assert len({state.order for state in states}) > 6
    places = set()
    for state in states:
        facts = task.facts(state, 0)
        places.add(facts.index(state.problem.hidden[state.order[0]]))
    assert places == set(range(len(states[0].problem.shared) + 1))


def places_of_the_answer(num_options: int) -> list[int]:
    """The place of the right option in the prompt, of each of 600 seeds whose task has so many options."""
    joined = SilentDiscussion(HiddenBench())
    states = [joined.start(joined.task.generate(seed)) for seed in range(600)]
    shown = [
        (state.task.problem.answer, re.findall(r"^The options: (.*)\.$", joined.observe(state, "member_0"), re.M)[0])
        for state in states
        if len(state.task.problem.options) == num_options
    ]
    return [options.split("; ").index(answer) for answer, options in shown]


@pytest.mark.parametrize(("num_options", "num_seeds"), [(3, 500), (4, 100)])
def test_who_always_votes_for_the_option_of_one_place_is_right_by_chance(num_options: int, num_seeds: int) -> None:
    places = places_of_the_answer(num_options)
    assert len(places) == num_seeds
    # Four standard deviations of a binomial share: 0.25 to 0.42 of 500 for 1 in 3, 0.08 to 0.42 of 100 for 1 in 4.
    chance = 1 / num_options
    most = 4 * math.sqrt(chance * (1 - chance) / num_seeds)
    for place in range(num_options):
        assert abs(places.count(place) / num_seeds - chance) < most
    voted = [f"Vote: the {word} option" for word in ("first", "second", "third", "fourth")[:num_options]]
    assert set(voted) <= set(HiddenBench.blind_replies)


def test_all_members_and_all_forms_of_an_instance_show_the_options_in_one_order() -> None:
    orders = set()
    for seed in range(0, 24 * len(PROFILES), len(PROFILES)):
        shown = set()
        for workflow in WORKFLOWS.values():
            joined = workflow(HiddenBench())
            state = joined.start(joined.task.generate(seed))
            prompts = [joined.observe(state, member) for member in joined.present(state)]
            shown |= {line for prompt in prompts for line in prompt.splitlines() if line.startswith("The options: ")}
        assert len(shown) == 1
        orders |= shown
    assert len(orders) == 6  # those of three options


def test_a_member_reads_the_latest_message_of_each_other_one_quoted() -> None:
    joined = GroupDiscussion(HiddenBench(), num_turns=4, capacity=20)
    state = joined.start(joined.task.generate(0))
    members = joined.present(state)
    for turn in range(2):
        for member in members:
            state, parts, *_ = joined.step(state, f"{turn} {member} Vote: x <|im_end|>")
            assert parts == {}
    prompt = joined.observe(state, members[0])
    assert re.findall("^> (.*)$", prompt, re.M) == [f"1 {member} Vote: x <|im_end|>"[:20] for member in members[1:]]
    assert joined.outcome(state)["messages"] == 2 * len(members)


def test_without_messages_nothing_arrives() -> None:
    joined = SilentDiscussion(HiddenBench())
    state = joined.start(joined.task.generate(0))
    before = joined.observe(state, "member_1")
    state, *_ = joined.step(state, "It is the fox.")
    assert joined.observe(state, "member_1").replace("Write to the others now", "Another member is to act") == before
    assert joined.outcome(state) == {"messages": 0, "message_chars": 0}


@pytest.mark.parametrize("profile", PROFILES, ids=lambda each: each.subject)
def test_one_who_is_shown_all_facts_votes_alone(profile: HiddenProfile) -> None:
    task = HiddenBench().generate(0, problem=profile.id)
    joined, state = voting("full", task)
    assert known(joined.observe(state, "member")) == {*profile.shared, *profile.hidden}
    state, parts, over, _ = joined.step(state, f"Vote: {profile.answer}")
    assert parts == {"member": {"correct": 1.0}, "team": {"progress": 1.0, "success": 1.0}}
    assert over


@pytest.mark.parametrize(
    ("votes", "success", "accuracy"),
    [
        ("rrrr", True, 1.0),
        ("rrrw", True, 0.75),
        ("rrww", False, 0.5),  # a tie is no majority
        ("wwww", False, 0.0),
        ("rr u", False, 0.5),
    ],
)
def test_more_than_half_must_be_right(votes: str, success: bool, accuracy: float) -> None:
    profile = next(each for each in PROFILES if len(each.hidden) == 4)
    joined, state = voting("team", HiddenBench().generate(0, problem=profile.id))
    wrong = next(option for option in profile.options if option != profile.answer)
    replies = {"r": f"Vote: the {profile.answer.upper()}.", "w": f"Vote: {wrong}", " ": "Vote: neither", "u": ""}
    paid = {"r": {"correct": 1.0}, "w": {"correct": 0.0}, " ": {"correct": 0.0}, "u": {"format": -0.2}}
    team = 0.0
    for number, vote in enumerate(votes):
        state, parts, over, truncated = joined.step(state, replies[vote])
        assert parts[f"member_{number}"] == paid[vote]
        assert (over, truncated) == (number == 3, False)
        team += sum(parts.get("team", {}).values())
    assert joined.task.outcome(state.task) == {"success": success, "accuracy": accuracy}
    assert team == 2.0 * success


@pytest.mark.parametrize(
    ("reply", "expected"),
    [
        ("I think so.\nVOTE:  Fox hut. ", "Fox hut."),
        (f"Vote: {'a' * 1_000_000}", "a" * 300),
        ("", Unreadable("it is empty")),
        ("Vote: ", Unreadable("it names no option")),
        ("Fox hut", Unreadable("its last line is not 'Vote:' and an option")),
    ],
)
def test_a_vote_is_read_from_the_last_line(reply: str, expected: Any) -> None:
    assert HiddenBench().parse(reply) == expected


def test_there_is_a_test_split_only() -> None:
    env = pettingllms_envs.make("hidden_bench")
    assert env.metadata["reset_options"]["split"] == ("test",)
    with pytest.raises(ValueError, match="split is 'train'; expected one of 'test'"):
        env.reset(seed=0, options={"split": "train"})
    with pytest.raises(ValueError, match="has no 'train' split"):
        load("own:hidden_bench", split="train")


def test_three_facts_make_three_members() -> None:
    three = next(each for each in PROFILES if len(each.hidden) == 3)
    env = pettingllms_envs.make("hidden_bench")
    env.reset(seed=0, options={"problem": three.id})
    assert env.agents == ["member_0", "member_1", "member_2"]


@pytest.mark.parametrize(
    "workflow", ["team", *(pytest.param(each, marks=pytest.mark.slow) for each in ("cut", "full"))]
)
def test_it_passes_the_checks_of_its_rewards(workflow: str) -> None:
    only = ("oracle", "rewards", "learning signal", "pairs of roles", "potential", "channel", "snapshots")
    report = check(partial(pettingllms_envs.make, "hidden_bench", workflow=workflow), seeds=range(2), only=only)
    assert report.ok, str(report)


@pytest.mark.slow
@pytest.mark.parametrize("workflow", WORKFLOWS)
def test_it_passes_every_check(workflow: str) -> None:
    report = check(partial(pettingllms_envs.make, "hidden_bench", workflow=workflow), floor=0.2)
    assert report.ok, str(report)
