"""Test cases that an agent writes: how they are read, what counts as copied, valid and telling."""

import time
from dataclasses import replace

import pytest

from code_problems import DOUBLED, RIGHT, SIGNED, SQUARE, UNIQUE, block, cases
from pettingllms_envs.core import Unreadable
from pettingllms_envs.datasets.code_problems import CodeProblem
from pettingllms_envs.environments.coding.text import write_cases
from pettingllms_envs.graders.cases import (
    MAX_CASE,
    MAX_DEPTH,
    MAX_WRONG,
    CodeCase,
    Review,
    as_case,
    as_test,
    best_cases,
    is_shown,
    read_cases,
    review,
    run_cases,
    wrong_programs,
)
from pettingllms_envs.graders.code import limits_of
from pettingllms_envs.replies.fences import fenced_blocks
from pettingllms_envs.sandbox import CallTest, StdinTest, Verdict


KINDS = {"input": "input", "output": "output"}


def read(reply: str, call: bool = False, most: int = 3) -> tuple[CodeCase, ...] | Unreadable:
    blocks = fenced_blocks(reply, KINDS)
    return blocks if isinstance(blocks, Unreadable) else read_cases(blocks, UNIQUE if call else SQUARE, most)


@pytest.mark.parametrize(
    ("reply", "found"),
    [
        (cases(("2", "4")), [CodeCase("2", "4")]),
        (
            f"I think.\n{cases(('2', '4'))}\nand also\n{cases(('1 2', '4'))}\nDone.",
            [CodeCase("2", "4"), CodeCase("1 2", "4")],
        ),
        ("```Input\r\n2\r\n```\r\n ```OUTPUT \r\n4\r\n```\r\n", [CodeCase("2", "4")]),
        (f"{block('print(1)')}\n{cases(('', ''))}", [CodeCase("", "")]),
        (block("1\n\n2", "input") + "\n" + block("\n4\n", "output"), [CodeCase("1\n\n2", "\n4\n")]),
    ],
)
def test_cases_are_read_from_pairs_of_blocks(reply: str, found: list[CodeCase]) -> None:
    assert read(reply) == tuple(found)


@pytest.mark.parametrize(
    ("reply", "reason"),
    [
        ("", "it has no test case"),
        ("```\n2\n```\n```\n4\n```", "it has no test case"),
        (block("2", "input"), "its blocks are not pairs of an input and an output"),
        (block("4", "output") + "\n" + block("2", "input"), "its blocks are not pairs of an input and an output"),
        (f"{block('2', 'input')}\n{block('3', 'input')}", "its blocks are not pairs of an input and an output"),
        ("```input\n2\n```\n```output\n4", "its block of output has no end"),
        (cases(*[("2", "4")] * 4), "it has 4 test cases, and at most 3 are allowed"),
        (cases(("2" * (MAX_CASE + 1), "4")), f"an input or output is longer than {MAX_CASE} characters"),
    ],
)
def test_what_is_no_list_of_cases_is_unreadable(reply: str, reason: str) -> None:
    assert read(reply) == Unreadable(reason)


@pytest.mark.parametrize(
    ("given", "wanted", "test"),
    [
        ("[1, 2]", "[1]", CallTest([[1, 2]], [1])),
        ('"ab"\n3\n', "true", CallTest(["ab", 3], True)),
        ("\n{}\n\nnull", "-1.5", CallTest([{}, None], -1.5)),
        ("", "0", CallTest([], 0)),
        ('"a\u2028b"', '"\\ud800"', CallTest(["a\u2028b"], "\ud800")),
    ],
)
def test_the_arguments_of_a_call_are_json_one_on_a_line(given: str, wanted: str, test: CallTest) -> None:
    found = read(cases((given, wanted)), call=True)
    assert not isinstance(found, Unreadable)
    assert as_test(UNIQUE, found[0]) == test


@pytest.mark.parametrize(
    ("given", "wanted"),
    [
        ("[1, 2", "1"),
        ("True", "1"),
        ("'a'", "1"),
        ("1 2", "1"),
        ("1", ""),
        ("NaN", "1"),
        ("1e999", "1"),
        ("\ud800", "1"),
    ],
)
def test_what_is_no_json_is_unreadable_for_a_call(given: str, wanted: str) -> None:
    found = read(cases((given, wanted)), call=True)
    assert found == Unreadable("an argument, one on a line, or an output is no JSON")


def test_an_argument_may_be_nested_as_deeply_as_can_be_compared() -> None:
    for depth, readable in ((MAX_DEPTH, True), (MAX_DEPTH + 1, False)):
        found = read(cases(("[" * depth + "]" * depth, "1")), call=True)
        assert isinstance(found, Unreadable) != readable
    assert isinstance(read(cases(("[" * 1000 + "]" * 1000, "1")), call=True), Unreadable)
    assert isinstance(read(cases(("[" * 1000, "1")), call=True), Unreadable)


@pytest.mark.parametrize("test", [*SQUARE.tests, *UNIQUE.tests, StdinTest(b"1\r\n2\r\n", b"\xff"), StdinTest("", "")])
def test_a_golden_test_written_as_a_case_asks_the_same(test: StdinTest | CallTest) -> None:
    problem = SQUARE if isinstance(test, StdinTest) else UNIQUE
    again = read(write_cases([as_case(test)]), call=problem is UNIQUE)
    assert not isinstance(again, Unreadable)
    found = as_test(problem, again[0])
    if isinstance(test, CallTest):
        assert found == test
    else:
        assert isinstance(found, StdinTest)
        assert str(found.stdin).split() == (test.stdin if isinstance(test.stdin, str) else test.stdin.decode()).split()


@pytest.mark.parametrize(
    ("given", "wanted", "shown"),
    [
        ("3", "9", True),
        (" 3 ", "10", True),  # a public test's input, whatever is expected of it
        ("3\n0", "9", True),  # a program need not read all of it
        ("03", "9", True),
        ("+3 0 7", "9.0", True),
        ("3\n0", "10", False),
        ("30", "9", False),
        ("2", "4", False),
        ("5", "25", False),
        ("", "", False),
    ],
)
def test_a_case_with_the_input_of_a_public_test_is_copied(given: str, wanted: str, shown: bool) -> None:
    assert is_shown(SQUARE, CodeCase(given, wanted)) == shown


STATEMENT = """Take two lists.
Input: a = [1, 20], b = "xy"
Output: True
Then 7 lines. sample input\n```\n3 4\n5\n```\nsample output\n```\nYes 17\n```"""


@pytest.mark.parametrize(
    ("call", "given", "wanted", "shown"),
    [
        (True, '[1,20]\n"xy"', "true", True),
        (True, '[1, 20]\n"xy"', "false", False),
        (True, '[1, 2]\n"xy"', "true", False),
        (True, '[1, 20]\n"x"', "true", False),
        (False, "3 4\n5", "Yes 17", True),
        (False, "3   4 5", "yes\n17", True),
        (False, "3 4", "Yes 17", True),  # near enough
        (False, "4", "17", True),
        (False, "4", "1", False),  # 1 is a part of 17
        (False, "20", "17", False),  # too far away
    ],
)
def test_a_case_that_stands_in_the_statement_is_copied(call: bool, given: str, wanted: str, shown: bool) -> None:
    problem = replace(UNIQUE if call else SQUARE, statement=STATEMENT, num_public=0)
    assert is_shown(problem, CodeCase(given, wanted)) == shown


@pytest.mark.parametrize(("given", "shown"), [("3 4\n5\n0", True), ("03 4 5", True), ("3 4 6 0", False)])
def test_a_test_that_stands_in_the_statement_is_copied_with_more_at_its_end(given: str, shown: bool) -> None:
    problem = replace(SQUARE, statement=STATEMENT, num_public=0, tests=(StdinTest("3 4\n5\n", "Yes 17\n"),))
    assert is_shown(problem, CodeCase(given, "Yes 17")) == shown


@pytest.mark.parametrize("given", ["1", "1\n" * 20, "1\n" * 2000])
def test_looking_for_a_copy_takes_no_time(given: str) -> None:
    problem = replace(UNIQUE, statement="1 " * 20_000)
    began = time.process_time()
    assert not is_shown(problem, CodeCase(given, "2"))
    assert time.process_time() - began < 10  # 0.3 s at most where measured


# Of SQUARE: SIGNED fails negative numbers, DOUBLED all but 0 and 2.
@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ([("2", "4"), ("-1", "1")], Review(2, 2, 2, 2, 2)),
        ([("2", "4")], Review(1, 1, 1, 2, 0)),
        ([("7", "49")], Review(1, 1, 1, 2, 1)),
        ([("7", "14"), ("-1", "-1")], Review(2, 2, 0, 2, 0)),  # they fail wrong programs, and are wrong themselves
        ([("3", "9")], Review(1, 1, 0, 2, 0)),  # copied from the statement
        ([("-4", "16")], Review(1, 1, 1, 2, 2)),  # a golden test that is not shown
        ([("", "")], Review(1, 1, 0, 2, 0)),
        ([("x", "y"), ("3", "9"), ("-2", "4")], Review(3, 3, 1, 2, 2)),
    ],
)
def test_cases_are_judged_by_the_golden_solution_and_tried_on_wrong_programs(
    given: list[tuple[str, str]], expected: Review
) -> None:
    found = review(SQUARE, tuple(map(CodeCase._make, given)), right="", limits=limits_of(SQUARE))
    assert found == expected


def test_only_the_first_wrong_programs_of_the_data_set_are_tried_and_each_once() -> None:
    many = (*(f"print({n})" for n in range(MAX_WRONG)), "print(7)")
    assert wrong_programs(replace(SQUARE, wrong=many), limits_of(SQUARE)) == many[:MAX_WRONG]
    assert wrong_programs(replace(SQUARE, wrong=(SIGNED, f"{SIGNED}\n")), limits_of(SQUARE)) == (f"{SIGNED}\n",)


# -4 is the input of a golden test; 7 is not.
@pytest.mark.parametrize(
    ("right", "given", "expected"),
    [
        ("", ("7", "49"), Review(1, 0, 0, 2, 0)),
        ("", ("-4", "16"), Review(1, 1, 1, 2, 2)),
        ("", ("-4", "-16"), Review(1, 1, 0, 2, 0)),
        (RIGHT, ("7", "49"), Review(1, 1, 1, 2, 1)),
        (RIGHT, ("7", "48"), Review(1, 1, 0, 2, 0)),
    ],
)
def test_without_a_golden_solution_golden_tests_judge_then_a_program_that_passed_them_all(
    right: str, given: tuple[str, str], expected: Review
) -> None:
    problem = replace(SQUARE, solutions=())
    assert review(problem, (CodeCase(*given),), right=right, limits=limits_of(problem)) == expected


# SILENT prints nothing for numbers below 1; that 0 gives nothing is a golden test of it, and -7 is not.
@pytest.mark.parametrize(("given", "valid"), [(("-7", ""), 0), (("-7", " \n"), 0), (("0", ""), 1), (("7", "7"), 1)])
def test_a_blank_output_is_valid_only_where_a_golden_test_has_it(given: tuple[str, str], valid: int) -> None:
    silent = replace(SQUARE, solutions=("n = int(input())\nif n > 0: print(n)",), wrong=())
    silent = replace(silent, tests=(StdinTest("5\n", "5\n"), StdinTest("0\n", "")))
    found = review(silent, (CodeCase(*given),), right="", limits=limits_of(silent))
    assert (found.num_judged, found.num_valid) == (1, valid)


def test_cases_of_calls_are_judged_alike() -> None:
    found = review(UNIQUE, (CodeCase("[3, 1, 3]", "[3, 1]"),), right="", limits=limits_of(UNIQUE))
    assert found == Review(1, 1, 1, 1, 1)


def test_a_run_says_what_came_of_it() -> None:
    given = (CodeCase("2", "4"), CodeCase("6", "36"), CodeCase("x", "0"))
    runs = run_cases(SQUARE, DOUBLED, given, limits_of(SQUARE))
    assert [(run.passed, run.printed, run.verdict) for run in runs] == [
        (True, "4", Verdict.PASSED),
        (False, "12", Verdict.WRONG),
        (False, "", Verdict.RUNTIME_ERROR),
    ]
    assert runs[2].error == "ValueError: invalid literal for int() with base 10: 'x'"


@pytest.mark.parametrize("problem", [SQUARE, UNIQUE])
def test_the_best_cases_are_valid_tell_all_wrong_programs_and_are_not_copied(problem: CodeProblem) -> None:
    found = best_cases(problem, 4, limits_of(problem))
    judged = review(problem, found, right="", limits=limits_of(problem))
    assert judged.num_valid == judged.num_cases == len(found) >= 1
    assert judged.num_told == judged.num_wrong >= 1
    assert write_cases(found) == write_cases(best_cases(problem, 4, limits_of(problem)))
