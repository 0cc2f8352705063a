"""Note taking: the bound of a lone agent against exhaustive search and play, what each prompt has, what is paid."""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Callable
from fractions import Fraction
from functools import partial
from typing import Any

import pytest

import pettingllms_envs
from pettingllms_envs.core import Unreadable
from pettingllms_envs.environments.note_taking.bound import count_notes, counting_bound
from pettingllms_envs.environments.note_taking.note_takers import FullView, LoneNoteTaker, NoteTakers, SilentNoteTakers
from pettingllms_envs.environments.note_taking.rules import DigitsMove, NoteTaking, NoteTakingState
from pettingllms_envs.testing import check


Policy = Callable[[str], str]
"""A reply to a prompt: what an agent can know."""

WORKFLOWS = {each.name: each for each in (NoteTakers, SilentNoteTakers, LoneNoteTaker, FullView)}
REWARD_CHECKS = ("oracle", "floors", "rewards", "learning signal", "no solution shown", "pairs of roles", "potential")
SMALL: dict[str, Any] = {"readings": 4, "values": 1000, "digits": 6}

# Readings 12 and 56 pass on the left, 34 and 78 on the right; asked for is the second one on the right.
STATE = NoteTakingState((12, 34, 56, 78), question=3)


def play(workflow: Any, seed: int, policy: Policy) -> bool:
    """Whether the answer is right in an episode whose agents reply to nothing but their prompts."""
    state = workflow.start(workflow.task.generate(seed))
    for _ in range(workflow.num_turns):
        state, *_ = workflow.step(state, policy(workflow.observe(state, workflow.actor(state))))
    return bool(workflow.task.solved(state.task))


def in_order(task: NoteTaking) -> Policy:
    """Writes down readings in order while there is room, tells and answers from that, and reads the full view."""

    def policy(prompt: str) -> str:
        found = re.search(r"Your notes: ([0-9]*)", prompt)
        assert found is not None
        notes = found[1]
        if reading := re.search(r"Your reading \d+ of \d+: (\d+)", prompt):
            return f"Notes: {notes + reading[1] if len(notes) + task.width <= task.digits else notes}"
        asked = re.search(r"(?:for|is asked for) (\S+) reading (\d+)\.", prompt)
        assert asked is not None
        at = (int(asked[2]) - 1) * task.width
        known = notes[at : at + task.width] or "0"
        if "You are asked" not in prompt:
            return f"Say: {known}"
        shown = re.search(rf"Reading {asked[2]}: (\d+)", prompt)
        told = re.search(r"tells you: (\d+)", prompt)
        if asked[1] == "your":
            return f"Answer: {shown[1] if shown else known}"
        return f"Answer: {told[1] if told else 0}"

    return policy


def score(readings: int, values: int, codebook: tuple[tuple[int, ...], ...]) -> Fraction:
    """The share of right answers if the notes name the best of a few sequences, from which is answered."""
    right = sum(
        max(sum(map(int.__eq__, sequence, each)) for each in codebook)
        for sequence in itertools.product(range(values), repeat=readings)
    )
    return Fraction(right, readings * values**readings)


def deviation(share: float, trials: int) -> float:
    """Three standard deviations of a mean of that many trials."""
    return 3 * math.sqrt(share * (1 - share) / trials)


@pytest.mark.parametrize(
    ("readings", "values", "num_notes", "expected"),
    [
        (1, 10, 1, Fraction(1, 10)),  # a guess
        (3, 2, 2, Fraction(3, 4)),  # 000 and 111: 2 sequences with 3 right, 6 with 2
        (7, 2, 16, Fraction(7, 8)),  # Hamming's code: 16 sequences with 7 right, 112 with 6
        (2, 10, 11, Fraction(111, 200)),  # 11 sequences with 2 right, 89 with 1
        (2, 3, 9, Fraction(1)),  # notes for every sequence
    ],
)
def test_the_bound_is_that_of_a_perfect_code(readings: int, values: int, num_notes: int, expected: Fraction) -> None:
    assert counting_bound(readings, values, num_notes) == expected


@pytest.mark.parametrize(
    ("readings", "values", "num_notes", "is_reached"),
    [(3, 2, 2, True), (2, 3, 3, True), (2, 2, 3, True), (3, 2, 3, True), (2, 4, 3, False), (3, 3, 2, False)],
)
def test_no_way_to_write_notes_exceeds_the_bound(readings: int, values: int, num_notes: int, is_reached: bool) -> None:
    sequences = list(itertools.product(range(values), repeat=readings))
    best = max(score(readings, values, each) for each in itertools.combinations(sequences, num_notes))
    bound = counting_bound(readings, values, num_notes)
    assert best == bound if is_reached else best < bound


@pytest.mark.parametrize(
    ("readings", "values", "digits", "bound"), [(16, 10_000, 32, 0.563), (8, 1000, 12, 0.508), (4, 10, 2, 0.605)]
)
def test_the_bounds_of_the_settings_that_the_docstring_names(
    readings: int, values: int, digits: int, bound: float
) -> None:
    assert round(float(NoteTaking(readings, values, digits).lone_bound()), 3) == bound


def test_shorter_notes_are_counted_too() -> None:
    assert [count_notes(digits) for digits in range(3)] == [1, 11, 111]


@pytest.mark.parametrize("trials", [2_000, pytest.param(20_000, marks=pytest.mark.slow)])
def test_the_best_lone_guesser_is_right_as_often_as_the_bound_says(trials: int) -> None:
    # Notes are the first reading, which is answered for both; empty for 0 and 1, which are then known exactly.
    task = NoteTaking(readings=2, values=10, digits=1)
    assert task.lone_bound() == Fraction(111, 200)

    def best(prompt: str) -> str:
        notes = re.findall(r"Your notes: (\d?)", prompt)[0]
        if reading := re.search(r"Your reading (\d) of 2: (\d)", prompt):
            exact = reading[1] == "2" and notes == "0" and reading[2] == "1"
            return "Notes:" if exact else f"Notes: {notes or reading[2]}"
        number = re.findall(r"your reading (\d)", prompt)[0]
        return f"Answer: {notes or int(number) - 1}"

    right = sum(play(LoneNoteTaker(task), seed, best) for seed in range(trials))
    assert abs(right / trials - 0.555) < deviation(0.555, trials)


@pytest.mark.parametrize(
    ("workflow", "settings", "expected"),
    [
        ("team", {}, 1.0),
        ("team", {"answerer": "watcher"}, 1.0),
        ("full", {}, 1.0),
        ("alone", {}, 0.5),
        ("cut", {}, 0.0001),
    ],
)
@pytest.mark.parametrize("trials", [200, pytest.param(20_000, marks=pytest.mark.slow)])
def test_two_note_takers_are_always_right_and_one_is_half_of_the_time(
    workflow: str, settings: dict[str, Any], expected: float, trials: int
) -> None:
    task = NoteTaking()
    joined = WORKFLOWS[workflow](task, **settings)
    right = sum(play(joined, seed, in_order(task)) for seed in range(trials))
    assert abs(right / trials - expected) <= deviation(expected, trials) + 1 / trials * (workflow == "cut")
    if workflow == "alone":
        assert right / trials < task.lone_bound() + deviation(0.56, trials)


@pytest.mark.parametrize(
    ("reply", "expected"),
    [
        ("Notes: 123456", DigitsMove("notes", "123456")),
        ("I think.\nnotes:1 2\t3 ", DigitsMove("notes", "123")),
        ("Notes:", DigitsMove("notes", "")),
        ("Say: 007", DigitsMove("say", "007")),
        ("Answer: 41.", DigitsMove("answer", "41")),
    ],
)
def test_a_reply_is_read_from_its_last_line_without_spaces_between_digits(reply: str, expected: DigitsMove) -> None:
    assert NoteTaking(**SMALL).parse(reply) == expected


@pytest.mark.parametrize(
    ("reply", "reason"),
    [
        ("", "it is empty"),
        ("Notes: 12 a", "its last line is not 'Notes:', 'Say:' or 'Answer:' with digits"),
        ("Notes: 1,2", "its last line is not 'Notes:', 'Say:' or 'Answer:' with digits"),
        ("Notes: \uff11\uff12", "its last line is not 'Notes:', 'Say:' or 'Answer:' with digits"),  # full-width
        ("Notes: \u0661\u0662", "its last line is not 'Notes:', 'Say:' or 'Answer:' with digits"),  # Arabic
        ("Notes: 12\u00a034", "its last line is not 'Notes:', 'Say:' or 'Answer:' with digits"),
        ("Notes: 12\nand more", "its last line is not 'Notes:', 'Say:' or 'Answer:' with digits"),
        ("Notes: 1234567", "it has 7 digits, and at most 6 are allowed"),
        ("Answer: 0041", "it has 4 digits, and at most 3 are allowed"),
        ("Say:", "it has no digits"),
    ],
)
def test_anything_else_is_unreadable(reply: str, reason: str) -> None:
    assert NoteTaking(**SMALL).parse(reply) == Unreadable(reason)


@pytest.mark.parametrize("workflow", ["team", "cut", "alone"])
def test_the_prompt_of_a_question_depends_on_nothing_but_notes_question_and_message(workflow: str) -> None:
    joined = WORKFLOWS[workflow](NoteTaking(readings=4, values=100, digits=8))
    prompts = set()
    for readings, before in itertools.product(((12, 34, 56, 78), (9, 9, 9, 9)), ("Notes: 55", "???", "Notes: 1")):
        state = joined.start(NoteTakingState(readings, question=3))
        for number in range(4):
            state, *_ = joined.step(state, "Notes: 4444" if number > 1 else before)
        unreadable, *_ = joined.step(state, "???")  # a message, of those who send one
        assert unreadable.task.notes == state.task.notes == ("4444",) * len(joined.members)
        prompts |= (
            {joined.observe(state, joined.actor(state)), joined.observe(unreadable, "left")}
            if workflow != ("alone")
            else {joined.observe(state, "watcher")}
        )
    assert len(prompts) == (1 if workflow == "alone" else 2)


@pytest.mark.parametrize("workflow", ["team", "cut", "alone"])
def test_nobody_is_shown_anothers_reading_or_an_earlier_one(workflow: str) -> None:
    joined = WORKFLOWS[workflow](NoteTaking(readings=4, values=100, digits=8))
    state = joined.start(STATE)
    for number, reading in enumerate(STATE.readings):
        for member in joined.members:
            shown = {int(each) for each in re.findall(r"\b\d\d\b", joined.observe(state, member))}
            before = STATE.readings[max(number - 1, 0) : number]  # the last one of a member that is not asked
            assert shown == ({reading} if member == joined.actor(state) else {*before}), number
        state, *_ = joined.step(state, "Notes:")


def test_a_note_is_paid_when_it_is_written_and_only_for_readings_in_their_places() -> None:
    joined = NoteTakers(NoteTaking(readings=4, values=100, digits=8))
    state, paid = joined.start(STATE), []
    for reply in ("Notes: 12", "Notes: 34", "Notes: 56", "Notes: 3478"):
        actor = joined.actor(state)
        state, parts, *_ = joined.step(state, reply)
        paid.append(parts[actor]["noted"])
    assert paid == [0.25, 0.25, -0.25, 0.25]  # left lost its first reading, and has the second in its place
    assert joined.task.outcome(state.task)["noted"] == 0.5


@pytest.mark.parametrize(("message", "told"), [("78", 1.0), ("34", 0.0), ("7", 0.0)])
def test_a_message_is_paid_once_for_the_reading_that_is_asked_for(message: str, told: float) -> None:
    joined = NoteTakers(NoteTaking(readings=4, values=100, digits=8))
    state = joined.start(STATE)
    for _ in range(4):
        state, *_ = joined.step(state, "Notes:")
    assert joined.actor(state) == "right"
    state, parts, *_ = joined.step(state, f"Say: {message}")
    assert parts == {"right": {"told": told}}
    assert joined.actor(state) == "left"
    assert f"Right tells you: {message}" in joined.observe(state, "left")
    state, parts, is_over, _ = joined.step(state, "Answer: 78")
    assert (parts, is_over) == ({"team": {"progress": 1.0, "success": 1.0}}, True)


def test_a_message_that_does_not_arrive_is_not_paid() -> None:
    joined = SilentNoteTakers(NoteTaking(readings=4, values=100, digits=8))
    state = joined.start(STATE)
    for _ in range(4):
        state, *_ = joined.step(state, "Notes:")
    state, parts, *_ = joined.step(state, "Say: 78")
    assert parts == {}
    assert "78" not in joined.observe(state, "left")
    assert "told" not in joined.ranges()


def test_without_a_communication_reward_only_the_answer_is_paid() -> None:
    joined = NoteTakers(NoteTaking(readings=4, values=100, digits=8, communication_reward=False))
    assert all(role.delayed for role in joined.roles)
    assert joined.ranges().keys() == {"progress", "success", "format"}
    state = joined.start(STATE)
    for reply in ("Notes: 12", "Notes: 34", "Notes: 1256", "Notes: 3478", "Say: 78"):
        state, parts, *_ = joined.step(state, reply)
        assert parts == {}
    assert joined.step(state, "Answer: 78")[1] == {"team": {"progress": 1.0, "success": 1.0}}


def test_an_unreadable_answer_is_a_wrong_one() -> None:
    joined = LoneNoteTaker(NoteTaking(readings=2, values=10, digits=2))
    state = joined.start(NoteTakingState((1, 2), question=0))
    for reply in ("Notes: 1", "Notes: 12"):
        state, *_ = joined.step(state, reply)
    state, parts, is_over, _ = joined.step(state, "It is 1.")
    assert (parts, is_over) == ({"watcher": {"format": -0.2}}, True)
    assert not joined.task.solved(state.task)


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({"readings": 5}, "readings is 5; expected an even number, half of it for each note taker."),
        ({"readings": 0}, "readings is 0; expected a whole number from 2 to 100."),
        ({"values": 1}, "values is 1; expected a whole number from 2 to 1000000."),
        ({"digits": 31}, "digits is 31; expected a whole number from 32 to 500."),
        ({"answerer": "nobody"}, "answerer is 'nobody'; expected one of 'other', 'watcher'."),
        ({"num_turns": 3}, "num_turns is 3; expected 18, which it takes. Leave it out."),
        (
            {"workflow": "alone", "answerer": "other"},
            "the workflow 'alone' got answerer='other', which is a setting of",
        ),
    ],
)
def test_settings_that_make_no_sense_raise(settings: dict[str, Any], expected: str) -> None:
    with pytest.raises(ValueError, match=re.escape(expected)):
        pettingllms_envs.make("note_taking", **settings)


@pytest.mark.parametrize(
    "workflow", ["team", *(pytest.param(name, marks=pytest.mark.slow) for name in ("alone", "cut", "full"))]
)
def test_a_small_form_passes_the_checks_of_its_rewards(workflow: str) -> None:
    make = partial(pettingllms_envs.make, "note_taking", workflow=workflow, **SMALL)
    report = check(make, seeds=range(3), only=REWARD_CHECKS)
    assert report.ok, str(report)


@pytest.mark.slow
@pytest.mark.parametrize("settings", [{}, {"communication_reward": False}], ids=["paid", "unpaid"])
@pytest.mark.parametrize("workflow", WORKFLOWS)
def test_it_passes_every_check(workflow: str, settings: dict[str, Any]) -> None:
    report = check(partial(pettingllms_envs.make, "note_taking", workflow=workflow, **settings))
    assert report.ok, str(report)
