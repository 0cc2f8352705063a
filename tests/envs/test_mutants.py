"""Mutants of a program: what is changed, in which order, and which of them count as wrong programs."""

from dataclasses import replace

import pytest

from code_problems import RIGHT, SQUARE, UNIQUE
from pettingllms_envs.datasets.code_problems import CodeProblem
from pettingllms_envs.graders.cases import best_cases, review, wrong_programs
from pettingllms_envs.graders.code import limits_of
from pettingllms_envs.graders.mutants import mutants


@pytest.mark.parametrize(
    ("program", "expected"),
    [
        ("a < b", {"a <= b", "a > b"}),
        ("a == b", {"a != b"}),
        ("a + 10", {"a - 10", "a + 11", "a + 9"}),
        ("a[0]", {"a[1]"}),
        ("a and not b", {"a or not b", "a and  b"}),
        ("if a: pass", {"if not a: pass"}),
        ("max(a)", {"min(a)"}),
        ("sorted(a)", {"list(a)"}),
        ("n -= 1.5", {"n += 1.5"}),
        ("'a < 1'  # 1 + 1", set()),
        ("f'{a + 1} < {b}'", set()),
        ("a = f'{a + 1}' + b", {"a = f'{a + 1}' - b"}),
        ("x = 1\n\ny = x  # 2\n", {"x = 2\n\ny = x  # 2\n", "x = 0\n\ny = x  # 2\n"}),
        ("a = '\\d'", set()),
        ("0x10 + 1e3", {"0x10 - 1e3"}),
        ("9" * 19, set()),
        ("", set()),
        ("(", set()),
        ("if a:\n  b\n c", set()),
        ("'''", set()),
        ("\ud800 < 1", {"\ud800 <= 1", "\ud800 > 1", "\ud800 < 2", "\ud800 < 0"}),
    ],
)
def test_one_token_is_another(program: str, expected: set[str]) -> None:
    found = mutants(program)
    assert set(found) == expected
    assert len(found) == len(expected)


def test_the_order_is_that_of_their_sha_256_and_so_the_same_everywhere() -> None:
    found = ("print(int(input()) ** 1)", "print(int(input()) ** 3)")  # 1b7d... and 8431...
    assert mutants("print(int(input()) ** 2)") == found
    assert mutants("a < b") == ("a > b", "a <= b")  # 1c64... and 92dd...


def test_wrong_are_the_mutants_that_fail_a_golden_test_and_those_that_pass_most_come_first() -> None:
    """Hidden are 5, -4 and 0. `** 1` and `** 3` are right for 0 only, `+ 1` for none, `- 0` for all three."""
    problem = replace(SQUARE, solutions=("print(int(input()) ** 2 + 0)",), wrong=())
    expected = ("print(int(input()) ** 1 + 0)", "print(int(input()) ** 2 + 1)")
    assert wrong_programs(problem, limits_of(problem)) == expected


def test_of_mutants_that_pass_the_same_tests_only_one_counts() -> None:
    """`** 1` and `** 3` are both wrong for 5 and -4, and right for 0."""
    problem = replace(SQUARE, solutions=(RIGHT,), wrong=())
    assert wrong_programs(problem, limits_of(problem)) == ("print(int(input()) ** 1)",)


@pytest.mark.parametrize(
    "problem",
    [
        replace(SQUARE, solutions=(), wrong=()),  # nothing to make them of
        replace(SQUARE, solutions=("print(3)",), wrong=()),  # its solution is wrong
        replace(SQUARE, num_public=4, wrong=()),  # all tests are shown: no case could tell them
        # 0 is hidden alone, and n + n is right for it.
        replace(SQUARE, solutions=("n = int(input())\nprint(n * n)",), wrong=(), tests=SQUARE.tests[::3]),
    ],
)
def test_there_may_be_no_wrong_program(problem: CodeProblem) -> None:
    assert wrong_programs(problem, limits_of(problem)) == ()


def test_a_mutant_that_does_not_end_is_left_out() -> None:
    program = "n = int(input())\nwhile False:\n    pass\nprint(n * n)"
    problem = replace(SQUARE, solutions=(program,), wrong=())
    assert set(mutants(program)) == {program.replace("False", "True"), program.replace("n * n", "n + n")}
    assert wrong_programs(problem, limits_of(problem)) == (program.replace("n * n", "n + n"),)


@pytest.mark.parametrize("problem", [replace(SQUARE, wrong=()), replace(UNIQUE, wrong=())])
def test_the_best_cases_tell_all_mutants(problem: CodeProblem) -> None:
    limits = limits_of(problem)
    found = review(problem, best_cases(problem, 4, limits), right="", limits=limits)
    assert found.num_told == found.num_wrong == len(wrong_programs(problem, limits))
