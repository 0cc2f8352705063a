"""Real submissions and reference solutions get the verdicts that their judges gave."""

from __future__ import annotations

import json
from typing import Any

import pytest

from data_files import PUBLIC, needs_public
from pettingllms_envs.sandbox import LEETCODE_PRELUDE, CallTest, Limits, Report, Sandbox, StdinTest, Task, Verdict


GENEROUS = Limits(cpu=20.0, wall=120.0, total=200.0)  # speed is not what these tests are about

pytestmark = needs_public


def label(report: Report) -> str:
    """The label by the rule of CodeRL, whose labels these are: an error in any test counts before a wrong answer."""
    verdicts = {result.verdict for result in report.results}
    if verdicts == {Verdict.PASSED}:
        return "AC"
    return "RE" if Verdict.RUNTIME_ERROR in verdicts else "WA" if verdicts <= {Verdict.PASSED, Verdict.WRONG} else "?"


def rows(name: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (PUBLIC / name).read_text("utf-8").splitlines()]


def apps_tests(row: dict[str, Any]) -> list[StdinTest | CallTest]:
    if row["fn_name"] is None:
        return [StdinTest(given, wanted) for given, wanted in zip(row["inputs"], row["outputs"], strict=True)]
    # The data set wraps some results in a list of one.
    results = [wanted[0] if isinstance(wanted, list) else wanted for wanted in row["outputs"]]
    return [CallTest(given, wanted) for given, wanted in zip(row["inputs"], results, strict=True)]


def livecodebench_tests(row: dict[str, Any]) -> list[StdinTest | CallTest]:
    tests = row["public_tests"] + row["private_tests"]
    if row["fn_name"] is None:
        return [StdinTest(test["input"], test["output"]) for test in tests]
    return [
        CallTest([json.loads(line) for line in test["input"].split("\n") if line], json.loads(test["output"]))
        for test in tests
    ]


def problems() -> dict[str, list[StdinTest | CallTest]]:
    found = {row["id"]: apps_tests(row) for row in rows("apps_sample.jsonl")}
    return found | {row["id"]: livecodebench_tests(row) for row in rows("livecodebench_sample.jsonl")}


@pytest.mark.parametrize("isolation", ["per_test", "per_solution"])
def test_submissions_get_the_labels_of_their_judges(sandbox: Sandbox, isolation: str) -> None:
    known = problems()
    got, expected = {}, {}
    for row in rows("code_submissions.jsonl"):
        if row["problem"] in known:  # of the others the tests are not in the data
            report = sandbox.run_tests(
                row["code"],
                known[row["problem"]],
                fn_name=row["fn_name"],
                prelude=LEETCODE_PRELUDE if row["fn_name"] else "",
                isolation=isolation,
            )
            got[row["id"]] = label(report)
            expected[row["id"]] = "RE" if row["label_here"] == "CE" else row["label_here"]
    assert len(got) == 17
    assert got == expected


def test_submissions_that_fail_to_run_do_so_on_any_input(sandbox: Sandbox) -> None:
    known = problems()
    broken = [
        row for row in rows("code_submissions.jsonl") if row["label_here"] == "CE" and row["problem"] not in known
    ]
    assert len(broken) == 2
    for row in broken:
        report = sandbox.run_tests(row["code"], [StdinTest("1 1\n1\n", "1")])
        assert report.results[0].detail in ("SyntaxError", "IndentationError", "TabError"), row["id"]


def reference_tasks() -> list[Task]:
    tasks = []
    for row in rows("apps_sample.jsonl"):
        for solution in row["solutions"]:
            tasks.append(
                Task(program=solution, tests=apps_tests(row), fn_name=row["fn_name"], prelude=LEETCODE_PRELUDE)
            )
    for row in rows("livecodebench_sample.jsonl"):
        if row["reference_solution"]:
            prelude = LEETCODE_PRELUDE if row["fn_name"] else ""
            tests = livecodebench_tests(row)
            tasks.append(Task(program=row["reference_solution"], tests=tests, fn_name=row["fn_name"], prelude=prelude))
    for row in rows("leetcode_sample.jsonl"):
        tests = [CallTest(given, wanted) for given, wanted in zip(row["inputs"], row["outputs"], strict=True)]
        tasks.append(
            Task(
                program=row["solution"], tests=tests, fn_name=row["fn_name"], prelude=LEETCODE_PRELUDE, tolerance=1e-5
            )
        )
    return tasks


@pytest.mark.slow
def test_reference_solutions_pass(sandbox: Sandbox) -> None:
    tasks = reference_tasks()
    assert len(tasks) > 60
    reports = sandbox.run_many(tasks, limits=GENEROUS)
    failed = [
        (
            task.program[:200],
            next((r.verdict, r.detail, r.stderr[-200:]) for r in report.results if r.verdict != "passed"),
        )
        for task, report in zip(tasks, reports, strict=True)
        if not report.passed
    ]
    assert not failed


@pytest.mark.slow
def test_wrong_solutions_do_not_pass(sandbox: Sandbox) -> None:
    for row in rows("livecodebench_sample.jsonl"):
        if row["wrong_solution"]:
            report = sandbox.run_tests(row["wrong_solution"], livecodebench_tests(row), fn_name=row["fn_name"])
            assert report.verdict == Verdict.WRONG
