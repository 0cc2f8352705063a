"""The grader of programs: pass rates and verdicts, limits, and what it remembers."""

from dataclasses import replace
from typing import Any

import pytest

from code_problems import DOUBLED, RIGHT, SIGNED, SQUARE, UNIQUE
from pettingllms_envs import sandbox
from pettingllms_envs.datasets import LAYOUTS
from pettingllms_envs.datasets.code_problems import CodeProblem
from pettingllms_envs.graders import code
from pettingllms_envs.graders.code import golden, grade, limits_of
from pettingllms_envs.sandbox import Limits, ProgramResult, Report, SandboxFailed, StdinTest, Verdict


SLEEPER = "n = int(input())\nwhile n == 5: pass\nprint(n * n)"


@pytest.mark.parametrize(
    ("program", "num_passed", "verdicts"),
    [
        (RIGHT, 4, {Verdict.PASSED: 4}),
        (SIGNED, 3, {Verdict.PASSED: 3, Verdict.WRONG: 1}),
        (DOUBLED, 1, {Verdict.PASSED: 1, Verdict.WRONG: 3}),
        ("n = int(input())\nprint(36 // n * n * n // 36)", 0, None),
        ("import sys\nsys.exit(0)", 0, {Verdict.WRONG: 4}),
        ("print(", 0, {Verdict.RUNTIME_ERROR: 4}),
        ("", 0, {Verdict.WRONG: 4}),
    ],
)
def test_a_program_is_worth_the_tests_that_it_passes(
    program: str, num_passed: int, verdicts: dict[Verdict, int] | None
) -> None:
    graded = grade(SQUARE, program)
    assert (graded.num_passed, graded.num_tests) == (num_passed, 4)
    assert graded.pass_rate == num_passed / 4
    assert graded.passed == (num_passed == 4)
    assert verdicts is None or graded.verdicts == verdicts


def test_the_first_timeout_ends_the_other_tests() -> None:
    graded = grade(SQUARE, SLEEPER, limits=Limits(cpu=0.3, wall=1.5))
    assert graded.verdicts == {Verdict.PASSED: 1, Verdict.TIMEOUT: 3}


def test_only_the_chosen_tests_are_run() -> None:
    assert grade(SQUARE, SIGNED, tests=(0, 1)).passed
    assert grade(SQUARE, SIGNED, tests=[2]).pass_rate == 0.0


@pytest.mark.parametrize("tests", [(), (4,), (-1,)])
def test_tests_that_there_are_not_are_refused(tests: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match=r"expected indices from 0 to 3, at least one"):
        grade(SQUARE, RIGHT, tests=tests)


def test_a_function_is_judged_by_what_it_returns_and_never_by_an_equality_of_its_own() -> None:
    assert grade(UNIQUE, UNIQUE.solutions[0]).passed
    assert grade(UNIQUE, UNIQUE.wrong[0]).num_passed == 2  # sorted is right on all but [2, 1, 2]
    forged = (
        "class Anything(list):\n    def __eq__(self, other):\n        return True\n"
        "def unique(a):\n    return Anything()"
    )
    assert grade(UNIQUE, forged).num_passed == 1  # the empty list's only


def test_decimal_numbers_may_be_off_where_the_problem_says_so() -> None:
    third = CodeProblem(source="hand", id="third", statement="n / 3", tests=(StdinTest("1", "0.3333333333"),))
    program = "print(round(int(input()) / 3, 6))"
    assert not grade(third, program).passed
    assert grade(replace(third, tolerance=1e-4), program).passed


def test_a_mean_that_floats_cannot_write_passes_where_the_statement_allows_an_error() -> None:
    statement = "Return the mean. Answers within 10^-5 of the actual answer will be accepted."
    mean = LAYOUTS["code"].read(
        {"question": statement, "fn_name": "mean", "inputs": [[[0.1, 0.1, 0.4]]], "outputs": [0.2]}
    )
    assert isinstance(mean, CodeProblem)
    program = "def mean(a):\n    return sum(a) / len(a)"  # 0.20000000000000004
    assert grade(mean, program).passed
    assert not grade(replace(mean, tolerance=None), program).passed
    assert not grade(mean, program.replace("sum(a)", "1e-3 + sum(a)")).passed


def test_letters_may_be_of_any_case_only_where_the_statement_says_so() -> None:
    row = {"question": "Print YES or NO.", "inputs": ["1"], "outputs": ["YES"]}
    strict = LAYOUTS["code"].read(row)
    free = LAYOUTS["code"].read({**row, "question": "Print YES or NO. You can print each letter in any case."})
    assert isinstance(strict, CodeProblem)
    assert isinstance(free, CodeProblem)
    assert not grade(strict, "print('yEs')").passed
    assert grade(free, "print('yEs')").passed
    assert not grade(free, "print('no')").passed


def test_programs_import_the_packages_that_their_problem_names_and_no_others() -> None:
    program = "import numpy\nn = int(input())\nprint(numpy.int64(n) ** 2)"
    assert grade(replace(SQUARE, packages=("numpy",)), program).passed
    assert grade(SQUARE, program).verdicts == {Verdict.RUNTIME_ERROR: 4}


@pytest.mark.parametrize(
    ("cpu", "memory", "given", "seconds", "most"),
    [
        (None, None, None, 2.0, 1 << 30),
        (0.5, 64 << 20, None, 2.0, 1 << 30),  # another machine's limit, for C++
        (4.0, 2 << 30, None, 4.0, 2 << 30),
        (60.0, 64 << 30, None, 10.0, 4 << 30),
        (4.0, None, 1.0, 1.0, 1 << 30),  # what the caller says counts as it is
    ],
)
def test_limits_are_the_problems_own_within_bounds(
    cpu: float | None, memory: int | None, given: float | None, seconds: float, most: int
) -> None:
    limits = limits_of(replace(SQUARE, cpu=cpu, memory=memory), given)
    assert (limits.cpu, limits.memory, limits.total) == (seconds, most, 20 * seconds)


def test_the_golden_program_is_the_first_solution_that_passes() -> None:
    assert golden(SQUARE) == RIGHT
    assert golden(replace(SQUARE, solutions=(DOUBLED, RIGHT))) == RIGHT
    assert golden(replace(SQUARE, solutions=(DOUBLED,))) == ""
    assert golden(replace(SQUARE, solutions=())) == ""


class Failing:
    """A sandbox that fails, and counts how often it was asked."""

    def __init__(self) -> None:
        self.asked = 0

    def run_tests(self, program: str, tests: Any, **settings: Any) -> Report:
        self.asked += 1
        lost = ProgramResult(verdict=Verdict.SANDBOX_ERROR, detail="it was killed", isolation="none")
        return Report(results=(lost,) * len(tests), isolation="none")


def test_a_sandbox_that_fails_is_an_error_and_never_a_zero(monkeypatch: pytest.MonkeyPatch) -> None:
    failing = Failing()
    monkeypatch.setattr(code, "default", lambda: failing)
    problem = replace(SQUARE, id="of a sandbox that fails")
    for _ in range(2):  # and it is not remembered
        with pytest.raises(SandboxFailed, match="it was killed"):
            grade(problem, RIGHT)
    assert failing.asked == 2


def test_who_works_and_then_sleeps_holds_a_slot_no_longer_than_its_limit_and_what_it_waited(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It used most of its CPU time, so its share of the clock's time is that of a program that was kept waiting."""
    program = "import time\nwhile time.process_time() < 0.2: pass\ntime.sleep(1000)"
    test = [StdinTest("3", "9")]
    [result] = code.run_tests(SQUARE, program, test, limits=Limits(cpu=0.3), isolation="per_test").results
    assert result.verdict == Verdict.TIMEOUT
    assert 4 * 0.3 <= result.wall <= 4 * 0.3 + 1.0 + result.waited


def test_a_grade_is_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    problem = replace(SQUARE, id="remembered")
    first = grade(problem, SIGNED)
    failing = Failing()
    monkeypatch.setattr(code, "default", lambda: failing)
    assert grade(replace(SQUARE, id="remembered"), SIGNED) == first  # another object, the same problem
    assert failing.asked == 0
    with pytest.raises(SandboxFailed):
        grade(problem, SIGNED, limits=Limits(cpu=3.0))  # with other limits it is another question
    assert failing.asked == 1


def test_the_sandbox_of_the_process_is_used() -> None:
    assert code.default() is sandbox.default()
    assert sandbox.default(()) is sandbox.default()  # the one of a tool that imports nothing
