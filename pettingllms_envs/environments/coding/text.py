"""The texts of coding: a problem as it is shown, replies as they are written, and what came of running test cases."""

from __future__ import annotations

import zlib
from collections.abc import Sequence

from pettingllms_envs.datasets.code_problems import CodeProblem
from pettingllms_envs.graders.cases import CodeCase, Run, as_case, in_statement
from pettingllms_envs.graders.code import SHOWN, written
from pettingllms_envs.quoting import quote_block, quote_headings, quote_inline, shorten
from pettingllms_envs.replies.fences import FENCE, fence
from pettingllms_envs.sandbox.values import ENDINGS, CallTest


RULES = (
    "You are given a programming problem. What counts is a program in Python 3, with nothing but the standard"
    " library{besides}, that passes all tests of the problem, most of which are hidden. Where the problem names a"
    " function, the program defines it (or a class Solution with this method), and neither reads nor prints. Otherwise"
    " it reads from standard input and prints to standard output what is asked for and nothing else."
)
PROGRAM_FORMAT = (
    "Write the program as exactly one block of Python, the whole of it every time, like this:\n"
    f"{FENCE}python\nline = input()\nprint(line.upper() + line[::-1])\n{FENCE}"
)
CASES_FORMAT = (
    "Write each test case as two blocks, its input and its output, at most {most} test cases in a reply, like this:\n"
    f"{FENCE}input\nab c\n{FENCE}\n{FENCE}output\nAB Cc ba\n{FENCE}\n"
    "Where the problem names a function, the input is its arguments, one on a line, and the output is what it returns,"
    ' all of them written as JSON, such as [1, 2], "ab", true and null.'
)

_BLIND_PROGRAMS = (
    "print(0)",
    "print(1)",
    "print(-1)",
    "print(input())",
    "print('YES')",
    "print('No')",
    "import sys\nprint(sys.stdin.read())",
    *(
        f"class Solution:\n    def __getattr__(self, name):\n        return lambda *args: {value}"
        for value in ("0", "1", "True", "[]", "''", "args[0]")
    ),
)
_BLIND_CASES = (
    CodeCase("1", "1"),
    CodeCase("", ""),
    CodeCase("0", "0"),
    CodeCase("1\n1", "YES"),
    CodeCase("[]", "0"),
    CodeCase("[1]", "[1]"),
)


def write_program(program: str) -> str:
    """The canonical reply with a program."""
    return fence(program, "python")


def write_cases(cases: Sequence[CodeCase]) -> str:
    """The canonical reply with test cases."""
    return "\n".join(f"{fence(case.input, 'input')}\n{fence(case.output, 'output')}" for case in cases)


def blind_replies() -> tuple[str, ...]:
    """Programs and test cases that know nothing of the problem, alone and together."""
    programs, cases = map(write_program, _BLIND_PROGRAMS), [write_cases([case]) for case in _BLIND_CASES]
    together = f"{write_program(_BLIND_PROGRAMS[0])}\n{write_cases([CodeCase('1', '0')])}"
    return (*programs, *cases, write_cases(_BLIND_CASES[:4]), together)


def problem_text(problem: CodeProblem) -> str:
    """The problem as every role reads it: statement, function, public tests that the statement leaves out."""
    text = quote_headings(problem.statement.strip())
    if problem.fn_name is not None:
        text += f"\n\nThe function is called {quote_inline(problem.fn_name)}."
    if problem.starter_code.strip():
        text += f"\nBegin with this:\n{quote_block(problem.starter_code.rstrip(), 'python')}"
    for case in map(as_case, problem.tests[: problem.num_public]):
        if not in_statement(problem, case):
            text += f"\n\nFor example:\n{case_text(case)}"
    return text


def case_text(case: CodeCase) -> str:
    """A test case as it is shown."""
    given, wanted = quote_block(shorten(case.input, SHOWN)), quote_block(shorten(case.output, SHOWN))
    return f"Input:\n{given}\nOutput:\n{wanted}"


def runs_text(cases: Sequence[CodeCase], runs: Sequence[Run], word: str) -> str:
    """What came of running a program on test cases, each called by the word and its number."""
    return "\n".join(
        f"{word} {i + 1}. {case_text(case)}\n{_ran(run)}"
        for i, (case, run) in enumerate(zip(cases, runs, strict=True))
    )


def _ran(run: Run) -> str:
    if run.passed:
        return "The program passed."
    text = f"The program did not pass: {ENDINGS[run.verdict]}."
    if run.error:
        return f"{text} Its last words:\n{quote_block(run.error)}"
    return f"{text} It gave:\n{quote_block(run.printed)}"


def answer_table(problem: CodeProblem) -> str:
    """A program that knows the golden tests' outputs and nothing else, for problems without a golden solution."""
    table: dict[int, str] = {}
    for test in problem.tests:
        given, wanted = written(test)
        key = given if isinstance(test, CallTest) else " ".join(given.split())
        table[zlib.crc32(key.encode("utf-8", "surrogatepass"))] = wanted
    head = f"import json, sys, zlib\nTABLE = {table!r}\n"
    if problem.fn_name is None:
        return f"{head}key = ' '.join(sys.stdin.read().split())\nprint(TABLE.get(zlib.crc32(key.encode()), ''))"
    return (
        f"{head}def {problem.fn_name}(*args):\n    key = '\\n'.join(map(json.dumps, args))\n"
        "    return json.loads(TABLE.get(zlib.crc32(key.encode()), 'null'))"
    )
