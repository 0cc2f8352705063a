"""APPS (codeparrot/apps): 10,000 problems of Codeforces, LeetCode, Codewars, AtCoder and Kattis.

`input_output` is JSON text with `inputs` and `outputs`. With `fn_name` in it they are arguments and results of calls.
Codewars' results are wrapped in a list: APPS's own grader accepts both `[x]` and `x`, so which one is meant is
inferred from all results of a problem together. Source: Hendrycks et al. 2021, arXiv:2105.09938.
"""

from __future__ import annotations

import re
from typing import Any

from pettingllms_envs.datasets import judging, normalization, rows
from pettingllms_envs.datasets.code_problems import CodeProblem
from pettingllms_envs.datasets.rows import BadRow, DataRow, LeftOut
from pettingllms_envs.environments.coding.examples import public_first
from pettingllms_envs.sandbox.prelude import LEETCODE_PRELUDE
from pettingllms_envs.sandbox.values import CallTest, StdinTest


MAX_SOLUTIONS = 8
"""Most solutions of a problem that are kept, the first ones; some problems have hundreds."""

LEVELS = {"introductory": 1, "interview": 2, "competition": 3}
_RETURNS, _LIST = re.compile(r"->([^:>]+):"), re.compile(r"\b[Ll]ist\b")


def read(row: DataRow) -> CodeProblem:
    """A row of APPS as a problem."""
    statement = rows.statement(row, "question")
    written = rows.text(row, "input_output", default="")
    if not written.strip():
        raise LeftOut("it has no tests")
    document = rows.table(rows.parsed(written, "'input_output'"), "'input_output'")
    starter = rows.text(row, "starter_code", default="")
    fn_name = rows.text(document, "fn_name", default="") or None
    solutions = rows.text(row, "solutions", default="")
    return code_problem(
        source="apps",
        id=rows.words(row, "problem_id", "id") or normalization.name(statement),
        statement=statement,
        tests=rows.pairs(document.get("inputs"), document.get("outputs"), "'input_output'"),
        fn_name=fn_name,
        starter_code=starter,
        solutions=rows.texts(rows.parsed(solutions, "'solutions'"), "'solutions'") if solutions.strip() else [],
        level=LEVELS.get(rows.text(row, "difficulty", default=""), 1),
    )


def code_problem(
    *,
    source: str,
    id: str,
    statement: str,
    tests: list[tuple[Any, Any]],
    fn_name: str | None,
    starter_code: str,
    solutions: list[str],
    level: int,
    date: str = "",
) -> CodeProblem:
    """A problem whose tests are pairs as APPS has them: texts or lists of lines, or arguments and results.

    Raises:
        LeftOut: There are no tests.
    """
    if not tests:
        raise LeftOut("it has no tests")
    said = judging.rules(statement)
    shown: tuple[tuple[StdinTest, ...] | tuple[CallTest, ...], int]
    if fn_name is None:
        shown = public_first([StdinTest(_lines(one), _lines(other)) for one, other in tests], statement)
    else:
        calls = _calls(tests, starter_code)
        shown = public_first(calls, statement)
        said = said._replace(unjudged=said.unjudged or _beyond_json(calls), ignore_case=False)
    return CodeProblem(
        source=source,
        id=id,
        statement=statement,
        level=level,
        tests=shown[0],
        num_public=shown[1],
        fn_name=fn_name,
        starter_code=starter_code,
        prelude=LEETCODE_PRELUDE if "class Solution" in starter_code else "",
        solutions=tuple(solutions[:MAX_SOLUTIONS]),
        **said._asdict(),
        date=date,
    )


def _lines(written: object) -> str:
    """The text of an input or output, which some rows have as a list of its lines."""
    if isinstance(written, str):
        return written
    if isinstance(written, list) and all(isinstance(line, str) for line in written):
        return "\n".join(written)
    raise BadRow(f"a test has a {type(written).__name__}; expected text, or a list of lines")


def _calls(tests: list[tuple[Any, Any]], starter_code: str) -> list[CallTest]:
    calls = [CallTest(rows.items(args, "the input of a call test"), result) for args, result in tests]
    if _wrapped([call.expected for call in calls], starter_code):
        calls = [CallTest(call.args, call.expected[0]) for call in calls]
    if "class Solution" in starter_code:
        calls = [CallTest([_unquoted(each) for each in call.args], _unquoted(call.expected)) for call in calls]
    return calls


def _wrapped(results: list[Any], starter_code: str) -> bool:
    """Whether each result is wrapped in an additional list.

    That is so if all are lists of one element and, if the starter code has the return type, nested once more than it.
    """
    if not all(isinstance(result, list) and len(result) == 1 for result in results):
        return False
    returns = _RETURNS.search(starter_code)
    if returns is None or not returns[1].strip():
        return True
    return any(_depth(result) > len(_LIST.findall(returns[1])) for result in results)


def _depth(value: object) -> int:
    return 1 + max(map(_depth, value), default=0) if isinstance(value, list) else 0


def _unquoted(value: Any) -> Any:
    """Remove the quotes that APPS keeps around LeetCode's strings: `"\\"ab\\""` is `"ab"`."""
    if isinstance(value, list):
        return [_unquoted(each) for each in value]
    if isinstance(value, str) and len(value) >= 2 and value[0] == value[-1] == '"' and '"' not in value[1:-1]:
        return value[1:-1]
    return value


def _beyond_json(calls: list[CallTest]) -> str:
    """Why the calls cannot be represented in JSON: dictionaries whose keys were numbers. Empty if they can."""
    for call in calls:
        for argument in call.args:
            if isinstance(argument, dict) and argument and all(key.lstrip("-").isdigit() for key in argument):
                return "an argument is a dictionary whose keys are numbers, which JSON does not have"
    return ""
