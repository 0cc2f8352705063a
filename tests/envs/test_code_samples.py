"""Real problems through the environments: golden solutions succeed, wrong ones fail, episodes leave nothing behind."""

import gc
import os
import threading
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

import pettingllms_envs
from code_problems import SIGNED, SQUARE, UNIQUE, block, playing
from code_samples import READERS, rows, sample
from data_files import PUBLIC, needs_public
from pettingllms_envs import sandbox
from pettingllms_envs.datasets.code_problems import CodeProblem
from pettingllms_envs.environments.coding.coder_tester import CoderTester
from pettingllms_envs.environments.coding.lone_coder import SingleCoder
from pettingllms_envs.environments.coding.text import PROGRAM_FORMAT
from pettingllms_envs.graders.code import grade
from pettingllms_envs.replies.fences import MAX_PROGRAM


pytestmark = needs_public

# Problems of each file with tests, and golden solutions of them.
SIZES = {
    "apps_sample": (8, 15),
    "codecontests_sample": (55, 8),
    "livecodebench_sample": (54, 41),
    "leetcode_sample": (28, 28),
}


def outcome(problem: CodeProblem, program: str) -> dict[str, Any]:
    env = playing(SingleCoder, problem)
    env.step(block(program))
    found: dict[str, Any] = env.infos["coder_0"]["outcome"]
    return found


@pytest.mark.slow
@pytest.mark.parametrize("name", READERS)
def test_every_golden_solution_of_the_samples_succeeds(name: str) -> None:
    problems = sample(name)
    solutions = [(problem, program) for problem in problems for program in problem.solutions]
    assert (len(problems), len(solutions)) == SIZES[name]
    assert all(len(program) <= MAX_PROGRAM for _, program in solutions)
    failed = [problem.id for problem, program in solutions if not outcome(problem, program)["success"]]
    assert failed == []
    wrong = [(problem, program) for problem in problems for program in problem.wrong]
    assert [problem.id for problem, program in wrong if outcome(problem, program)["success"]] == []


@pytest.mark.slow
@pytest.mark.parametrize("name", READERS)
def test_the_example_of_the_prompt_and_an_empty_program_solve_none_of_the_samples(name: str) -> None:
    env = playing(SingleCoder, SQUARE)
    example = env.workflow.task.parse(PROGRAM_FORMAT)
    for problem in sample(name):
        for program in (example, "pass"):
            assert not outcome(problem, program)["success"], problem


def test_the_labels_of_all_submissions_are_reproduced() -> None:
    problems = {problem.id: problem for name in READERS for problem in sample(name)}
    judged = [row for row in rows("code_submissions") if row["problem"] in problems]
    seen = Counter((row["label"], outcome(problems[row["problem"]], row["code"])["success"]) for row in judged)
    assert len(judged) == 17  # the problems of the other 19 are in no file
    assert seen == {("AC", True): 11, ("WA", False): 5, ("RE", False): 1}


@pytest.mark.slow
@pytest.mark.parametrize("name", ["apps_sample", "livecodebench_sample", "leetcode_sample", "codecontests_sample"])
def test_the_oracle_of_the_team_agrees_on_real_problems(name: str) -> None:
    """With golden tests as cases: what the tester writes reads as what the data set has."""
    for problem in [each for each in sample(name) if each.solutions][:12]:
        env = playing(CoderTester, problem, num_turns=1)
        env.step(env.oracle())
        env.step(env.oracle())
        assert env.infos["coder_0"]["outcome"]["success"], problem
        if env.standing() == "solved":
            assert env.infos["coder_0"]["outcome"]["num_cases"] >= 1


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "file", "split", "num_problems"),
    [
        ("apps", "codeparrot__apps__train", "train", 2),
        ("apps", "codeparrot__apps__test", "test", 9),
        ("code_contests", "deepmind__code_contests__test", "test", 20),
        ("live_code_bench", "livecodebench__code_generation_lite__test6", "test", 28),
    ],
)
def test_the_oracle_solves_every_problem_of_the_hubs_columns(
    name: str, file: str, split: str, num_problems: int
) -> None:
    data = str(PUBLIC / "hub_layout" / f"{file}.jsonl")
    env = pettingllms_envs.make(name, data=data, num_turns=1)
    seen = set()
    for seed in range(num_problems):
        env.reset(seed=seed, options={"split": split})
        seen.add(env.snapshot().play.task.problem.id)
        while not env.standing():
            env.step(env.oracle())
        assert env.infos["coder_0"]["outcome"]["success"], env.snapshot().play.task
    assert len(seen) == num_problems


@pytest.mark.slow
def test_500_episodes_in_flight_from_threads_leave_nothing_behind() -> None:
    problems = [SQUARE, UNIQUE, *(each for each in sample("leetcode_sample")[:6])]
    started = threading.Barrier(500)

    def play(i: int) -> tuple[str, bool]:
        problem = problems[i % len(problems)]
        env = playing(CoderTester, problem, num_turns=2)
        started.wait()
        env.step(block(f"# the {i}th\nprint({i})" if i % 3 else f"# the {i}th\n{problem.solutions[0]}"))
        while not env.standing():
            env.step(env.oracle())
        return env.standing(), env.infos["coder_0"]["outcome"]["success"]

    grade(SQUARE, SIGNED)  # the servers are started
    gc.collect()
    before, threads = open_files(), threading.active_count()
    with ThreadPoolExecutor(500) as pool:
        seen = Counter(pool.map(play, range(500)))
    gc.collect()
    assert seen == {("solved", True): 500}
    assert open_files() <= before + 2 * sandbox.default().num_slots  # a socket or two for each server
    assert threading.active_count() == threads
    servers = set(sandbox.default().pids())
    assert len(servers) <= sandbox.default().num_slots
    assert children() <= servers


def open_files() -> int:
    return len(os.listdir("/proc/self/fd"))


def children() -> set[int]:
    """This process's own."""
    tasks = Path("/proc/self/task").iterdir()
    return {int(pid) for task in tasks for pid in (task / "children").read_text().split()}
