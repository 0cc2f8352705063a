"""Validates a caller's arguments and turns them into what a slot runs. Pure."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from functools import partial
from typing import get_args

from pettingllms_envs.core import check_choice
from pettingllms_envs.sandbox import values
from pettingllms_envs.sandbox.compare import same_result, same_tokens
from pettingllms_envs.sandbox.inside.wire import Job
from pettingllms_envs.sandbox.slot import Done, Work
from pettingllms_envs.sandbox.verdicts import Compare, job_of, judge


ISOLATIONS = ("per_test", "per_solution", "unsafe-subprocess")
"""A process for each test; one process for all tests, five times as fast; no sandbox at all."""

KEPT_OUTPUT = 1 << 16


@dataclass(frozen=True, slots=True)
class Request:
    """A job, its program and inputs, and how each output is compared. The comparisons never leave this process."""

    job: Job
    work: Work
    compares: tuple[Compare | None, ...]

    def result(self, index: int, done: Done, isolation: str) -> values.ProgramResult:
        """The result of a test, with a part of its output."""
        compare = self.compares[index]
        result = judge(self.job, done.record, done.before, done.output, done.errors, compare, isolation)
        return result if compare is None else replace(result, stdout=result.stdout[:KEPT_OUTPUT])


def request_run(program: str, stdin: str | bytes, limits: values.Limits) -> Request:
    """The request to run a program with a standard input, without comparing its output."""
    values.check_limits(limits)
    work = Work(values.as_bytes(program), b"", None, [values.as_bytes(stdin)])
    return Request(job_of(limits, limits.output, 1, in_process=True, stop_at_timeout=True), work, (None,))


def request_tests(task: values.Task, limits: values.Limits, isolation: str, stop_at_timeout: bool) -> Request:
    """The request to run a program on its tests."""
    values.check_limits(limits)
    check_choice("isolation", isolation, ISOLATIONS)
    check_choice("tolerance_kind", task.tolerance_kind, get_args(values.ToleranceKind))
    tests = list(task.tests)
    if not tests:
        raise ValueError("there are no tests; expected at least one, for a program cannot pass none. Give some.")
    expected_output = 0
    inputs: list[bytes] = []
    compares: list[Compare] = []
    for test in tests:
        if isinstance(test, values.StdinTest) and task.fn_name is None:
            wanted = values.as_bytes(test.expected)
            expected_output = max(expected_output, len(wanted))
            inputs.append(values.as_bytes(test.stdin))
            compares.append(
                partial(
                    same_tokens,
                    expected=wanted,
                    tolerance=task.tolerance,
                    kind=task.tolerance_kind,
                    ignore_case=task.ignore_case,
                )
            )
        elif isinstance(test, values.CallTest) and task.fn_name is not None:
            expected_output = max(expected_output, len(_json(test.expected)))
            inputs.append(_json(list(test.args)))
            compares.append(
                partial(same_result, expected=test.expected, tolerance=task.tolerance, kind=task.tolerance_kind)
            )
        else:
            raise TypeError(
                f"a test is a {type(test).__name__} and fn_name is {task.fn_name!r}; expected StdinTest without, or"
                " CallTest with the name of the function. Give all tests of one kind."
            )
    output = max(limits.output, 2 * expected_output + (1 << 16))
    in_process = isolation == "per_solution"
    job = job_of(limits, output, len(tests), in_process=in_process, stop_at_timeout=stop_at_timeout)
    return Request(
        job, Work(values.as_bytes(task.program), task.prelude.encode(), task.fn_name, inputs), tuple(compares)
    )


def _json(value: object) -> bytes:
    try:
        return json.dumps(value).encode()
    except (TypeError, ValueError, RecursionError) as error:
        raise TypeError(
            f"a call test has a value that JSON does not have ({error}). Give lists and numbers."
        ) from error
