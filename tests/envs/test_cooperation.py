"""The forms of teams, and the bound of a lone agent: recomputed where it holds, and found out where it does not."""

from __future__ import annotations

import dataclasses
import itertools
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import partial
from typing import Any, ClassVar

import pytest

import pettingllms_envs
from pettingllms_envs.assembly import assemble
from pettingllms_envs.bounds import Memory
from pettingllms_envs.environments.archives.librarians import (
    FullLibrarian,
    LibrarianTeam,
    LoneLibrarian,
    RoutedLibrarian,
    SilentLibrarians,
    SilentPair,
    full,
    librarians,
    library,
)
from pettingllms_envs.environments.archives.rules import Archives, ArchivesState
from pettingllms_envs.environments.note_taking.bound import count_notes, counting_bound
from pettingllms_envs.environments.note_taking.note_takers import FullView, LoneNoteTaker, NoteTakers, SilentNoteTakers
from pettingllms_envs.environments.note_taking.rules import NoteTaking
from pettingllms_envs.teams.forms import Form, Forms
from pettingllms_envs.teams.functions import Game, Questions
from pettingllms_envs.testing import Result, check
from pettingllms_envs.testing.cooperation import bound_of_memory, lone_bound, play_forms
from pettingllms_envs.testing.play import Failed, best


LIBRARIANS = (LibrarianTeam, SilentLibrarians, LoneLibrarian, FullLibrarian, RoutedLibrarian)
WATCHERS = (NoteTakers, SilentNoteTakers, LoneNoteTaker, FullView)
TINY: dict[str, Any] = {"size": 4, "wording": "symbols"}
SMALL: dict[str, Any] = {"readings": 4, "values": 10, "digits": 2}


def best_of_memory(memory: Memory) -> Fraction:
    """The greatest share of right answers of all ways to write notes and to answer from them."""
    sequences = list(itertools.product(*map(range, memory.values)))
    books = itertools.combinations(sequences, memory.num_notes)
    most = max(sum(max(sum(map(int.__eq__, each, book)) for book in books) for each in sequences) for books in books)
    return Fraction(most, len(memory.values) * len(sequences))


@pytest.mark.parametrize(
    ("memory", "expected"),
    [
        (Memory((10,), 1), Fraction(1, 10)),  # a guess
        (Memory((2, 2, 2), 2), Fraction(3, 4)),  # 2 sequences with 3 right, 6 with 2
        (Memory((10, 10), 11), Fraction(111, 200)),  # 11 sequences with 2 right, 89 with 1
        (Memory((2, 10), 2), Fraction(11, 20)),  # 2 sequences with 2 right, 18 with 1: 22 of 40
        (Memory((3, 3), 9), Fraction(1)),  # notes for every sequence
    ],
)
def test_the_bound_of_a_memory_counts_the_sequences_that_notes_tell_apart(memory: Memory, expected: Fraction) -> None:
    assert bound_of_memory(memory) == expected


@pytest.mark.parametrize("memory", [Memory((2, 2, 2), 2), Memory((2, 3), 3), Memory((4, 2), 2), Memory((3, 3), 2)])
def test_no_notes_exceed_the_bound_of_a_memory(memory: Memory) -> None:
    assert best_of_memory(memory) <= bound_of_memory(memory)


@pytest.mark.parametrize(("readings", "values", "digits"), [(16, 10_000, 32), (8, 1000, 12), (4, 10, 2), (5, 2, 0)])
def test_two_ways_to_count_agree(readings: int, values: int, digits: int) -> None:
    notes = count_notes(digits)
    assert bound_of_memory(Memory((values,) * readings, notes)) == counting_bound(readings, values, notes)


@pytest.mark.parametrize(
    ("name", "settings", "expected"),
    [
        ("note_taking", SMALL, 0.605),
        ("archives", TINY, 0.25),
        ("archives", {**TINY, "workflow": "pair", "hops": 3}, 0.25),
        ("archives", {"size": 5, "hops": 5}, 0.2),
        *(
            pytest.param(
                "archives",
                {"size": 9, "facts": facts, "hops": hops, "order": order},
                0.111,
                marks=() if hops == 3 else pytest.mark.slow,
            )
            for facts, hops, order in itertools.product((1, 2, 3), (2, 3, 4), ("question", "seed"))
        ),
    ],
)
def test_the_bound_of_an_environment_is_recomputed_by_playing_it(
    name: str, settings: dict[str, Any], expected: float
) -> None:
    env = pettingllms_envs.make(name, **settings)
    found = lone_bound(env, lambda form: pettingllms_envs.make(name, **form))
    assert found is not None
    assert found.declared == found.recomputed
    assert round(float(found.recomputed), 3) == expected


def test_an_environment_without_a_bound_has_none() -> None:
    assert lone_bound(pettingllms_envs.make("plan_path"), partial(pettingllms_envs.make, "plan_path")) is None


@pytest.mark.parametrize(
    "settings", [{}, {"capacity": 20, "num_turns": 3}, {"workflow": "pair", "hops": 3}, {"order": "seed"}], ids=str
)
def test_forms_have_the_settings_of_the_team_as_far_as_they_apply(settings: dict[str, Any]) -> None:
    env = pettingllms_envs.make("archives", **TINY, **settings)
    forms = env.metadata["cooperation"]
    for form in (forms["full"], forms["routed"], forms["cut"], *forms["alone"]):
        made = pettingllms_envs.make("archives", **form["settings"]).unwrapped.workflow
        assert made.task == env.unwrapped.workflow.task
        assert made.num_turns == env.unwrapped.workflow.num_turns
        assert getattr(made, "capacity", env.unwrapped.workflow.capacity) == env.unwrapped.workflow.capacity
    assert [form["settings"]["archive"] for form in forms["alone"]] == [0, 1]
    assert [form["player"] for form in forms["alone"]] == ["librarian_0", "librarian_1"]
    cut = pettingllms_envs.make("archives", **forms["cut"]["settings"])
    assert cut.possible_agents == env.possible_agents


def num_replies(workflow: Any) -> int:
    """Of the oracle's episode."""
    state, over, replies = workflow.start(workflow.task.generate(0)), False, 0
    while not over:
        state, _, over, _ = workflow.step(state, workflow.oracle(state))
        replies += 1
    return replies


@pytest.mark.parametrize(("workflow", "expected"), [("team", 9), ("pair", 8)])
def test_all_forms_have_as_many_replies_as_their_team(workflow: str, expected: int) -> None:
    env = pettingllms_envs.make("archives", **TINY, workflow=workflow, hops=3)  # two in each of four turns
    forms = env.metadata["cooperation"]
    made = [
        pettingllms_envs.make("archives", **form["settings"])
        for form in (forms["full"], forms["routed"], forms["cut"], *forms["alone"])
    ]
    assert [num_replies(each.unwrapped.workflow) for each in (env, *made)] == [expected] * 6


def test_where_nobody_sends_messages_there_is_no_form_without_them() -> None:
    forms = pettingllms_envs.make("note_taking", answerer="watcher").metadata["cooperation"]
    assert forms["cut"] is None
    settings = {"workflow": "full", "strict_format": False, "alpha": 1.0}
    assert forms["full"] == {"settings": settings, "player": "left_0"}


def test_a_pair_without_messages_is_shown_none() -> None:
    joined = SilentPair(Archives(**TINY))
    state, over = joined.start(joined.task.generate(0)), False
    while not over:
        assert "wrote" not in joined.observe(state, joined.actor(state))
        actor = joined.actor(state)
        state, _, over, _ = joined.step(state, joined.oracle(state))
    assert actor.startswith("librarian")


def test_a_policy_plays_all_forms_on_the_same_instances() -> None:
    env = pettingllms_envs.make("archives", **TINY)
    shares = play_forms(env, lambda form: pettingllms_envs.make("archives", **form), best, range(3))
    assert list(shares) == ["full", "routed", "team", "cut", "alone-librarian_0", "alone-librarian_1"]
    assert all(own == [1, 1, 1] for own in shares.values())  # the oracle knows the state


@dataclass(frozen=True, slots=True)
class Leaks(LoneLibrarian):
    """A lone librarian that is shown the first letter of the answer."""

    def observe(self, state: Any, role: str) -> str:
        return f"{LoneLibrarian.observe(self, state, role)}\nHint: {self.task.oracle(state.task).text}"


@librarians("alone", lambda team: full(team.task))
def HasBothArchives(
    game: Game, order: str = "seed", capacity: int = 60, archive: int = 0, answers_last: bool = False
) -> Questions:
    """A lone librarian with both archives."""
    return (yield from library(game, order, full(game.task), answers_last=answers_last))


@dataclass(frozen=True, slots=True)
class RemembersItsLastReading(LoneNoteTaker):
    """A lone watcher whose last prompt also has the last reading."""

    def observe(self, state: Any, role: str) -> str:
        shown = LoneNoteTaker.observe(self, state, role)
        return f"{shown}\nThe last reading was {state.task.readings[-1]}."


@dataclass(frozen=True, slots=True)
class TellsWhatIsUnreadable(LoneLibrarian):
    """A lone librarian that is shown the answer if its last reply was unreadable."""

    def observe(self, state: Any, role: str) -> str:
        shown = LoneLibrarian.observe(self, state, role)
        is_unreadable = "Your last reply was unreadable" in shown
        return f"{shown}\nUse a name such as {self.task.oracle(state.task).text}." if is_unreadable else shown


@dataclass(frozen=True, slots=True)
class AsksFirst(LoneNoteTaker):
    """A lone watcher that is told in advance which reading it will be asked for, so that notes of one suffice."""

    def observe(self, state: Any, role: str) -> str:
        shown = LoneNoteTaker.observe(self, state, role)
        return f"{shown}\nRemember reading {state.task.question + 1}."


@dataclass(frozen=True, slots=True)
class ShowsLostNotes(LoneNoteTaker):
    """A lone watcher whose last prompt also has its last reading if no note was taken of it."""

    def observe(self, state: Any, role: str) -> str:
        shown = LoneNoteTaker.observe(self, state, role)
        is_lost = any("Notes:" not in reply for reply in state.replies[-1:])
        return f"{shown}\nNot noted: {state.task.readings[-1]}" if is_lost else shown


@dataclass(frozen=True, slots=True)
class HasMoreDigits(NoteTakers):
    """A team whose form alone has longer notes than the team."""

    @property
    def forms(self) -> Forms:
        return Forms(alone=(Form({"workflow": LoneNoteTaker.name, "digits": 4}, "left_0"),))


@dataclass(frozen=True, slots=True)
class TakesAnyReading(NoteTaking):
    """A task in which every answer is right."""

    def solved(self, state: Any) -> bool:
        return bool(state.answer)


@dataclass(frozen=True, slots=True)
class HalvesItsBound(Archives):
    """A task whose bound is half of what it is."""

    def lone_bound(self) -> Fraction:
        return Fraction(1, 2 * self.size)


@dataclass(frozen=True, slots=True)
class TakesAnyAnswer(Archives):
    """A task in which every other answer is right."""

    def solved(self, state: ArchivesState) -> bool:
        return int(state.answer[1:] or 0) % 2 == int(self.world(state).chain.names[-1][1:]) % 2


@dataclass(frozen=True, slots=True)
class ForgetsToSolve(LibrarianTeam):
    """A team whose oracle does not know the answer."""

    def oracle(self, state: Any) -> str:
        return "Answer: nobody"


@dataclass(frozen=True, slots=True)
class HasAStranger(LibrarianTeam):
    """A team that names a player whom it does not have."""

    @property
    def forms(self) -> Forms:
        return Forms(full=Form({"workflow": "full"}, "reader_0"))


def checked(task: Any, workflows: Sequence[type[Any]], settings: Mapping[str, Any]) -> Result:
    """What the check says of an environment."""
    make = partial(assemble(task, __name__, tuple(workflows), name="own_v0").env, **settings)
    return check(make, seeds=range(3), only=["cooperation"])["cooperation"]


def replaced(workflows: tuple[type[Any], ...], other: type[Any]) -> list[type[Any]]:
    """The workflows, with the one of the same name replaced."""
    return [other if each.name == other.name else each for each in workflows]


@pytest.mark.parametrize(
    ("task", "workflows", "settings", "expected"),
    [
        (
            Archives,
            LIBRARIANS,
            {**TINY, "facts": 1, "order": "question"},
            "5 forms; bound 25.000%, recomputed from 24 instances that look alike to an agent alone; copier: 200 of"
            " 200, bound 100.000%; copier of both archives: ",
        ),
        (Archives, LIBRARIANS, TINY, "of 200, bound 25.000%; copier of both archives: "),
        (NoteTaking, WATCHERS, SMALL, "3 forms; bound 60.545%, recomputed from a count of what its notes can tell"),
    ],
)
def test_the_check_passes_forms_that_are_what_they_seem(
    task: Any, workflows: tuple[type[Any], ...], settings: dict[str, Any], expected: str
) -> None:
    result = checked(task, workflows, settings)
    assert result.status == "passed", result.detail
    assert expected in result.detail


@pytest.mark.parametrize(
    ("task", "workflows", "settings", "words"),
    [
        (Archives, replaced(LIBRARIANS, Leaks), TINY, "in two instances that should look alike"),
        (Archives, replaced(LIBRARIANS, HasBothArchives), TINY, "in two instances that should look alike"),
        (HalvesItsBound, LIBRARIANS, TINY, "is 12.500%, but an agent alone may reach 25.000%"),
        (TakesAnyAnswer, LIBRARIANS, TINY, "is 25.000%, but an agent alone may reach 50.000%"),
        (Archives, replaced(LIBRARIANS, ForgetsToSolve), TINY, "the oracle does not succeed, seed 0"),
        (Archives, replaced(LIBRARIANS, HasAStranger), TINY, "reader_0 of the form {'workflow': 'full'"),
        (NoteTaking, replaced(WATCHERS, RemembersItsLastReading), SMALL, "different last prompts of 4 instances"),
        (NoteTaking, replaced(WATCHERS, AsksFirst), SMALL, "in two instances that should look alike"),
        (NoteTaking, replaced(WATCHERS, ShowsLostNotes), SMALL, "different last prompts of 4 instances"),
        (NoteTaking, replaced(WATCHERS, HasMoreDigits), SMALL, "is 60.545%, but an agent alone may reach 100.000%"),
        (TakesAnyReading, WATCHERS, SMALL, "are both right in one instance"),
        (Archives, replaced(LIBRARIANS, TellsWhatIsUnreadable), TINY, "in two instances that should look alike"),
    ],
)
def test_the_check_fails_forms_that_are_not(
    task: Any, workflows: list[type[Any]], settings: dict[str, Any], words: str
) -> None:
    result = checked(task, workflows, settings)
    assert result.status == "failed"
    assert words in result.detail


def test_a_bound_that_is_too_low_raises() -> None:
    functions = assemble(HalvesItsBound, __name__, LIBRARIANS, name="own_v0")
    with pytest.raises(Failed, match=re.escape("expected at least that. Correct the bound")):
        lone_bound(functions.env(**TINY), lambda form: functions.env(**form))


def test_the_check_is_skipped_without_forms() -> None:
    report = check(partial(pettingllms_envs.make, "plan_path"), seeds=range(1), only=["cooperation"])
    assert report["cooperation"].detail == "it declares no forms, metadata['cooperation']"


@dataclass(frozen=True, slots=True)
class PublishedTeam(LibrarianTeam):
    """A team of a contributor's, with one of the forms."""

    name: ClassVar[str] = "published"

    @property
    def forms(self) -> Forms:
        return Forms(full=Form({"workflow": "full"}, "librarian_0"))


def test_a_contributor_declares_forms_with_one_property() -> None:
    env = assemble(Archives, __name__, (PublishedTeam, FullLibrarian), name="own_v0").env(**TINY)
    assert env.metadata["cooperation"] == {
        "full": {
            "settings": {"workflow": "full", "strict_format": False, "alpha": 1.0, **TINY},
            "player": "librarian_0",
        },
        "routed": None,
        "cut": None,
        "alone": [],
    }
    assert dataclasses.is_dataclass(PublishedTeam)
