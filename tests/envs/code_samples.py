"""Code rows of public data sets as problems; none of them is shipped."""

import json
from typing import Any

from data_files import PUBLIC
from pettingllms_envs.datasets import judging
from pettingllms_envs.datasets.code_problems import CodeProblem
from pettingllms_envs.environments.coding.apps_rows import code_problem
from pettingllms_envs.sandbox import LEETCODE_PRELUDE, CallTest, StdinTest


def rows(name: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (PUBLIC / f"{name}.jsonl").read_text("utf-8").splitlines()]


def tests_of(fn_name: str | None, inputs: list[Any], outputs: list[Any]) -> Any:
    pairs = zip(inputs, outputs, strict=True)
    if fn_name is None:
        return tuple(StdinTest(given, wanted) for given, wanted in pairs)
    return tuple(CallTest(given, wanted) for given, wanted in pairs)


def lined(text: str) -> list[Any]:
    """The arguments of a functional test of LiveCodeBench, one on a line."""
    return [json.loads(line) for line in text.split("\n") if line.strip()]


def judged(statement: str) -> dict[str, Any]:
    """How answers are compared, as the statement says."""
    said = judging.rules(statement)
    return {
        "tolerance": said.tolerance,
        "tolerance_kind": said.tolerance_kind,
        "ignore_case": said.ignore_case,
    }


def apps(row: dict[str, Any]) -> CodeProblem:
    return code_problem(
        source="apps",
        id=row["id"],
        statement=row["question"],
        tests=list(zip(row["inputs"], row["outputs"], strict=True)),
        fn_name=row["fn_name"],
        starter_code=row["starter_code"] or "",
        solutions=row["solutions"],
        level=1,
    )


def code_contests(row: dict[str, Any]) -> CodeProblem:
    public, private = row["public_tests"], row["private_tests"]
    return CodeProblem(
        source="code_contests",
        id=row["id"],
        statement=row["description"],
        tests=tests_of(None, public["input"] + private["input"], public["output"] + private["output"]),
        num_public=len(public["input"]),
        solutions=(row["solution"],) if row["solution"] else (),
        **judged(row["description"]),
        cpu=row["time_limit_s"],
        memory=row["memory_limit_bytes"],
    )


def live_code_bench(row: dict[str, Any]) -> CodeProblem:
    both = row["public_tests"] + row["private_tests"]
    given, wanted = [test["input"] for test in both], [test["output"] for test in both]
    if row["fn_name"]:
        given, wanted = [lined(text) for text in given], [json.loads(text) for text in wanted]
    return CodeProblem(
        source="live_code_bench",
        id=row["id"],
        statement=row["question_content"],
        tests=tests_of(row["fn_name"], given, wanted),
        num_public=len(row["public_tests"]),
        fn_name=row["fn_name"],
        starter_code=row["starter_code"] or "",
        prelude=LEETCODE_PRELUDE if row["fn_name"] else "",
        solutions=(row["reference_solution"],) if row["reference_solution"] else (),
        wrong=(row["wrong_solution"],) if row["wrong_solution"] else (),
        **judged(row["question_content"]),
    )


def leetcode(row: dict[str, Any]) -> CodeProblem:
    return CodeProblem(
        source="leetcode",
        id=row["id"],
        statement=row["question"],
        tests=tests_of(row["fn_name"], row["inputs"], row["outputs"]),
        fn_name=row["fn_name"],
        starter_code=row["starter_code"],
        prelude=LEETCODE_PRELUDE,
        solutions=(row["solution"],),
        **judged(row["question"]),
    )


READERS = {
    "apps_sample": apps,
    "codecontests_sample": code_contests,
    "livecodebench_sample": live_code_bench,
    "leetcode_sample": leetcode,
}


def sample(name: str) -> list[CodeProblem]:
    """All problems of a file that have tests."""
    problems = map(READERS[name], rows(name))
    return [problem for problem in problems if problem.tests]
