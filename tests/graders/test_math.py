"""What counts as the same answer: the tables of docs/grading.md and same_answers.md are checked here, row by row."""

import re
from pathlib import Path

import pytest

from golds import Asked
from pettingllms_envs.graders import math
from pettingllms_envs.graders.math import Grade, GraderFailed, MathGrader, Verdict
from pettingllms_envs.graders.verdicts import Finding, Settings
from pettingllms_envs.graders.workers import MathVerify
from pettingllms_envs.sandbox import ProgramResult
from pettingllms_envs.sandbox import Verdict as Ending


PAGES = (Path(__file__).parents[2] / "docs" / "grading.md", Path(__file__).parent / "same_answers.md")
ANSWER = re.compile(r"`([^`]*)`(?: \((unparsed)\))?")
SETTING = re.compile(r"`(kind|multiple|unit|tolerance)=([^`]+)`")
VALUES = {"True": True, '"integer"': "integer", "(0.1,)": (0.1,), "(0.1, 0.0)": (0.1, 0.0), '"km"': "km", '"%"': "%"}


def documented() -> list[tuple[str, str, str, dict[str, object]]]:
    """The pages' tables: a gold, an answer, its verdict, and the settings of the gold."""
    text = "".join(page.read_text(encoding="utf-8") for page in PAGES)
    tables = re.findall(r"^\| gold \| the same .*?\n\n", text, re.MULTILINE | re.DOTALL)
    lines = [line for table in tables for line in table.splitlines()[2:] if line]
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in lines]
    return [
        (gold.strip("`"), answer, special or verdict, {name: VALUES[value] for name, value in SETTING.findall(rest)})
        for gold, same, other, rest in rows
        for column, verdict in ((same, "correct"), (other, "incorrect"))
        for answer, special in ANSWER.findall(column)
    ]


def test_the_settings_of_a_gold_are_typed_and_none_is_left_out():
    assert tuple(math.GoldSettings.__annotations__) == Settings._fields
    with pytest.raises(TypeError, match="units"):
        math.grade("1", "1", units="km")  # type: ignore[call-arg]  # what the types are for


def test_the_page_has_its_tables():
    assert len(documented()) > 90


@pytest.mark.parametrize(("gold", "answer", "verdict", "settings"), documented())
def test_the_page_says_what_the_grader_does(grader, gold, answer, verdict, settings):
    assert grader.grade(answer, gold, **settings).verdict == verdict


@pytest.mark.parametrize(
    ("answer", "gold"),
    [
        ("7", "7"),
        ("1,2", "2,1"),
        (r"\frac{1}{2}", "0.5"),
        ("x=7", "7"),
        ("(1,2)", "(2,1)"),
        (r"2\sqrt{3}", r"3\sqrt{3}"),
        ("8", "7"),
        ("7%", "7"),
    ],
)
def test_what_needs_no_algebra_is_not_asked_of_math_verify(answer, gold):
    asked = Asked()
    assert MathGrader(asked).grade(answer, gold).found_by == "exact"
    assert asked.questions == []


def test_only_the_parts_that_arithmetic_cannot_tell_are_asked():
    asked = Asked(Finding.EQUAL)
    grade = MathGrader(asked).grade(r"(1, \sqrt{8})", r"(1, 2\sqrt{2})")
    assert grade == Grade(Verdict.CORRECT, "math_verify")
    assert asked.questions == [(r"2\sqrt{2}", r"\sqrt{8}", None)]


@pytest.mark.parametrize(
    ("finding", "verdict"),
    [
        (Finding.EQUAL, Verdict.CORRECT),
        (Finding.DIFFERENT, Verdict.INCORRECT),
        (Finding.TIMEOUT, Verdict.TIMEOUT),
        (Finding.UNPARSED, Verdict.UNPARSED),
    ],
)
def test_what_math_verify_finds_becomes_the_verdict(finding, verdict):
    assert MathGrader(Asked(finding)).grade(r"\sqrt{8}", r"2\sqrt{2}") == Grade(verdict, "math_verify")


def test_an_answer_that_is_wrong_anyway_is_incorrect_and_no_timeout():
    asked = Asked(Finding.TIMEOUT)
    assert MathGrader(asked).grade(r"(\sqrt{8}, 3)", r"(2\sqrt{2}, 2)") == Grade(Verdict.INCORRECT, "exact")


def test_repeated_answers_are_asked_once_and_a_full_memory_forgets_the_oldest():
    asked = Asked(Finding.EQUAL)
    grader = MathGrader(asked, num_remembered=2)
    for answer in (r"\sqrt{8}", r"\sqrt8", r"\sqrt{8}"):
        grader.grade(answer, r"2\sqrt{2}")
    assert len(asked.questions) == 2  # two texts, one of them twice
    grader.grade("8", "8")  # forgets \sqrt8, for \sqrt{8} was used after it
    grader.grade(r"\sqrt{8}", r"2\sqrt{2}")
    assert len(asked.questions) == 2
    grader.grade(r"\sqrt8", r"2\sqrt{2}")
    assert len(asked.questions) == 3


def test_a_group_is_graded_as_its_answers_are_one_by_one(grader, verify):
    answers = [r"\sqrt{8}", "3", r"2\sqrt2", r"\sqrt{8}", "", "x", r"\sqrt[3]{16\sqrt{2}}", "9" * 3000]
    one_by_one = [MathGrader(verify).grade(answer, r"2\sqrt{2}") for answer in answers]
    assert MathGrader(verify).grade_many(answers, r"2\sqrt{2}") == one_by_one
    assert [each.correct for each in one_by_one] == [True, False, True, True, False, False, True, False]


def test_one_hanging_answer_of_a_group_is_not_the_verdict_on_the_others(verify):
    grades = MathGrader(verify).grade_many([r"\sqrt{8}", "9^{9^9}+n", r"2\sqrt{1+1}"], r"2\sqrt{2}")
    assert [each.verdict for each in grades] == [Verdict.CORRECT, Verdict.TIMEOUT, Verdict.CORRECT]


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ("7", "7.0", True),
        ("x=7", "7", True),
        ("7%", "7", False),
        ("8=7", "7", False),
        ("(1,2)", "(2,1)", False),
        ("1,2", "2,1", True),
        ("(1,2)", "1,2", False),
        ("odd", r"\text{Odd}", True),
        ("?", "?", True),
        ("", "", False),
        ("9" * 3000, "9" * 3000, False),
    ],
)
def test_two_answers_agree_if_each_would_be_right_were_the_other_the_gold(grader, one, other, same):
    assert grader.same(one, other) is same
    assert grader.same(other, one) is same


def test_the_functions_of_the_module_use_the_processs_own_grader():
    assert math.default() is math.default()
    assert math.grade("0.5", r"\frac{1}{2}").correct
    assert [each.correct for each in math.grade_many(["025", "24"], "25", kind="integer")] == [True, False]
    assert math.same("7", "x=7")
    assert math.grade("(2,1),(1,2)", "$(1,2)$,$(2,1)$", multiple=True).correct


def test_integers_agree_as_integers(grader):
    assert grader.same("025", "25", kind="integer")
    assert not grader.same("25", "5^2", kind="integer")


@pytest.mark.parametrize(
    ("settings", "error", "message"),
    [
        ({"gold": ""}, ValueError, "the gold is ''; expected an answer"),
        ({"gold": r"\{,\}"}, ValueError, "expected an answer"),
        ({"gold": "7" * 2001}, ValueError, "1 to 2000 characters"),
        ({"gold": "{" * 100}, ValueError, "expected an answer"),
        ({"gold": "x", "kind": "integer"}, ValueError, "expected an integer"),
        ({"gold": "7", "kind": "number"}, ValueError, "number"),
        ({"gold": "7", "unit": float("nan")}, TypeError, "the unit is nan; expected a text"),
        ({"gold": 7}, TypeError, "the gold is 7; expected a text"),
        ({"gold": "7", "tolerance": (-1.0,)}, ValueError, "a tolerance is -1.0"),
        ({"gold": "7", "tolerance": (float("nan"),)}, ValueError, "a tolerance is nan"),
        (
            {"gold": "7", "tolerance": (1.0, 2.0)},
            ValueError,
            "2 tolerances; expected one for all or one for each of 1",
        ),
        ({"gold": "7", "answer": None}, TypeError, "an answer is None; expected a text"),
    ],
)
def test_a_mistake_of_the_callers_is_refused_at_the_door(settings, error, message):
    with pytest.raises(error, match=re.escape(message)):
        MathGrader(Asked()).grade(**{"answer": "7", **settings})


class Broken:
    """Stands in for a sandbox: what it is asked ends like this, after so many seconds of waiting for a core."""

    num_slots = 1

    def __init__(self, *endings: tuple[Ending, float]) -> None:
        self.endings = list(endings)

    def run(self, program: str, stdin: str, limits: object) -> ProgramResult:
        ending, waited = self.endings.pop(0)
        return ProgramResult(verdict=ending, waited=waited, isolation="none", detail="broken")


def broken(*endings: tuple[Ending, float]) -> tuple[MathGrader, Broken]:
    verify = MathVerify(num_slots=1)
    sandbox = Broken(*endings)
    verify.sandbox = sandbox
    return MathGrader(verify), sandbox


def test_a_sandbox_that_fails_is_an_error_and_never_a_verdict():
    grader, _ = broken((Ending.SANDBOX_ERROR, 0.0), (Ending.TIMEOUT, 1.6))
    with pytest.raises(GraderFailed, match="could not be asked"):
        grader.grade(r"\sqrt{8}", r"2\sqrt{2}")
    assert grader.grade(r"\sqrt{8}", r"2\sqrt{2}").verdict == Verdict.TIMEOUT  # it was not remembered


def test_a_question_that_waited_a_minute_for_a_core_has_no_verdict():
    grader, _ = broken((Ending.TIMEOUT, 60.0))
    with pytest.raises(GraderFailed, match="after 60 s of waiting for a core"):
        grader.grade(r"\sqrt{8}", r"2\sqrt{2}")


@pytest.mark.parametrize("ending", [Ending.MEMORY, Ending.RUNTIME_ERROR, Ending.VIOLATION, Ending.FINISHED])
def test_an_answer_that_breaks_the_process_is_unparsed(ending):
    grader, _ = broken((ending, 0.0))
    assert grader.grade(r"\sqrt{8}", r"2\sqrt{2}") == Grade(Verdict.UNPARSED, "math_verify")
