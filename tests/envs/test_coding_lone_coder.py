"""Workflows `single` and `self_refine`: a coder alone, with and without tools, on the same problems and pay."""

from dataclasses import replace

import pytest

from code_problems import DOUBLED, RIGHT, SIGNED, SQUARE, UNIQUE, block, cases, playing
from pettingllms_envs.aec import TextEnv
from pettingllms_envs.environments.coding.lone_coder import SelfRefine, SingleCoder


def course(env: TextEnv, *replies: str) -> list[tuple[float, str]]:
    """The reward and the standing after each reply."""
    seen = []
    for reply in replies:
        env.step(reply)
        seen.append((round(env.rewards["coder_0"], 9), env.standing()))
    return seen


def test_single_hands_in_its_first_readable_program() -> None:
    assert course(playing(SingleCoder, SQUARE), block(SIGNED)) == [(1.5, "settled")]
    env = playing(SingleCoder, SQUARE)
    assert course(env, "no", block(RIGHT)) == [(-0.2, ""), (3.0, "solved")]  # progress, tests and success
    env = playing(SingleCoder, SQUARE, num_turns=2)
    assert course(env, "no", block(RIGHT) + "\n" + block(RIGHT)) == [(-0.2, ""), (-0.2, "out of turns")]
    assert "it has 2 blocks of Python, and one is expected" in env.observe("coder_0")["text"]


def test_single_does_not_run_cases_without_tools() -> None:
    assert course(playing(SingleCoder, SQUARE), f"{block(SIGNED)}\n{cases(('-1', '1'))}") == [(1.5, "settled")]


def test_single_with_tools_works_until_its_program_passes_its_own_cases() -> None:
    env = playing(SingleCoder, SQUARE, tools=True)
    own = cases(("-1", "1"), ("2", "4"))
    assert course(env, f"{block(SIGNED)}\n{own}") == [(1.5, "")]
    text = env.observe("coder_0")["text"]
    assert (
        "Case 1. Input:\n```\n-1\n```\nOutput:\n```\n1\n```\nThe program did not pass: wrong. It gave:\n```\n-1"
        in text
    )
    assert "Case 2. Input:\n```\n2\n```\nOutput:\n```\n4\n```\nThe program passed." in text
    assert course(env, cases(("1", "1"))) == [(-0.2, "")]  # no program
    unread = "\nYour last reply was unreadable: it has no blocks of Python, and one is expected. Nothing came of it."
    ran = text.index("\nYour program was run.")
    assert env.observe("coder_0")["text"] == text[:ran].replace("Turn 2", "Turn 3") + unread + text[ran:]
    assert course(env, f"{block(DOUBLED)}\n{own}") == [(-1.0, "")]  # from 3 of 4 tests to 1, twice 0.5
    assert course(env, f"{block(RIGHT)}\n{own}") == [(0.75 * 2 + 1, "solved")]


def test_single_with_tools_hands_in_a_program_without_cases() -> None:
    assert course(playing(SingleCoder, SQUARE, tools=True), block(SIGNED)) == [(1.5, "settled")]


def test_single_with_tools_cannot_read_half_a_case() -> None:
    env = playing(SingleCoder, SQUARE, tools=True)
    assert course(env, f"{block(RIGHT)}\n{block('2', 'input')}") == [(-0.2, "")]
    assert env.snapshot().play.task.program == ""


def test_tools_are_named_in_the_prompt_only_with_tools() -> None:
    plain, tools = playing(SingleCoder, SQUARE), playing(SingleCoder, SQUARE, tools=True, max_cases=7)
    assert "test case" not in plain.observe("coder_0")["system"]
    assert "at most 7 test cases" in tools.observe("coder_0")["system"]


def test_self_refine_works_until_its_program_passes_the_public_tests() -> None:
    env = playing(SelfRefine, SQUARE)
    assert course(env, block(DOUBLED)) == [(0.5, "")]  # 1 of 4 tests
    assert (
        "Case 1. Input:\n```\n3\n```\nOutput:\n```\n9\n```\nThe program did not pass" in env.observe("coder_0")["text"]
    )
    assert course(env, "hm", block(SIGNED)) == [(-0.2, ""), (1.0, "settled")]  # it passes what is public


def test_self_refine_without_public_tests_ends_with_the_same_program_twice() -> None:
    env = playing(SelfRefine, replace(SQUARE, num_public=0))
    steps = course(env, block(DOUBLED), block(SIGNED), block(RIGHT), block(RIGHT))
    assert [standing for _, standing in steps] == ["", "", "", "solved"]
    assert sum(reward for reward, _ in steps) == 3.0


@pytest.mark.parametrize("problem", [SQUARE, UNIQUE])
@pytest.mark.parametrize(
    ("workflow", "settings"), [(SingleCoder, {}), (SingleCoder, {"tools": True}), (SelfRefine, {})]
)
def test_the_oracle_succeeds(problem: type, workflow: type, settings: dict[str, bool]) -> None:
    env = playing(workflow, problem, **settings)
    assert course(env, env.oracle()) == [(3.0, "solved")]


@pytest.mark.parametrize("settings", [{"tools": "yes"}, {"max_cases": 0}, {"num_turns": 0}])
def test_settings_out_of_range_are_refused(settings: dict[str, object]) -> None:
    with pytest.raises(ValueError, match=f"{next(iter(settings))} is "):
        playing(SingleCoder, SQUARE, **settings)  # type: ignore[arg-type]
