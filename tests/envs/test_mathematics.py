"""The tasks `aime`, `olympiad_bench` and `math`: answers read, problems drawn, states kept; by hand."""

from __future__ import annotations

import json
import pickle
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

import pettingllms_envs
from pettingllms_envs.core import SPLITS, Unreadable
from pettingllms_envs.datasets.problems import MathProblem
from pettingllms_envs.environments.mathematics.aime import EXAMS, Aime
from pettingllms_envs.environments.mathematics.math import Math
from pettingllms_envs.environments.mathematics.olympiad_bench import OlympiadBench
from pettingllms_envs.environments.mathematics.rules import Answering, AnswerState
from pettingllms_envs.graders.math import Verdict
from posed import SUM, posed


ROOTS = r"Simplify $\sqrt{50} + \sqrt{18}$."
INEQUALITY = r"Find all real numbers $x \ne -2$ with $\frac{x - 1}{x + 2} \le 2$."
TASKS = pytest.mark.parametrize("task", [Aime(), Math(), OlympiadBench()], ids=lambda task: task.name)


# ---- What is read -------------------------------------------------------------------------------------------------


@TASKS
@pytest.mark.parametrize(
    ("reply", "expected"),
    [
        ("\\boxed{42}", "42"),
        ("So $x = 3$ or \\boxed{\\frac{1}{2}}.", "\\frac{1}{2}"),
        ("\\boxed{1}, no, \\boxed{ 2 }", "2"),
        ("\\boxed{2} and \\boxed{3", "2"),
        ("\\boxed{}", "its box is empty"),
        ("\\boxed{ \n }", "its box is empty"),
        ("The answer is 42.", "it has no \\boxed{} that is closed"),
        ("", "it has no \\boxed{} that is closed"),
        ("\\boxed{42", "it has no \\boxed{} that is closed"),
        ("\\boxed{" + "7" * 1000 + "}", "7" * 1000),
        ("\\boxed{" + "7" * 1001 + "}", "its box is longer than 1000 characters"),
    ],
)
def test_the_last_closed_box_is_the_answer(task: Answering, reply: str, expected: str) -> None:
    found = task.parse(reply)
    assert (found.reason if isinstance(found, Unreadable) else found) == expected


@pytest.mark.parametrize(
    ("printed", "expected"),
    [
        ("42\n", "42"),
        ("n = 1\nn = 2\n\n  3/4  \n\n", "3/4"),
        ("\\boxed{42}\n", "42"),
        ("\\boxed{42}\nThat was it: 41\n", "That was it: 41"),
        ("The answer: \\boxed{(1, 2)}", "(1, 2)"),
        ("\\boxed{}\n", "\\boxed{}"),
        ("", "the last line that it printed is empty"),
        (" \n\t\n", "the last line that it printed is empty"),
        ("7" * 1001, "the last line that it printed is longer than 1000 characters"),
    ],
)
def test_the_last_line_that_a_program_printed_is_its_answer(printed: str, expected: str) -> None:
    found = Math().read_output(printed)
    assert (found.reason if isinstance(found, Unreadable) else found) == expected


@TASKS
def test_the_answer_written_is_read_again(task: Answering) -> None:
    for answer in ("42", "\\frac{1}{2}", "(1, 2), (2, 1)", "\\{1\\}"):
        assert task.parse(task.write(answer)) == answer


@TASKS
def test_the_prompt_names_the_box_once_with_an_example_that_can_be_read(task: Answering) -> None:
    assert "\\boxed" not in task.rules()
    assert task.reply_format().count("\\boxed") == 1
    assert not isinstance(task.parse(task.reply_format()), Unreadable)


# ---- What it is worth ---------------------------------------------------------------------------------------------


def test_an_answer_is_worth_one_if_it_is_right_and_a_later_one_takes_its_place() -> None:
    task, start = Math(), AnswerState(SUM)
    assert (task.value(start), task.solved(start)) == (0, False)
    assert task.outcome(start) == {"success": False, "answered": False, "timeout": False}
    right, wrong = task.apply(start, "5"), task.apply(start, "6")
    assert (task.value(right), task.solved(right)) == (1, True)
    assert task.apply(wrong, "5") == right
    assert task.apply(right, "6") == wrong
    assert task.outcome(wrong) == {"success": False, "answered": True, "timeout": False}


@pytest.mark.parametrize(
    ("statement", "gold", "answer", "solved"),
    [
        (INEQUALITY, r"(-\infty,-5]\cup(-2,\infty)", r"\dfrac{x-1}{x+2} \leq 2", False),
        ("Expand $(x - 3)(x + 5)$.", "x^2+2x-15", r"\left(x-3\right)\left(x+5\right)", False),
        ("Expand $(x - 3)(x + 5)$.", "x^2+2x-15", "x^2-15+2x", True),
        (r"Write $\frac{1}{8} + \frac{1}{4}$ as one fraction.", r"\frac{3}{8}", r"\frac18+\frac14", False),
        ("What is 1/8 + 1/4?", r"\frac{3}{8}", "1/8+1/4", False),
        (r"Write $\sqrt{75}$ as \(a \sqrt b\).", r"5\sqrt{3}", r"\sqrt{75}", False),
        (r"Write $\sqrt{75}$ as \(a \sqrt b\).", r"5\sqrt{3}", r"x = (\sqrt {75})", False),
        (r"Write $\sqrt{75}$ as \(a \sqrt b\).", r"5\sqrt{3}", r"\sqrt{75} = 5\sqrt{3}", True),
        (r"Find $S = \sum_{k=1}^{10} k$.", "55", r"\sum_{k=1}^{10}k", False),
        ("Which of 3 and 5 is greater?", r"\sqrt{25}", "5", True),
        ("How often can one of $k$ be chosen?", r"\binom{k}{1}", "k", True),
        (ROOTS, r"8\sqrt{2}", r"0+\sqrt{50}+\sqrt{18}", False),
        (ROOTS, r"8\sqrt{2}", r"\sqrt{18}+\sqrt{50}", False),
        (ROOTS, r"8\sqrt{2}", r"1 \cdot (\sqrt{50}) + \sqrt{18}", False),
        (ROOTS, r"8\sqrt{2}", r"5\sqrt{2}+3\sqrt{2}", True),
        (r"What is $17 \cdot 24$?", "408", r"17 \cdot 24 + 0", False),
        (r"What is $17 \cdot 24$?", "408", r"24 \times 17", False),
        (r"What is $17 \cdot 24$?", "408", r"400 + 8", True),
        ("If $f(x) = 2x+3$, how much is $f(x)+3$?", "6+2x", "2(x+3)", True),  # and not 2x+3
        ("Let $n - k$ be odd. How many are there from $k$ to $n$?", "n+1-k", "n-k+1", True),
        ("Invert $f(x) = 3 - x$.", "3-x", "-x+3", True),  # the formula itself needs no algebra
        (r"Which is greater, $\sqrt{8}$ or $1 + \sqrt{2}$?", r"\sqrt{8}", r"\sqrt8", True),
    ],
)
def test_a_formula_of_the_problem_is_no_answer(statement: str, gold: str, answer: str, solved: bool) -> None:
    problem = MathProblem(source="by hand", id="1", statement=statement, answer=gold)
    assert Math().solved(Math().apply(AnswerState(problem), answer)) is solved


def test_an_answer_that_could_not_be_judged_in_time_is_wrong_and_reported() -> None:
    late = AnswerState(SUM, "\\sum_{k=1}^{10^9} k", Verdict.TIMEOUT)
    assert Math().value(late) == 0
    assert Math().outcome(late) == {"success": False, "answered": True, "timeout": True}


@pytest.mark.parametrize(
    ("fields", "one", "other", "agree"),
    [
        ({"answer": "7", "kind": "integer"}, "007", "7.0", True),
        ({"answer": "7", "kind": "integer"}, "7", "8", False),
        ({"answer": "7"}, "\\frac{14}{4}", "3.5", True),
        ({"answer": "1,2", "multiple": True}, "1, 2", "2, 1", True),
        ({"answer": "(1,2)"}, "(1, 2)", "(2, 1)", False),
        ({"answer": "4.2", "tolerance": (0.1,)}, "3.0", "3.05", True),
        ({"answer": "4.2"}, "3.0", "3.05", False),
    ],
)
def test_answers_agree_as_they_would_be_judged_whatever_is_right(
    fields: dict[str, Any], one: str, other: str, agree: bool
) -> None:
    state = AnswerState(MathProblem(source="by hand", id="1", statement="?", **fields))
    assert Math().agree(state, one, other) is Math().agree(state, other, one) is agree


# ---- Which problem is played --------------------------------------------------------------------------------------


@pytest.fixture
def rows(tmp_path: Path) -> str:
    """Twenty-four rows with a problem and an answer, of the levels 1 to 3."""
    path = tmp_path / "sums__test.jsonl"
    lines = [
        json.dumps({"id": f"sum-{i}", "problem": f"What is {i} + {i * i}?", "answer": i + i * i, "level": 1 + i % 3})
        for i in range(24)
    ]
    path.write_text("\n".join(lines))
    return str(path)


def drawn(data: str, seed: int, **options: Any) -> MathProblem:
    env = pettingllms_envs.make("math", data=data, layout="math", workflow="single")
    env.reset(seed=seed, options={"split": "test", **options})
    problem: MathProblem = env.snapshot().play.task.problem
    return problem


def test_the_seeds_from_zero_draw_every_problem_once_and_then_again(rows: str) -> None:
    problems = [drawn(rows, seed) for seed in range(24)]
    assert sorted(int(problem.id.removeprefix("sum-")) for problem in problems) == [*range(24)]
    assert [problem.digest for problem in problems] == sorted(problem.digest for problem in problems)
    assert drawn(rows, 24) == problems[0]
    assert drawn(rows, -1) == problems[-1]


def test_a_level_and_an_id_choose_among_them(rows: str) -> None:
    assert {drawn(rows, seed, level=2).level for seed in range(8)} == {2}
    assert len({drawn(rows, seed, level=2).id for seed in range(8)}) == 8
    assert drawn(rows, 5, problem="sum-7").statement == "What is 7 + 49?"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"level": [1]}, r"level is \[1\]; expected a number or a text"),
        ({"problem": [1]}, r"problem is \[1\]; expected a number or a text"),
        ({"level": 4}, r"level is 4; expected one of those in .*sums__test.jsonl', split 'test': 1, 2, 3"),
        ({"problem": "sum-77"}, r"problem is 'sum-77'; expected the id of one of 24 in .*Did you mean 'sum-7'"),
        ({"split": "tset"}, r"split is 'tset'; expected one of 'train', 'validation', 'test'. Did you mean 'test'"),
        ({"split": "train"}, r"has no 'train' split; expected 'test'"),
    ],
)
def test_what_is_not_there_is_refused_with_what_there_is(rows: str, options: Mapping[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        drawn(rows, 0, **options)


def test_problems_of_another_kind_are_refused(rows: str) -> None:
    env = pettingllms_envs.make("aime", data=rows, layout="math")
    with pytest.raises(ValueError, match=r"aime got data=.* with MathProblem\('math', .*; expected problems of aime"):
        env.reset(seed=0, options={"split": "test"})


@pytest.mark.parametrize("name", ["aime", "math", "olympiad_bench"])
def test_no_problem_of_our_own_is_in_two_splits(name: str) -> None:
    env = pettingllms_envs.make(name, workflow="single")
    statements: list[set[str]] = []
    for split in SPLITS:
        seen = set()
        for seed in range(100):
            env.reset(seed=seed, options={"split": split})
            seen.add(env.snapshot().play.task.problem.statement)
        statements.append(seen)
    assert all(statements)
    assert sum(map(len, statements)) == len(set().union(*statements))


# ---- The exams of AIME --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("year", [24, 2024, 25, 2025])
def test_a_year_is_an_exam_of_the_hub_at_a_commit(year: int) -> None:
    task = Aime(year=year)
    assert task.data == EXAMS[2000 + year % 100]
    assert len(task.data.partition("@")[2]) == 40
    assert task == Aime(year=2000 + year % 100)


def test_with_data_a_year_chooses_among_their_exams(tmp_path: Path) -> None:
    path = tmp_path / "exams.jsonl"
    exams = [(year, number) for year in (2023, 2024) for number in (1, 6, 11)]
    path.write_text(
        "\n".join(
            json.dumps({"id": f"{year}-I-{number}", "problem": f"{year}, {number}?", "answer": f"{number:03d}"})
            for year, number in exams
        )
    )
    for year, expected in ((None, set(exams)), (23, {(2023, 1), (2023, 6), (2023, 11)})):
        env = pettingllms_envs.make("aime", data=str(path), layout="aime", year=year)
        seen = set()
        for seed in range(6):
            env.reset(seed=seed, options={"split": "test"})
            problem = env.snapshot().play.task.problem
            seen.add((problem.year, int(problem.answer)))
            assert problem.level == 1 + int(problem.answer) // 5
        assert seen == expected


@pytest.mark.parametrize(
    ("year", "message"),
    [
        (2023, "year is 2023; expected one of 2024, 2025. For another give its `data` as well."),
        (1900, "year is 1900; expected the year of an exam, such as 2024 or 24"),
        ("24", "year is '24'; expected the year of an exam"),
    ],
)
def test_a_year_that_is_no_exam_is_refused(year: object, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        pettingllms_envs.make("aime", year=year)


# ---- States -------------------------------------------------------------------------------------------------------


def test_a_state_says_which_problem_it_is_and_stays_small() -> None:
    problem = MathProblem(source="by hand", id="long", statement="Long. " * 10_000, answer="5")
    env = posed(problem)
    env.step("```python\nprint(5)\n```")
    play = env.snapshot().play
    assert len(repr(play)) < 1_000
    assert problem.digest[:16] in repr(play)
    assert pickle.loads(pickle.dumps(play)) == play
    other = posed(MathProblem(source="by hand", id="long", statement="Long. " * 10_000, answer="6"))
    other.step("```python\nprint(5)\n```")
    assert other.state_hash() != env.state_hash()


def test_a_golden_answer_that_nobody_gave_is_in_no_observation() -> None:
    problem = MathProblem(source="by hand", id="1", statement="Which number?", answer="7919", solution="It is 7919.")
    for settings in ({}, {"workflow": "single", "tools": True}):
        env = posed(problem, **settings)
        replies = iter(["```python\nprint(6)\n```", "\\boxed{5}", "?", "", "```python\n1 / 0\n```", "\\boxed{7920}"])
        while not env.standing() and (reply := next(replies, None)) is not None:
            env.step(reply)
            for agent in env.possible_agents:
                assert "7919" not in str(env.observe(agent))
