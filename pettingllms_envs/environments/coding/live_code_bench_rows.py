"""LiveCodeBench (livecodebench/code_generation_lite): problems of LeetCode, AtCoder and Codeforces, with dates.

Tests are JSON text; private ones may be packed (see `blobs.py`). A functional test's input has an argument on each
line, as JSON, and its output is the result as JSON; `metadata` names the function. There are no golden solutions.
Source: Jain et al. 2024, arXiv:2403.07974.
"""

from __future__ import annotations

from pettingllms_envs.datasets import judging, normalization, rows
from pettingllms_envs.datasets.code_problems import CodeProblem
from pettingllms_envs.datasets.rows import BadRow, DataRow, LeftOut
from pettingllms_envs.environments.coding.blobs import unpacked
from pettingllms_envs.sandbox.prelude import LEETCODE_PRELUDE
from pettingllms_envs.sandbox.values import CallTest, StdinTest


LEVELS = {"easy": 1, "medium": 2, "hard": 3}


def read(row: DataRow) -> CodeProblem:
    """A row of LiveCodeBench as a problem.

    Raises:
        LeftOut: The problem has no tests, or tests of both kinds.
    """
    statement = rows.statement(row, "question_content")
    public = _tests(rows.text(row, "public_test_cases"), "'public_test_cases'")
    private = _tests(unpacked(rows.text(row, "private_test_cases")), "'private_test_cases'")
    kinds = {rows.text(test, "testtype") for test in (*public, *private)}
    if not kinds:
        raise LeftOut("it has no tests")
    if kinds not in ({"stdin"}, {"functional"}):
        raise BadRow(f"'testtype' is {', '.join(map(repr, sorted(kinds)))}; expected 'stdin' or 'functional'")
    called = kinds == {"functional"}
    said = judging.rules(statement)
    if called:
        said = said._replace(ignore_case=False)
    return CodeProblem(
        source="live_code_bench",
        id=rows.words(row, "question_id") or normalization.name(statement),
        statement=statement,
        level=LEVELS.get(rows.text(row, "difficulty", default=""), 1),
        subject=rows.text(row, "platform", default=""),
        tests=tuple(map(_call, (*public, *private))) if called else tuple(map(_stdin, (*public, *private))),
        num_public=len(public),
        fn_name=_function(row) if called else None,
        starter_code=rows.text(row, "starter_code", default=""),
        prelude=LEETCODE_PRELUDE if called else "",
        **said._asdict(),
        date=rows.text(row, "contest_date", default="")[:10],
    )


def _tests(written: str, what: str) -> list[DataRow]:
    return [rows.table(test, f"a test of {what}") for test in rows.items(rows.parsed(written, what), what)]


def _stdin(test: DataRow) -> StdinTest:
    return StdinTest(rows.text(test, "input"), rows.text(test, "output"))


def _call(test: DataRow) -> CallTest:
    lines = [line for line in rows.text(test, "input").split("\n") if line.strip()]
    args = [rows.parsed(line, "an argument of a test") for line in lines]
    return CallTest(args, rows.parsed(rows.text(test, "output"), "the result of a test"))


def _function(row: DataRow) -> str:
    metadata = rows.table(rows.parsed(rows.text(row, "metadata"), "'metadata'"), "'metadata'")
    return rows.text(metadata, "func_name")
