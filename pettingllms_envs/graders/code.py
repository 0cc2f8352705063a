"""Verdicts on programs: on which of a problem's golden tests a program passes, by running it in the sandbox.

    grade(problem, program).pass_rate      # from 0 to 1
    grade(problem, program).passed         # whether it passes all of them, which alone is success

What is printed is compared word by word (numbers within the problem's tolerance and letters in any case, where it
allows that); what a function returns by kind and value, never by an object's own `__eq__`; a program that merely ends
with exit code 0 has passed nothing. The first test that runs out of time ends the rest, which then count as failed.
Fields of problems: `datasets.code_problems.CodeProblem`; verdicts and what is promised: docs/sandbox.md.

A sandbox that fails raises `SandboxFailed`: a 0 would train a policy away from programs that were right.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from pettingllms_envs.caching import remembered
from pettingllms_envs.datasets.code_problems import CodeProblem
from pettingllms_envs.quoting import shorten
from pettingllms_envs.sandbox.executor import SandboxFailed
from pettingllms_envs.sandbox.shared import default
from pettingllms_envs.sandbox.values import CallTest, Limits, ProgramResult, Report, StdinTest, Verdict


LEAST_CPU = 2.0
"""Seconds for a test where the data set does not say, or says less: limits are meant for other machines, and C++."""
MOST_CPU = 10.0
LEAST_MEMORY = 1 << 30
"""Bytes. The sandbox counts address space, of which a Python program reserves more than it uses."""
MOST_MEMORY = 4 << 30
TOTAL = 20
"""All tests of a program together may use this multiple of the seconds of one."""
SHOWN = 400
"""Characters of an input or output that is shown in a prompt."""
KEPT = 4096
"""Grades that are remembered: K siblings often write the same program, and an unchanged one is graded again."""
TRIED = 3
"""Solutions of the data set that are tried for one that passes: some data sets have solutions that do not."""


class CodeGrade(NamedTuple):
    """What a program is worth on golden tests."""

    num_passed: int
    num_tests: int
    verdicts: Mapping[Verdict, int]

    @property
    def pass_rate(self) -> float:
        """From 0 to 1."""
        return self.num_passed / self.num_tests

    @property
    def passed(self) -> bool:
        return self.num_passed == self.num_tests


def grade(
    problem: CodeProblem,
    program: str,
    *,
    tests: Sequence[int] | None = None,
    limits: Limits | None = None,
    isolation: str = "per_test",
) -> CodeGrade:
    """Run a program on golden tests.

    Args:
        tests: Indices of the tests to run, in this order; None is all of them, public and private.
        limits: Of time, memory and output; None is `limits_of(problem)`.
        isolation: `"per_test"`, or `"per_solution"` for programs that are trusted: five times as fast.

    Raises:
        SandboxFailed: The sandbox failed, twice.
        SandboxUnavailable: This machine cannot hold a program.
    """
    chosen = tuple(range(len(problem.tests))) if tests is None else tuple(tests)
    if not chosen or not all(0 <= index < len(problem.tests) for index in chosen):
        raise ValueError(
            f"the tests to grade on are {chosen!r} of {problem!r}; expected indices from 0 to"
            f" {len(problem.tests) - 1}, at least one. Leave out problems without tests."
        )
    return _graded(problem, program, chosen, limits_of(problem) if limits is None else limits, isolation)


def limits_of(problem: CodeProblem, cpu: float | None = None) -> Limits:
    """What a program may use on a problem.

    Args:
        problem: The problem; its own limits count, within `LEAST_CPU`, `MOST_CPU`, `LEAST_MEMORY`, `MOST_MEMORY`.
        cpu: Seconds for a test; None is the problem's limit.
    """
    seconds = min(max(problem.cpu or LEAST_CPU, LEAST_CPU), MOST_CPU) if cpu is None else cpu
    memory = min(max(problem.memory or LEAST_MEMORY, LEAST_MEMORY), MOST_MEMORY)
    return Limits(cpu=seconds, total=TOTAL * seconds, memory=memory)


@remembered(KEPT)
def golden(problem: CodeProblem) -> str:
    """The first of the data set's solutions that passes all golden tests, of at most three; empty if there is none."""
    for solution in problem.solutions[:TRIED]:
        if grade(problem, solution, isolation="per_solution").passed:
            return solution
    return ""


def run_tests(
    problem: CodeProblem, program: str, tests: Sequence[StdinTest | CallTest], *, limits: Limits, isolation: str
) -> Report:
    """Run a program of the problem on any tests of its kind.

    Raises:
        SandboxFailed: The sandbox failed, twice.
    """
    box = default(problem.packages) if problem.packages else default()
    report = box.run_tests(
        program,
        tests,
        fn_name=problem.fn_name,
        prelude=problem.prelude,
        tolerance=problem.tolerance,
        tolerance_kind=problem.tolerance_kind,
        ignore_case=problem.case_free,
        limits=limits,
        isolation=isolation,
    )
    if report.verdict == Verdict.SANDBOX_ERROR:
        detail = next(result.detail for result in report.results if result.verdict == Verdict.SANDBOX_ERROR)
        raise SandboxFailed(
            f"the sandbox failed twice on a program for {problem!r} ({detail}); expected verdicts. Drop the sample,"
            " and see the log."
        )
    return report


def written(test: StdinTest | CallTest) -> tuple[str, str]:
    """The input and the output of a test as text; of a call the arguments, one on a line, and the value, as JSON."""
    if isinstance(test, CallTest):
        return "\n".join(map(json.dumps, test.args)), json.dumps(test.expected)
    return _text(test.stdin).rstrip("\r\n"), _text(test.expected).rstrip()


def printed(result: ProgramResult) -> str:
    """What a program printed or returned, cut to a length for a prompt."""
    return shorten(result.stdout.decode("utf-8", "replace").rstrip("\n"), SHOWN)


def last_error(result: ProgramResult) -> str:
    """The last line of a program's traceback, cut to a length for a prompt; empty if it did not end with one."""
    if result.verdict not in (Verdict.RUNTIME_ERROR, Verdict.MEMORY):
        return ""
    return shorten(result.stderr.decode("utf-8", "replace").rstrip().rpartition("\n")[2], SHOWN)


@remembered(KEPT)
def _graded(problem: CodeProblem, program: str, chosen: tuple[int, ...], limits: Limits, isolation: str) -> CodeGrade:
    tests = [problem.tests[index] for index in chosen]
    results = run_tests(problem, program, tests, limits=limits, isolation=isolation).results
    counts = Counter(result.verdict for result in results)
    return CodeGrade(counts[Verdict.PASSED], len(results), dict(counts))


def _text(data: str | bytes) -> str:
    return data if isinstance(data, str) else data.decode("utf-8", "replace")
