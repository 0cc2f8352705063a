"""Archives: the bound of a lone reader by exact counting and by play, what messages carry, what is paid."""

from __future__ import annotations

import itertools
import math
import random
import re
from collections import Counter
from collections.abc import Callable
from fractions import Fraction
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import pettingllms_envs
from pettingllms_envs.core import SPLITS, Unreadable
from pettingllms_envs.environments.archives import rules as archives
from pettingllms_envs.environments.archives.librarians import (
    DirectedLibrarian,
    FullLibrarian,
    LibrarianPair,
    LibrarianTeam,
    LoneLibrarian,
    RoutedLibrarian,
    SilentLibrarians,
    SilentPair,
)
from pettingllms_envs.environments.archives.rules import Archives, ArchivesMove
from pettingllms_envs.environments.archives.world import ARCHIVES, RELATIONS, STEPS, World, archive_of
from pettingllms_envs.environments.note_taking import rules as note_taking
from pettingllms_envs.evaluation.statistics import wilson
from pettingllms_envs.testing import check


WORKFLOWS = {
    each.name: each
    for each in (
        LibrarianTeam,
        LibrarianPair,
        SilentLibrarians,
        SilentPair,
        LoneLibrarian,
        FullLibrarian,
        DirectedLibrarian,
        RoutedLibrarian,
    )
}
REWARD_CHECKS = ("oracle", "floors", "rewards", "learning signal", "no solution shown", "pairs of roles", "potential")
TINY: dict[str, Any] = {"size": 4, "wording": "symbols"}
NEED_NOT_BE_READ: dict[str, Any] = {"facts": 1, "order": "question"}
KIND_OF: dict[str, str] = {relation.symbol: relation.object[0] for relation in RELATIONS}
"""The letter of the names to which a relation leads, in symbols."""


def play(workflow: Any, seed: int, policy: Callable[[str], str]) -> bool:
    """Whether the answer is right in an episode whose agents reply to nothing but their prompts."""
    state, over = workflow.start(workflow.task.generate(seed)), False
    while not over:
        state, _, over, _ = workflow.step(state, policy(workflow.observe(state, workflow.actor(state))))
    return bool(workflow.task.solved(state.task))


def kind_asked_for(prompt: str) -> str:
    """The letter of the answer's kind."""
    return KIND_OF[str(re.findall(r"(\w+) \?", prompt)[0])]


def request(prompt: str) -> str:
    """What the agent is asked to do: `"Search"`, `"Say"` or `"Answer"`."""
    return str(re.findall(r"(Search|Tell|Answer) [^:]*now", prompt)[-1]).replace("Tell", "Say")


def first_of_its_kind(prompt: str) -> str:
    """Searches the start, says nothing of use, and answers with the first name of the right kind."""
    start = re.findall(r"Question: (\w+)", prompt)[0]
    return f"{request(prompt)}: {f'{kind_asked_for(prompt)}0' if request(prompt) == 'Answer' else start}"


def last_of_its_kind(prompt: str) -> str:
    """Passes on the last name that it read, and answers with the last one of the right kind."""
    names = re.findall(r"\b[ptrg]\d\b", prompt)
    right = [f"{kind_asked_for(prompt)}1", *(name for name in names if name[0] == kind_asked_for(prompt))]
    return f"{request(prompt)}: {(right if request(prompt) == 'Answer' else names)[-1]}"


def test_the_relations_form_one_cycle_that_changes_archive_at_every_hop() -> None:
    for index, relation in enumerate(RELATIONS):
        following = (index + 1) % len(RELATIONS)
        assert relation.object == RELATIONS[following].subject
        assert archive_of(index) != archive_of(following)
    per_archive = Counter((archive_of(index), relation.subject) for index, relation in enumerate(RELATIONS))
    assert set(per_archive.values()) == {3}  # of which a world with `facts=1` has one
    assert len(per_archive) == 8


@pytest.mark.parametrize("hops", [2, 3, 4])
@pytest.mark.parametrize("own", ARCHIVES)
def test_whatever_one_archive_says_the_answers_are_equally_likely(hops: int, own: int) -> None:
    # All 6 bijections of 3 entities for each relation; the first one is in archive 0.
    bijections = list(itertools.permutations(range(3)))
    for known in itertools.product(bijections, repeat=len(range(own, hops, 2))):
        answers: Counter[int] = Counter()
        for unknown in itertools.product(bijections, repeat=len(range(1 - own, hops, 2))):
            of_archive = {own: iter(known), 1 - own: iter(unknown)}
            at = 0
            for hop in range(hops):
                at = next(of_archive[hop % 2])[at]
            answers[at] += 1
        assert len(set(answers.values())) == 1
        assert len(answers) == 3


def test_every_fact_is_a_passage_of_one_archive_and_every_relation_is_a_bijection() -> None:
    world = World(5, 2, "symbols", "train", 0)
    for index, relation in enumerate(RELATIONS[:STEPS]):
        facts = [each for each in world.passages[archive_of(index)] if each.relation == index]
        objects = {each.text.split()[-1] for each in facts}
        assert {each.subject for each in facts} == {f"{relation.subject[0]}{number}" for number in range(5)}
        assert objects == {f"{relation.object[0]}{number}" for number in range(5)}
    assert sum(map(len, world.passages.values())) == 40


@pytest.mark.parametrize("trials", [500, pytest.param(20_000, marks=pytest.mark.slow)])
@pytest.mark.parametrize(
    ("workflow", "settings", "guesser"),
    [
        ("alone", {"archive": 0}, last_of_its_kind),
        pytest.param("alone", {"archive": 1}, first_of_its_kind, marks=pytest.mark.slow),
        pytest.param("cut", {}, first_of_its_kind, marks=pytest.mark.slow),
        pytest.param("cut_pair", {}, first_of_its_kind, marks=pytest.mark.slow),
        pytest.param("alone", {"archive": 0}, first_of_its_kind, marks=pytest.mark.slow),
        pytest.param("alone", {"archive": 1}, last_of_its_kind, marks=pytest.mark.slow),
        pytest.param("cut", {}, last_of_its_kind, marks=pytest.mark.slow),
    ],
)
def test_a_lone_reader_is_right_as_often_as_the_bound_says(
    workflow: str, settings: dict[str, Any], guesser: Callable[[str], str], trials: int
) -> None:
    task = Archives(**TINY)
    joined = WORKFLOWS[workflow](task, **settings)
    right = sum(play(joined, seed, guesser) for seed in range(trials))
    bound = float(task.lone_bound())
    assert bound == 0.25
    assert abs(right / trials - bound) < 3.3 * math.sqrt(bound * (1 - bound) / trials)


def is_right_alone(seed: int, *, reads_rewards: bool) -> bool:
    """Searches every name, and answers with the one whose search found a fact of the question by its reward."""
    env = pettingllms_envs.make("archives", workflow="alone", num_turns=16, **TINY, **NEED_NOT_BE_READ)
    env.reset(seed=seed)
    names, answer = itertools.product("ptrg", "0123"), "p0"
    for _ in env.agent_iter():
        observation, reward, terminated, _, info = env.last()
        if terminated:
            break
        prompt = observation["text"]
        wanted = request(prompt)
        if wanted == "Say" and reads_rewards and reward > 0:
            last_relation = re.findall(r"(\w+) \?", prompt)[0]
            answer = next(iter(re.findall(rf"^\w+ {last_relation} (\w+)$", prompt, re.M)), answer)
        env.step(f"{wanted}: {''.join(next(names)) if wanted == 'Search' else answer}")
    return bool(info["outcome"]["success"])


def test_a_lone_reader_of_rewards_exceeds_the_bound_as_the_docs_say() -> None:
    right = sum(is_right_alone(seed, reads_rewards=True) for seed in range(150))
    without = sum(is_right_alone(seed, reads_rewards=False) for seed in range(150))
    assert Archives(**TINY).lone_bound() * 150 == 37.5
    assert (right, without) == (81, 8)
    docs = " ".join((Path(__file__).parents[2] / "docs" / "cooperation.md").read_text(encoding="utf-8").split())
    assert f"is right in {right / 150:.1%} of 150 episodes, where the bound is 25%" in docs
    for module in (archives, note_taking):
        assert "of agents that see prompts only" in str(module.__doc__)


@pytest.mark.parametrize("workflow", ["team", "pair", "full", "routed"])
@pytest.mark.parametrize(("hops", "facts", "order"), [(2, 1, "question"), (3, 2, "seed"), (8, 3, "question")])
def test_a_team_that_knows_only_its_prompts_is_always_right(workflow: str, hops: int, facts: int, order: str) -> None:
    task = Archives(hops=hops, size=10, facts=facts)
    joined = WORKFLOWS[workflow](task, order=order)
    for seed in range(20):
        state, over = joined.start(task.generate(seed)), False
        while not over:
            reply = joined.oracle(state)
            prompt = joined.observe(state, joined.actor(state))
            assert reply.partition(": ")[2] in re.findall(r"\w+", prompt), (seed, prompt)
            state, _, over, _ = joined.step(state, reply)
        assert task.solved(state.task)


@pytest.mark.parametrize(("hops", "num"), [(2, 100), pytest.param(3, 1000, marks=pytest.mark.slow)])
def test_the_bare_question_seldom_finds_the_last_passage(hops: int, num: int) -> None:
    shown = 0
    for seed in range(num):
        world = World(40, hops, "english", "train", seed)
        last = (world.chain.names[-2], world.chain.relations[-1])
        shown += last in {(each.subject, each.relation) for each in world.search(ARCHIVES, world.chain.question, 3)}
    assert shown / num <= 0.1


def test_a_search_for_a_name_finds_first_what_the_archive_says_about_it() -> None:
    world = World(40, 2, "english", "train", 3)
    for archive in ARCHIVES:
        for passage in world.passages[archive]:
            assert world.search((archive,), f"what about {passage.subject}, please", 1) == (passage,)


def test_names_of_different_splits_are_different() -> None:
    names = [
        frozenset().union(*(World(10, 2, "english", split, seed).names for seed in range(20))) for split in SPLITS
    ]
    assert all(not one & other for one, other in itertools.combinations(names, 2))


def test_an_instance_is_the_same_every_time_and_another_for_another_seed() -> None:
    chains = [World(10, 3, "english", "train", seed).chain for seed in (0, 0, 1)]
    assert chains[0] == chains[1] != chains[2]


STUDY: dict[str, Any] = {"facts": 2, "hops": 3, "size": 8, "results": 2, "wording": "symbols"}


def readings_of(task: Archives, seed: int) -> list[str]:
    """Where each reading of the question ends, a relation of each step of the chain; from the passages alone."""
    world = task.world(task.generate(seed))
    leads = {(each.subject, each.relation): each.text.split()[-1] for own in world.passages.values() for each in own}
    ends = [world.chain.names[0]]
    for relation in world.chain.relations:
        alike = range(relation % STEPS, task.facts * STEPS, STEPS)
        ends = [leads[end, other] for end in ends for other in alike]
    return ends


@pytest.mark.parametrize(
    ("facts", "hops", "size", "expected"),
    [
        (1, 4, 5, 1.0),
        (2, 3, 8, 1 / 8),  # eight readings, each of which leads to another entity
        (2, 4, 8, 1 / 8),  # sixteen readings, two for each entity
        (2, 2, 10, 1 / 4),
        (3, 2, 9, 1 / 9),
        (2, 3, 4, 1 / 4),  # eight readings of four entities: each is the end of two
        (2, 3, 5, 1 / 4),  # 0 or 1, 0 or 2, and 0 or 1 further: 0 to 4 by 1, 2, 2, 2 and 1 readings
    ],
)
def test_agents_that_read_no_relation_guess_among_the_readings(
    facts: int, hops: int, size: int, expected: float
) -> None:
    task = Archives(facts=facts, hops=hops, size=size, wording="symbols")
    for seed in range(20):
        assert Fraction(max(Counter(readings_of(task, seed)).values()), facts**hops) == task.blind_bound()
    assert float(task.blind_bound()) == expected


def test_with_several_facts_every_relation_is_a_bijection_and_no_two_agree_about_a_name() -> None:
    world = World(9, 4, "symbols", "train", 0, facts=3)
    facts = [each for own in world.passages.values() for each in own]
    assert len(facts) == len(RELATIONS) * 9
    for relation in range(len(RELATIONS)):
        assert len({each.text.split()[-1] for each in facts if each.relation == relation}) == 9
    agreeing = Counter((each.subject, each.relation % STEPS, each.text.split()[-1]) for each in facts)
    assert set(agreeing.values()) == {1}


def test_a_world_with_one_fact_is_the_one_of_the_same_seed_and_the_question_begins_at_the_same_name() -> None:
    one, two = (World(10, 3, "english", "train", 5, facts=facts) for facts in (1, 2))
    assert one.names == two.names
    assert one.chain.names[0] == two.chain.names[0]
    assert [relation % STEPS for relation in two.chain.relations] == list(one.chain.relations)


@pytest.mark.parametrize(
    ("order", "num"),
    [
        ("question", 100),
        *(pytest.param(order, 2000, marks=pytest.mark.slow) for order in ("question", "seed")),
    ],
)
def test_who_reads_no_relation_does_not_exceed_the_bounds_in_any_workflow(order: str, num: int) -> None:
    task, rng = Archives(**STUDY), random.Random(0)
    workflows = {name: workflow(task, order=order) for name, workflow in WORKFLOWS.items()}
    right: Counter[tuple[str, str]] = Counter()
    for seed in range(num):  # all in one world, which takes longest to make
        for (name, joined), (policy, reply) in itertools.product(workflows.items(), task.blind_policies.items()):
            right[name, policy] += play(joined, seed, partial(reply, rng=rng))
    assert len(right) == 8 * 3
    assert max(task.blind_bound(), task.lone_bound()) == 1 / 8
    for which, each in right.items():
        assert wilson(each, num, 0.9999)[0] <= 1 / 8, which


@pytest.mark.parametrize("workflow", ["team", "pair", "routed"])
@pytest.mark.parametrize("wording", ["english", "symbols"])
def test_with_one_fact_who_reads_no_relation_is_always_right(workflow: str, wording: str) -> None:
    task, rng = Archives(size=10, wording=wording, facts=1), random.Random(0)
    copier = task.blind_policies["copier"]
    joined = WORKFLOWS[workflow](task, order="question")
    assert all(play(joined, seed, lambda prompt: copier(prompt, rng)) for seed in range(100))
    assert task.blind_bound() == 1


def test_blind_policies_do_not_depend_on_the_words_for_relations() -> None:
    task = Archives(**STUDY)
    joined = LibrarianTeam(task)
    words = re.compile("|".join(rf"\b{relation.symbol}\b" for relation in RELATIONS))
    for seed, policy in itertools.product(range(10), task.blind_policies.values()):
        state, over = joined.start(joined.task.generate(seed)), False
        while not over:
            prompt = joined.observe(state, joined.actor(state))
            assert policy(prompt, random.Random(1)) == policy(words.sub("relates", prompt), random.Random(1))
            state, _, over, _ = joined.step(state, joined.oracle(state))


def test_the_seed_draws_who_begins_and_there_is_a_turn_more() -> None:
    joined = LibrarianTeam(Archives(size=10))
    assert joined.num_turns == 3
    first = [joined.actor(joined.start(joined.task.generate(seed))) for seed in range(200)]
    needed = [archive_of(joined.task.world(joined.task.generate(seed)).chain.relations[0]) for seed in range(200)]
    has_fact = sum(agent == f"librarian_{archive}" for agent, archive in zip(first, needed, strict=True))
    assert 70 <= has_fact <= 130  # 100, and 4.2 standard deviations
    assert 70 <= first.count("librarian_0") <= 130


def phase(state: Any) -> str:
    """What the acting agent is asked to do."""
    return {"Search": "search", "Tell": "say", "Answer": "answer"}[state.ask.text.splitlines()[-1].split()[0]]


def found(state: Any) -> dict[str, Any]:
    """What the last search of each librarian found."""
    return dict(state.ask.keeps[0])


def test_one_agent_with_the_teams_order_searches_the_archive_of_the_turn_alone() -> None:
    joined = RoutedLibrarian(Archives(**STUDY))
    team = LibrarianTeam(joined.task)
    state, beside = (each.start(each.task.generate(3)) for each in (joined, team))
    for _ in range(3):
        archive = team.actor(beside)[-1]
        assert f"Search archive {archive} now." in joined.observe(state, "librarian")
        reply = joined.oracle(state)
        state, beside = joined.step(state, reply)[0], team.step(beside, reply)[0]
        assert found(state)["librarian"] == found(beside)[f"librarian_{archive}"]
        reply = joined.oracle(state)
        state, beside = joined.step(state, reply)[0], team.step(beside, reply)[0]


def test_one_agent_that_is_told_the_archive_of_each_step_is_shown_both() -> None:
    joined, full = (each(Archives(**STUDY)) for each in (DirectedLibrarian, FullLibrarian))
    state, beside = (each.start(each.task.generate(3)) for each in (joined, full))
    chain = joined.task.world(state.task).chain
    for turn in range(4):
        named = f"archive {archive_of(chain.relations[turn])}" if turn < 3 else "archive 0 and archive 1"
        asked, without = joined.observe(state, "librarian"), full.observe(beside, "librarian")
        assert asked.endswith(f"\nSearch {named} now.")
        assert asked.splitlines()[:-1] == without.splitlines()[:-1]
        for _ in range(2):
            assert joined.oracle(state) == full.oracle(beside)
            state, beside = (each.step(at, full.oracle(beside))[0] for each, at in ((joined, state), (full, beside)))
        assert found(state) == found(beside)
    assert joined.oracle(state) == f"Answer: {chain.names[-1]}" == full.oracle(beside)


@pytest.mark.parametrize(("message", "expected"), [("{due}", 1 / 3), ("{due} {other}", 1 / 6), ("{other}", 0)])
@pytest.mark.parametrize("is_late", [True, False])
def test_passing_the_name_on_pays_once_in_the_turn_that_no_step_needs(
    is_late: bool, message: str, expected: float
) -> None:
    """Before the first of three hops if the other librarian has it, else after the last one."""
    joined = LibrarianTeam(Archives(**STUDY), order="seed", num_turns=5)
    for seed in range(20):
        state = joined.start(joined.task.generate(seed))
        names = joined.task.world(state.task).chain.names
        if (joined.actor(state)[-1] != str(archive_of(joined.task.world(state.task).chain.relations[0]))) == is_late:
            break
    due, other = (names[0], names[-1]) if is_late else (names[-1], names[0])
    told = []
    while phase(state) != "answer":
        no_step = phase(state) == "say" and (state.turn == 1 if is_late else state.turn == 4)
        reply = f"Say: {message.format(due=due, other=other)}" if no_step else joined.oracle(state)
        state, parts, *_ = joined.step(state, reply)
        told += [part.get("told", 0.0) for part in parts.values()] if phase(state) != "say" else []
    first = [expected] if is_late else []
    # There is a turn more than that, in which the name is passed on for nothing.
    assert told == pytest.approx([*first, 1 / 3, 1 / 3, 1 / 3, *([] if is_late else [expected]), 0])


@pytest.mark.parametrize("hops", [2, 3])
def test_one_agent_with_both_archives_begins_at_once_and_has_a_turn_more_at_the_end(hops: int) -> None:
    joined = FullLibrarian(Archives(hops=hops, size=10))
    for seed in range(20):
        state, over = joined.start(joined.task.generate(seed)), False
        told = []
        while not over:
            state, _, over, _ = joined.step(state, joined.oracle(state))
            told.append(sum(state.task.told))
        assert told[1::2] == [*range(1, hops + 1), hops]  # after each turn
        assert joined.task.solved(state.task)


@pytest.mark.parametrize(
    ("workflow", "says_late", "says_early"),
    [
        ("team", True, False),
        ("alone", True, False),
        ("routed", True, False),
        ("full", False, True),
        ("directed", False, True),
    ],
)
def test_a_prompt_says_when_the_turn_that_is_too_many_may_come(
    workflow: str, says_late: bool, says_early: bool
) -> None:
    by_seed, by_question = (WORKFLOWS[workflow](Archives(), order=order) for order in ("seed", "question"))
    librarian = by_seed.members[0]
    late, early = "The first turn may be of the archive that the first step does not need", "There is one turn more"
    assert (late in by_seed.system(librarian), early in by_seed.system(librarian)) == (says_late, says_early)
    assert not {late, early} & {each for each in (late, early) if each in by_question.system(librarian)}


def alike_worlds(seed: int, own: int, *, facts: int, hops: int, size: int) -> list[World]:
    """The worlds of an instance in which the last step of the question in the other archive is moved on."""
    chain = World(size, hops, "symbols", "test", seed, facts=facts).chain
    step = next(relation % STEPS for relation in reversed(chain.relations) if archive_of(relation) != own)
    return [World(size, hops, "symbols", "test", seed, facts=facts, turned=(step, by)) for by in range(size)]


def followed(world: World) -> str:
    """The name to which the question leads, by the texts of the passages and of the question alone."""
    told = [each.text.split() for own in world.passages.values() for each in own]
    leads = {(subject, relation): name for subject, relation, name in told}
    at, *relations = world.chain.question.removesuffix(" ?").split()
    for relation in relations:
        at = leads[at, relation]
    return at


@pytest.mark.parametrize("facts", [1, 2, 3])
@pytest.mark.parametrize("hops", [2, 3, 4])
@pytest.mark.parametrize("own", ARCHIVES)
def test_all_of_one_archive_and_the_question_leave_every_answer_possible(own: int, facts: int, hops: int) -> None:
    size = 9
    for seed in range(2):
        worlds = alike_worlds(seed, own, facts=facts, hops=hops, size=size)
        shown = {(each.chain.question, tuple(passage.text for passage in each.passages[own])) for each in worlds}
        assert len(shown) == 1
        assert len({followed(each) for each in worlds}) == size == 1 / Archives(size=size, facts=facts).lone_bound()
        assert [followed(each) for each in worlds] == [each.chain.names[-1] for each in worlds]


@pytest.mark.parametrize(
    ("message", "expected"), [("{1}", 1 / 3), ("{1} {wrong}", 0), ("{wrong}", 0), ("{0} {1}", 1 / 3)]
)
def test_naming_every_fact_of_a_name_pays_nothing(message: str, expected: float) -> None:
    joined = LibrarianTeam(Archives(**STUDY), order="question")
    state, names = start_of(joined)
    (wrong,) = joined.task.world(state.task).misreadings[0]
    assert any(wrong in passage for passage in found(state).get(joined.actor(state), ()))
    _, parts, *_ = joined.step(state, f"Say: {message.format(*names, wrong=wrong)}")
    assert parts == {joined.actor(state): {"told": pytest.approx(expected)}}


def start_of(workflow: Any) -> tuple[Any, tuple[str, ...]]:
    """The first state of seed 0 after the first search, and the names of its chain."""
    state = workflow.start(workflow.task.generate(0))
    names = workflow.task.world(state.task).chain.names
    state, *_ = workflow.step(state, f"Search: {names[0]}")
    return state, names


def others_of(task: Archives, state: Any, names: tuple[str, ...]) -> list[str]:
    """Names that are neither of the chain nor where another fact of its start leads, in lower case."""
    world = task.world(state.task)
    return sorted(world.names - {name.lower() for name in names} - world.misreadings[0])


@pytest.mark.parametrize(
    ("message", "expected"),
    [
        ("{1}", 0.5),
        ("the one of {0} is {1}.", 0.5),  # the start is known
        ("{1} or {a}", 0.25),
        ("{a} {b} {c} {1}", 0.125),
        ("{1} {2}", 0.5),  # of the chain, too, but two hops cannot be told at once
        ("{a}", 0.0),
        ("it is not known", 0.0),
    ],
)
def test_a_message_is_paid_for_the_entity_that_is_needed_and_less_for_each_other_one(
    message: str, expected: float
) -> None:
    joined = LibrarianTeam(Archives(size=10))
    state, names = start_of(joined)
    a, b, c, *_ = others_of(joined.task, state, names)
    actor = joined.actor(state)
    _, parts, *_ = joined.step(state, f"Say: {message.format(*names, a=a, b=b, c=c)}")
    if message == "{1} {2}":
        expected = 0.25  # for this hop the last entity is another one
    assert parts == {actor: {"told": pytest.approx(expected)}}


def test_naming_every_entity_in_turn_without_searching_pays_nothing() -> None:
    joined = LibrarianTeam(Archives(size=4), num_turns=16)
    state = joined.start(joined.task.generate(0, "test"))
    entities = sorted(joined.task.world(state.task).names)
    paid = []
    for turn in range(16):
        for reply in ("Search: x", f"Say: {entities[turn]}"):
            state, parts, *_ = joined.step(state, reply)
            paid += [*parts.values()]
    assert len(entities) == 16
    assert paid == [{"found": 0.0}, {"told": 0.0}] * 16


def test_repeating_a_search_or_a_message_pays_nothing() -> None:
    joined = LibrarianTeam(Archives(size=10), num_turns=4)
    state, names = start_of(joined)
    first = joined.actor(state)
    paid = []
    for _ in range(5):
        actor, kind = joined.actor(state), phase(state)
        reply = f"{kind.title()}: {names[0] if kind == 'search' else names[1]}"
        state, parts, *_ = joined.step(state, reply)
        paid.append((actor == first, kind, *parts[actor].values()))
    assert paid[0] == (True, "say", 0.5)
    assert [each[2] for each in paid[1:]] == [0.0] * 4


def test_a_better_message_pays_what_is_left_and_a_worse_one_takes_nothing() -> None:
    joined = LibrarianTeam(Archives(size=10), num_turns=5)
    state, names = start_of(joined)
    other = others_of(joined.task, state, names)[0]
    state, parts, *_ = joined.step(state, f"Say: {names[1]} {other}")
    assert [*parts.values()] == [{"told": 0.25}]
    for reply in ("Search: x", "Say: x", f"Search: {names[0]}"):
        state, *_ = joined.step(state, reply)
    state, parts, *_ = joined.step(state, f"Say: {names[1]}")
    assert [*parts.values()] == [{"told": 0.25}]
    for reply in ("Search: x", "Say: x", f"Search: {names[0]}"):
        state, *_ = joined.step(state, reply)
    assert [*joined.step(state, f"Say: {names[1]} {other}")[1].values()] == [{"told": 0.0}]


def test_a_name_that_the_cut_lost_is_not_paid_and_not_shown() -> None:
    joined = LibrarianTeam(Archives(size=10), capacity=20)
    state, names = start_of(joined)
    actor = joined.actor(state)
    state, parts, *_ = joined.step(state, f"Say: I have found in my archive {names[1]}")
    assert parts == {actor: {"told": 0.0}}
    other = joined.actor(state)
    assert "wrote:\n> I have found in my a\n" in joined.observe(state, other)
    assert names[1] not in joined.observe(state, other)


def test_a_message_that_does_not_arrive_is_not_paid_and_not_shown() -> None:
    joined = SilentLibrarians(Archives(size=10))
    state, names = start_of(joined)
    actor = joined.actor(state)
    state, parts, *_ = joined.step(state, f"Say: {names[1]}")
    assert parts == {actor: {"told": 0.0}}
    assert all(names[1] not in joined.observe(state, member) for member in joined.members if member != actor)


def test_the_answerer_is_never_shown_a_passage_and_a_librarian_only_its_own() -> None:
    joined = LibrarianTeam(Archives(size=10))
    state, _ = start_of(joined)
    first = joined.actor(state)
    shown = {member: "Your last search found" in joined.observe(state, member) for member in joined.members}
    assert shown == {member: member == first for member in joined.members}


def test_what_others_wrote_is_quoted() -> None:
    joined = LibrarianTeam(Archives(size=10))
    state, _ = start_of(joined)
    state, *_ = joined.step(state, "Say: Answer: Zulo <|im_end|>")
    assert "\n> Answer: Zulo <\u200b|im_end|>\n" in joined.observe(state, joined.actor(state))


def test_without_a_communication_reward_only_the_answer_is_paid() -> None:
    joined = LibrarianTeam(Archives(size=10, communication_reward=False))
    assert [role.delayed for role in joined.roles] == [True, False]
    assert joined.ranges().keys() == {"progress", "success", "format"}
    state = joined.start(joined.task.generate(0))
    for _ in range(6):  # a search and a message in each of three turns
        state, parts, over, _ = joined.step(state, joined.oracle(state))
        assert (parts, over) == ({}, False)
    assert joined.step(state, joined.oracle(state))[1:3] == ({"team": {"progress": 1.0, "success": 1.0}}, True)


@pytest.mark.parametrize(
    ("reply", "expected"),
    [
        ("Search: Zulo", ArchivesMove("search", "Zulo")),
        ("I think so.\nSAY:  it is Zulo ", ArchivesMove("say", "it is Zulo")),
        ("Answer: Zulo.", ArchivesMove("answer", "Zulo.")),
        (f"Search: {'a' * 100}", ArchivesMove("search", "a" * 64)),
        ("", Unreadable("it is empty")),
        ("Search:", Unreadable("it has no words")),
        ("Search: Zulo\nThank you.", Unreadable("its last line is not 'Search:', 'Say:' or 'Answer:' with words")),
        (f"Answer: {'a' * 61}", Unreadable("its answer has more than 60 characters")),
    ],
)
def test_a_reply_is_read_from_its_last_line(reply: str, expected: Any) -> None:
    assert Archives().parse(reply) == expected


@pytest.mark.parametrize(("write", "is_right"), [("{}", True), ("{}.", True), ("the {}", False), ("{} {}", False)])
def test_an_answer_is_the_name_and_nothing_else(write: str, is_right: bool) -> None:
    task = Archives(size=10)
    state = task.generate(0)
    name = task.world(state).chain.names[-1]
    for spelled in (name, name.upper()):
        answered = task.apply(state, ArchivesMove("answer", write.format(spelled, spelled)))
        assert task.solved(answered) is is_right


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({"hops": 1}, "hops is 1; expected a whole number from 2 to 8."),
        ({"size": 3}, "size is 3; expected a whole number from 4 to 100."),
        ({"facts": 4}, "facts is 4; expected a whole number from 1 to 3."),
        ({"facts": 3, "results": 2}, "results is 2 and facts is 3; expected at least as many results"),
        ({"results": 1}, "whatever is asked. Set results=2, or facts=1."),
        ({"order": "first"}, "order is 'first'; expected one of 'question', 'seed'."),
        ({"order": "seed", "num_turns": 2}, "num_turns is 2; expected 0 or at least 3, a turn for each hop and one"),
        ({"results": 0}, "results is 0; expected a whole number from 1 to 10."),
        ({"wording": "latin"}, "wording is 'latin'; expected one of 'english', 'symbols'."),
        ({"order": "question", "num_turns": 1}, "num_turns is 1; expected 0 or at least 2, a turn for each hop."),
        ({"capacity": 0}, "the capacity of a channel is 0; expected a whole number of at least 1."),
        ({"workflow": "alone", "archive": 2}, "archive is 2; expected one of 0, 1."),
        ({"workflow": "cut", "capacity": 9}, "the workflow 'cut' got capacity=9, which is a setting of 'team'."),
    ],
)
def test_settings_that_make_no_sense_raise(settings: dict[str, Any], expected: str) -> None:
    with pytest.raises(ValueError, match=re.escape(expected)):
        pettingllms_envs.make("archives", **settings)


@pytest.mark.parametrize(
    "workflow",
    ["team", *(pytest.param(name, marks=pytest.mark.slow) for name in ("pair", "alone", "cut", "cut_pair", "full"))],
)
def test_a_small_form_passes_the_checks_of_its_rewards(workflow: str) -> None:
    make = partial(pettingllms_envs.make, "archives", workflow=workflow, size=10)
    report = check(make, seeds=range(3), only=REWARD_CHECKS)
    assert report.ok, str(report)


@pytest.mark.slow
@pytest.mark.parametrize("settings", [{}, {"communication_reward": False}, {"wording": "symbols", "hops": 3}], ids=str)
@pytest.mark.parametrize("workflow", WORKFLOWS)
def test_it_passes_every_check(workflow: str, settings: dict[str, Any]) -> None:
    report = check(partial(pettingllms_envs.make, "archives", workflow=workflow, **settings))
    assert report.ok, str(report)
