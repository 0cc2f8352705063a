"""The coding task: replies that are programs, problems from a file, tests that count, and what the terminal shows."""

import io
import json
import os
import random
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import pettingllms_envs
from code_problems import DOUBLED, RIGHT, SIGNED, SQUARE, UNIQUE, block, cases, playing
from pettingllms_envs import cli
from pettingllms_envs.core import Unreadable
from pettingllms_envs.environments.coding.apps import Apps
from pettingllms_envs.environments.coding.coder_tester import CoderTester
from pettingllms_envs.environments.coding.rules import CodingState
from pettingllms_envs.environments.coding.text import CASES_FORMAT, PROGRAM_FORMAT, answer_table, problem_text
from pettingllms_envs.graders.code import grade
from pettingllms_envs.replies.fences import MAX_PROGRAM, fenced_blocks
from pettingllms_envs.sandbox import StdinTest


ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize(
    ("reply", "program"),
    [
        (block("print(1)"), "print(1)"),
        (f"First I think.\n{block('print(1)', 'py')}\nThat is all.", "print(1)"),
        ("  ```Python3 \nif 1:\n    print('''\n``\n''')\n  ``` ", "if 1:\n    print('''\n``\n''')"),
        (f"{block('cat x', 'bash')}\n{block('print(1)')}\n{block('2', 'input')}", "print(1)"),
        ("```python\r\na = 1\r\nprint(a)\r\n```\r\n", "a = 1\nprint(a)"),
        (f"<think>\nPerhaps\n{block('print(0)')}\n</think>\n\n{block('print(1)')}", "print(1)"),
        (f"<think>\nOr\n```python\nprint(\n</think>\n{block('print(1)')}", "print(1)"),
        (block("print('</think>')"), "print('</think>')"),
    ],
)
def test_a_program_is_the_one_block_of_python(reply: str, program: str) -> None:
    assert Apps().parse(reply) == program


@pytest.mark.parametrize(
    ("reply", "reason"),
    [
        ("", "it has no blocks of Python, and one is expected"),
        ("print(1)", "it has no blocks of Python, and one is expected"),
        (block("print(1)", ""), "it has no blocks of Python, and one is expected"),
        (block("print(1)", "pythonic"), "it has no blocks of Python, and one is expected"),
        (f"{block('print(1)')}\n{block('print(1)')}", "it has 2 blocks of Python, and one is expected"),
        ("```python\nprint(1)", "its block of Python has no end"),
        (block(" \n"), "its program is empty"),
        (block("#" * (MAX_PROGRAM + 1)), f"its program is longer than {MAX_PROGRAM} characters"),
    ],
)
def test_anything_else_is_unreadable(reply: str, reason: str) -> None:
    assert Apps().parse(reply) == Unreadable(reason)


def test_a_block_of_another_kind_hides_nothing_that_comes_after_it() -> None:
    kinds = {"input": "input", "output": "output"}
    assert fenced_blocks("```text\na\n```\n```input\nb\n```", kinds) == [("input", "b")]
    assert fenced_blocks("```input\n```input\nb\n```", kinds) == [("input", "```input\nb")]


@pytest.mark.parametrize(
    ("program", "value", "solved"),
    [(RIGHT, 1.0, True), (SIGNED, 0.75, False), (DOUBLED, 0.25, False), ("x", 0.0, False)],
)
def test_the_value_is_the_share_of_golden_tests_passed(program: str, value: float, solved: bool) -> None:
    task = Apps()
    state = task.apply(CodingState(SQUARE, 4), program)
    assert (task.value(state), task.solved(state)) == (value, solved)
    assert task.outcome(state)["pass_rate"] == value
    assert task.value(CodingState(SQUARE, 4)) == 0.0


def test_training_may_grade_on_a_fixed_sample_and_nothing_else_does() -> None:
    many = replace(SQUARE, tests=tuple(StdinTest(f"{n}\n", f"{n * n}\n") for n in range(-20, 20)))
    task = Apps(train_tests=6)
    chosen = task.counted_tests(many)
    assert chosen is not None
    assert len(set(chosen)) == 6
    assert list(chosen) == sorted(chosen)
    assert chosen == Apps(train_tests=6).counted_tests(replace(many, id="square"))
    assert chosen != task.counted_tests(replace(many, id="another"))
    for split, num_tests in (("train", 6), ("test", 40)):
        env = playing(CoderTester, many, split=split, train_tests=6)
        env.step(block(SIGNED))
        outcome = env.infos["coder_0"]["outcome"]
        assert outcome["num_tests"] == num_tests
        assert outcome["num_passed"] == grade(many, SIGNED, tests=chosen if split == "train" else None).num_passed
    assert Apps(train_tests=40).counted_tests(many) is None
    assert chosen == task.counted_tests(replace(many, packages=("numpy",)))  # a setting, and no other problem


@pytest.mark.parametrize("packages", [("numpy",), ["numpy"]])
def test_packages_that_programs_may_import_are_a_setting(packages: Any) -> None:
    env = pettingllms_envs.make("code_contests", workflow="single", num_turns=1, packages=packages)
    env.reset(seed=0)
    problem = env.snapshot().play.task.problem
    assert problem.packages == ("numpy",)
    assert "nothing but the standard library and numpy, that passes" in env.observe("coder_0")["system"]
    assert problem.solutions
    env.step(block(f"import numpy\nassert numpy.ones(3).sum() == 3\n{problem.solutions[0]}"))
    assert env.infos["coder_0"]["outcome"]["success"]


def test_without_the_setting_nothing_is_said_of_packages_and_no_digest_changes() -> None:
    env = pettingllms_envs.make("code_contests", workflow="single")
    env.reset(seed=0)
    assert "nothing but the standard library, that passes" in env.observe("coder_0")["system"]
    assert replace(SQUARE, packages=()).digest == SQUARE.digest
    assert replace(SQUARE, ignore_case=True).digest != SQUARE.digest


def test_the_problem_is_shown_with_what_the_statement_leaves_out() -> None:
    assert problem_text(SQUARE) == SQUARE.statement.strip()
    assert problem_text(UNIQUE) == (
        f"{UNIQUE.statement}\n\nThe function is called unique.\nBegin with this:\n```python\ndef unique(a):\n```"
    )
    bare = replace(SQUARE, statement="Square n.")
    assert problem_text(bare) == "Square n.\n\nFor example:\nInput:\n```\n3\n```\nOutput:\n```\n9\n```"


@pytest.mark.parametrize("problem", [SQUARE, UNIQUE])
def test_the_table_of_answers_passes_every_golden_test(problem: Any) -> None:
    assert grade(problem, answer_table(problem)).passed


# --- from a file


def apps_row(number: int, factor: int, level: str = "introductory") -> dict[str, Any]:
    """A problem in the columns of APPS: print n times a factor."""
    tests = {"inputs": [f"{n}\n" for n in range(5)], "outputs": [f"{n * factor}\n" for n in range(5)]}
    return {
        "problem_id": number,
        "question": f"Read n and print it times {factor}; this is problem {number}.",
        "solutions": json.dumps([f"print(int(input()) * {factor})"]),
        "input_output": json.dumps(tests),
        "difficulty": level,
        "url": "",
        "starter_code": "",
    }


@pytest.fixture
def file(tmp_path: Path) -> str:
    rows = [apps_row(number, number + 2, "interview" if number % 3 else "introductory") for number in range(40)]
    path = tmp_path / "mine.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return str(path)


def drawn(env: Any, seeds: Any, **options: Any) -> list[str]:
    found = []
    for seed in seeds:
        env.reset(seed=seed, options=options)
        found.append(env.snapshot().play.task.problem.id)
    return found


def test_the_seeds_of_a_split_are_its_problems_once_each(file: str) -> None:
    env = pettingllms_envs.make("apps", data=file, layout="apps")
    ids = {split: drawn(env, range(40), split=split) for split in ("train", "validation", "test")}
    sizes = {split: len(set(found)) for split, found in ids.items()}
    assert sum(sizes.values()) == 40
    assert all(len(set(found[: sizes[split]])) == sizes[split] for split, found in ids.items())
    assert all(found[sizes[split]] == found[0] for split, found in ids.items())
    assert drawn(env, range(40)) == ids["train"]
    assert {env.snapshot().play.task.problem.level for _ in drawn(env, [3], level=2)} == {2}
    wanted = ids["train"][7]
    assert drawn(env, [0, 1], problem=wanted) == [wanted, wanted]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"split": "dev"}, "split is 'dev'; expected one of 'train', 'validation', 'test'"),
        ({"level": 9}, "level is 9; expected one of those in .*: 1, 2"),
        ({"problem": "nope"}, "problem is 'nope'; expected the id of one of"),
    ],
)
def test_what_a_file_does_not_have_is_refused(file: str, options: dict[str, Any], message: str) -> None:
    env = pettingllms_envs.make("apps", data=file, layout="apps")
    with pytest.raises(ValueError, match=message):
        env.reset(seed=0, options=options)


def test_problems_with_an_answer_are_no_problems_of_coding(tmp_path: Path) -> None:
    path = tmp_path / "math.jsonl"
    rows = [{"problem": f"What is {n} + 1?", "answer": str(n + 1)} for n in range(30)]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    with pytest.raises(ValueError, match=r"with MathProblem\(.*expected CodeProblems"):
        pettingllms_envs.make("apps", data=str(path), layout="math").reset(seed=0)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"train_tests": 0}, "train_tests is 0; expected a whole number of at least 1"),
        ({"train_tests": 2.5}, "train_tests is 2.5"),
        ({"cpu": 0}, "cpu is 0; expected seconds"),
        ({"packages": "numpy"}, "packages is 'numpy'; expected names of packages"),
        ({"packages": ("no_such_package",)}, "packages names 'no_such_package', which is not installed here"),
        (
            {"workflow": "draft_plan"},
            "workflow is 'draft_plan'; expected one of 'coder_tester', 'single', 'self_refine'",
        ),
        ({"workflow": "single", "order": ("tester", "coder")}, "which is a setting of 'coder_tester'"),
    ],
)
def test_settings_out_of_range_are_refused(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        pettingllms_envs.make("apps", **settings)


# --- replies that nobody should be paid for


@pytest.mark.parametrize("problem", [SQUARE, UNIQUE])
def test_a_blind_reply_of_either_role_earns_next_to_nothing(problem: Any) -> None:
    for reply in Apps().blind_replies:
        env = playing(CoderTester, problem, num_turns=2)
        total = 0.0
        while not env.standing():
            env.step(reply)
            total += env.rewards[env.possible_agents[1]]
            assert env.infos["coder_0"]["outcome"]["pass_rate"] <= 0.5
        assert total <= 1.5
        assert env.infos["coder_0"]["outcome"]["success"] is False


def test_random_replies_keep_every_part_in_its_range() -> None:
    rng = random.Random(0)
    replies = [block(RIGHT), block(SIGNED), block("1 / 0"), "", cases(("2", "4")), cases(("-1", "1"), ("3", "9"))]
    for _ in range(30):
        env = playing(CoderTester, SQUARE, num_turns=3)
        totals = {"team": 0.0, "valid": 0.0, "telling": 0.0, "tests": 0.0}
        while not env.standing():
            env.step(rng.choice(replies))
            parts = env.snapshot().parts
            totals["team"] += sum(parts.get("team", {}).values())
            for named in parts.values():
                for name, value in named.items():
                    low, high = env.metadata["reward_ranges"][name]
                    assert low <= value <= high
                    totals[name] = totals.get(name, 0.0) + value
        assert all(-1e-9 <= totals[name] <= 1 + 1e-9 for name in ("valid", "telling", "tests"))
        outcome = env.infos["coder_0"]["outcome"]
        assert totals["team"] == pytest.approx(outcome["pass_rate"] + outcome["success"])


def test_the_examples_in_the_prompts_solve_nothing() -> None:
    program = Apps().parse(PROGRAM_FORMAT)
    assert isinstance(program, str)
    assert grade(SQUARE, program).num_passed == 0
    assert grade(replace(SQUARE, tests=(StdinTest("ab c\n", "AB Cc ba\n"),)), program).passed  # its own case
    assert "ab c" in CASES_FORMAT
    assert "AB Cc ba" in CASES_FORMAT


# --- at the terminal


def test_a_program_and_cases_can_be_typed_at_the_terminal(
    file: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    env = pettingllms_envs.make("apps", data=file, layout="apps")
    (wanted,) = drawn(env, [0])
    factor = int(wanted) + 2
    typed = f"{block(f'n = int(input()){chr(10)}{chr(10)}print(n * {factor})')}\n\n"
    typed += f"{cases(('7', str(7 * factor)), ('', ''))}\n\n"
    monkeypatch.setattr("sys.stdin", io.StringIO(typed))
    status = cli.main(["play", "apps", "--set", f"data={file}", "--set", "layout=apps"])
    out = capsys.readouterr().out
    assert status == 0
    assert f"this is problem {wanted}." in out
    assert "an empty line after the last block ends a reply with blocks" in out
    assert "progress +1 (team), tests +1 (coder)" in out
    assert "valid +0.5 (tester)" in out
    assert "Left in turn 2 of 4: success True" in out


def test_info_says_what_every_setting_and_role_is(
    file: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    assert cli.main(["info", "apps", "--set", f"data={file}", "--set", "layout=apps"]) == 0
    rows = [" ".join(line.split()) for line in capsys.readouterr().out.splitlines()]
    assert "split 'train', 'validation', 'test'" in rows
    assert "telling -1 1" in rows
    assert "max_cases 4 Test cases that the tester may write in a turn, 1 to 16." in rows
    assert any(row.startswith("train_tests None On how many golden tests") for row in rows)
    assert any(row.startswith("tester_0 You are the tester.") for row in rows)


# --- what the documentation says


def test_the_episode_in_the_documentation_is_played_as_it_stands_there() -> None:
    page = (ROOT / "docs" / "coding.md").read_text(encoding="utf-8")
    found = re.search(r"```python\n(import pettingllms_envs.*?)\n```\n\n````text\n(.*?)````", page, re.S)
    assert found is not None
    played = subprocess.run(
        [sys.executable, "-c", found[1]],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    assert played.stdout == found[2]
