"""Workflow `tool_reasoner`: who sees what, when an episode ends, and what each reply is paid, by hand."""

import pickle
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pettingllms_envs import graders
from pettingllms_envs.core import TEAM, ToolResult
from pettingllms_envs.environments.mathematics.math import Math
from pettingllms_envs.environments.mathematics.tool_reasoner import ToolReasoner
from pettingllms_envs.math_v0 import raw_env
from pettingllms_envs.sandbox import SandboxFailed, ToolExecutor
from pettingllms_envs.teams.tools import DefaultExecutor
from posed import PROGRAMS, SUM, block, parts, posed


STATEMENT = "The problem:\nWhat is $2 + 3$?"


# ---- Who sees what ------------------------------------------------------------------------------------------------


def test_each_prompt_of_two_turns_is_the_one_written_here() -> None:
    env = posed(num_turns=2)
    seen = []
    for reply in (block("print(6)"), "I think \\boxed{5}.", "no program", "\\boxed{5}"):
        seen.append((env.agent_selection, env.observe(env.agent_selection)["text"]))
        env.step(reply)
    program = "The tool's program:\n```python\nprint(6)\n```\nIt printed:\n```\n6\n```"
    last = (
        f"Turn 2 of 2.\n{STATEMENT}\nThe answer so far: \\boxed{{5}}\n"
        f"Last turn:\n{program}\nThe reasoner answered \\boxed{{5}}."
    )
    unreadable = "The tool's reply was unreadable: it has no blocks of Python, and one is expected. Nothing was run."
    assert seen == [
        ("tool_0", f"Turn 1 of 2.\n{STATEMENT}"),
        ("reasoner_0", f"Turn 1 of 2.\n{STATEMENT}\nThis turn:\n{program}"),
        ("tool_0", last),
        ("reasoner_0", f"{last}\nThis turn:\n{unreadable}"),
    ]


def test_the_reasoner_sees_the_program_only_once_it_has_run_and_the_tool_does_not_see_its_own() -> None:
    env = posed()
    assert "program" not in env.observe("reasoner_0")["text"]
    env.step(block("print(5)"))
    assert "print(5)" in env.observe("reasoner_0")["text"]
    assert "print(5)" not in env.observe("tool_0")["text"]


def test_each_role_reads_the_rules_and_its_own_way_to_reply_once() -> None:
    env = posed()
    task = env.workflow.task
    tool, reasoner = (env.observe(agent)["system"].split("\n") for agent in ("tool_0", "reasoner_0"))
    assert (
        tool[:2]
        == reasoner[:2]
        == [
            task.rules(),
            "Each turn the tool runs a program, then the reasoner answers, until both have the same answer.",
        ]
    )
    assert reasoner[3] == task.reply_format()
    assert (len(tool), len(reasoner)) == (3, 4)
    assert "box" not in tool[2]
    assert tool[2].endswith("It may import the standard library; it can read no input and no files.")


@pytest.mark.parametrize("workflow", ["tool_reasoner", "single"])
@pytest.mark.parametrize("imports", ["sympy", ("sympy", 3), None])
def test_what_is_no_name_of_a_package_is_refused(workflow: str, imports: Any) -> None:
    with pytest.raises(ValueError, match=r"imports is .*; expected names of packages, such as \('sympy',\)"):
        posed(workflow=workflow, imports=imports)
    assert posed(workflow=workflow, imports=["sympy"]).workflow.imports == ("sympy",)


def test_the_tool_is_told_of_the_packages_that_the_sandbox_has_for_it() -> None:
    env = raw_env(imports=("math_verify", "sympy"))
    env.reset(seed=0)
    assert "the standard library and math_verify, sympy;" in env.observe("tool_0")["system"]
    assert env.workflow.executor == DefaultExecutor(imports=("math_verify", "sympy"))


@pytest.mark.parametrize(
    ("reply", "words"),
    [
        (block("1 / 0"), "It printed nothing.\nError: it failed: ZeroDivisionError."),
        (block("print(5); 1 / 0"), "It printed:\n```\n5\n```\nError: it failed: ZeroDivisionError."),
        (block("pass"), "It printed nothing.\nThat is no answer: the last line that it printed is empty."),
        (
            block("print('x' * 5000)"),
            f"It printed:\n```\n{'x' * 1000}\n... 3000 characters left out ...\n{'x' * 1000}\n```\n"
            "That is no answer: the last line that it printed is longer than 1000 characters.",
        ),
        (
            block("print(5)") + "\n" + block("print(5)"),
            "The tool's reply was unreadable: it has 2 blocks of Python, and one is expected. Nothing was run.",
        ),
    ],
)
def test_what_is_no_answer_is_shown_with_the_reason(reply: str, words: str) -> None:
    env = posed()
    env.step(reply)
    assert env.observe("reasoner_0")["text"].endswith(words)


# ---- When it ends, and what is paid ---------------------------------------------------------------------------------


RIGHT, WRONG, FAILS, JUNK = block("print(5)"), block("print(6)"), block("1 / 0"), "I do not know."
FIVE, SIX = "\\boxed{5}", "\\boxed{6}"


def tool(correct: float, runs: float, **more: float) -> dict[str, dict[str, float]]:
    return {"tool": {"correct": correct, "runs": runs, **more}}


def reasoner(change: float, **team: float) -> dict[str, dict[str, float]]:
    return {TEAM: {"progress": change, **team}, "reasoner": {"correct": change}}


def unread(**team: float) -> dict[str, dict[str, float]]:
    return {TEAM: {"progress": 0.0, **team}, "reasoner": {"format": -0.2}}


@pytest.mark.parametrize(
    ("replies", "paid", "standing"),
    [
        pytest.param(
            [RIGHT, FIVE],
            [tool(1, 0.1), reasoner(1, success=1)],
            "solved",
            id="both are right at once",
        ),
        pytest.param(
            [WRONG, SIX],
            [tool(0, 0.1), reasoner(0)],
            "settled",
            id="both are wrong at once, and the episode ends",
        ),
        pytest.param(
            [WRONG, FIVE, RIGHT, FIVE],
            [tool(0, 0.1), reasoner(1), tool(1, 0), reasoner(0, success=1)],
            "solved",
            id="the tool comes round: what the reasoner got is not had again",
        ),
        pytest.param(
            [RIGHT, SIX, RIGHT, FIVE],
            [tool(1, 0.1), reasoner(0), tool(0, 0), reasoner(1, success=1)],
            "solved",
            id="the reasoner comes round: what the tool got is not had again",
        ),
        pytest.param(
            [WRONG, FIVE, RIGHT, SIX, WRONG, FIVE],
            [tool(0, 0.1), reasoner(1), tool(1, 0), reasoner(-1), tool(-1, 0), reasoner(1, success=1)],
            "out of turns",
            id="to and fro: the last answer alone counts, and is a success without agreement",
        ),
        pytest.param(
            [RIGHT, JUNK, FAILS, FIVE, JUNK, JUNK],
            [tool(1, 0.1), unread(), tool(-1, -0.1), reasoner(1), tool(0, 0, format=-0.2), unread(success=1)],
            "out of turns",
            id="an unreadable reply changes no answer and agrees with nothing",
        ),
        pytest.param(
            [RIGHT, JUNK, JUNK, FIVE, JUNK, SIX],
            [tool(1, 0.1), unread(), tool(-1, -0.1, format=-0.2), reasoner(1), tool(0, 0, format=-0.2), reasoner(-1)],
            "out of turns",
            id="a program of an earlier turn agrees with nobody",
        ),
        pytest.param(
            [block("print(10 / 2)"), "\\boxed{x = 5}"],
            [tool(1, 0.1), reasoner(1, success=1)],
            "solved",
            id="answers agree by what they mean, not by how they are written",
        ),
        pytest.param(
            [block("print('so', 5, sep='\\n\\n')"), FIVE],
            [tool(1, 0.1), reasoner(1, success=1)],
            "solved",
            id="the last line printed is the tool's answer",
        ),
        pytest.param(
            [block("print(r'So \\boxed{5}')"), FIVE],
            [tool(1, 0.1), reasoner(1, success=1)],
            "solved",
            id="a box in the last line printed is the tool's answer",
        ),
        pytest.param(
            [block("print('The answer is 5')"), FIVE, block("print(5); 1 / 0"), FIVE],
            [tool(0, 0.1), reasoner(1), tool(0, -0.1), reasoner(0)],
            "",
            id="words are no answer, and what a failed program printed is none",
        ),
    ],
)
def test_the_parts_of_every_step_are_those_worked_out_by_hand(
    replies: list[str], paid: list[dict[str, dict[str, float]]], standing: str
) -> None:
    env = posed(num_turns=3)
    for reply, expected in zip(replies, paid, strict=True):
        assert env.standing() == ""
        env.step(reply)
        assert parts(env) == {scope: pytest.approx(named) for scope, named in expected.items()}, reply
    assert env.standing() == standing
    changes = sum(each[TEAM]["progress"] for each in paid if TEAM in each)
    assert env.infos["tool_0"]["outcome"]["success"] is (changes == 1)


def test_a_roles_pay_is_alpha_times_the_teams_and_its_own() -> None:
    env = posed(alpha=0.5)
    env.step(RIGHT)
    assert env.rewards == pytest.approx({"tool_0": 1.1, "reasoner_0": 0.0})
    env.step(FIVE)
    assert env.rewards == pytest.approx({"tool_0": 0.5 * 2, "reasoner_0": 0.5 * 2 + 1})
    assert env.metadata["max_return"] == 2


REPLIES = st.lists(st.sampled_from([RIGHT, WRONG, FAILS, JUNK, FIVE, SIX, block("print(10 / 2)")]), max_size=8)


@settings(max_examples=200, deadline=None, database=None, derandomize=True)
@given(REPLIES)
def test_the_parts_add_up_to_what_the_last_answer_and_the_last_program_are_worth(replies: list[str]) -> None:
    env = posed(num_turns=4)
    total: dict[tuple[str, str], float] = {}
    for reply in replies:
        if env.standing():
            break
        env.step(reply)
        for scope, named in parts(env).items():
            for name, value in named.items():
                total[scope, name] = total.get((scope, name), 0.0) + value
    play = env.snapshot().play
    right = float(env.infos["tool_0"]["outcome"]["success"])
    assert total.get((TEAM, "progress"), 0.0) == total.get(("reasoner", "correct"), 0.0) == right
    assert total.get((TEAM, "success"), 0.0) == (right if env.standing() else 0.0)
    assert total.get(("tool", "correct"), 0.0) == play.computed.correct
    assert total.get(("tool", "runs"), 0.0) == pytest.approx(play.computed.runs)


# ---- Nothing leaks --------------------------------------------------------------------------------------------------


@settings(max_examples=200, deadline=None, database=None, derandomize=True)
@given(REPLIES)
def test_what_is_shown_and_who_acts_do_not_depend_on_the_golden_answer(replies: list[str]) -> None:
    other = SUM.__class__(source="by hand", id="sum", statement=SUM.statement, answer="6", level=2)
    courses = []
    for problem in (SUM, other):
        env = posed(problem, num_turns=3)
        course: list[Any] = []
        for reply in replies:
            if env.standing():
                break
            env.step(reply)
            texts = [env.observe(agent) for agent in env.possible_agents]
            course.append((texts, env.agent_selection, env.terminations, env.truncations))
        courses.append(course)
    assert courses[0] == courses[1]


# ---- The executor ---------------------------------------------------------------------------------------------------


def test_the_oracles_program_and_box_solve_the_problem_in_the_sandbox() -> None:
    env = posed(executor=ToolExecutor())
    assert env.oracle() == "```python\nprint('\\\\boxed{5}')\n```"
    env.step(env.oracle())
    assert env.oracle() == "\\boxed{5}"
    env.step(env.oracle())
    assert env.terminations == {"tool_0": True, "reasoner_0": True}
    assert env.infos["tool_0"]["outcome"] == {"success": True, "answered": True, "timeout": False}


def test_a_sandbox_or_a_grader_that_fails_is_an_error_and_no_reward_and_the_episode_stays(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def fails(*args: Any, **kwargs: Any) -> Any:
        raise SandboxFailed("twice")

    env = posed(executor=fails)
    start = env.snapshot()
    with pytest.raises(SandboxFailed):
        env.step(RIGHT)
    assert env.snapshot() == start
    env = posed()
    env.step("no program")
    start = env.snapshot()
    with monkeypatch.context() as broken:
        broken.setattr(graders.math, "grade", fails)
        with pytest.raises(SandboxFailed):
            env.step(FIVE)
    assert env.snapshot() == start
    env.step(FIVE)
    assert parts(env) == reasoner(1)


def test_the_workflow_alone_has_no_executor() -> None:
    with pytest.raises(ValueError, match=r"tool_reasoner got no executor; expected one that runs a model's Python"):
        ToolReasoner(Math())


def test_a_snapshot_goes_on_with_another_executor() -> None:
    env = posed()
    env.step(RIGHT)
    other = raw_env(executor=lambda program: ToolResult("7\n"))
    other.restore(pickle.loads(pickle.dumps(env.snapshot())))
    assert other.last() == env.last()
    assert other.state_hash() == env.state_hash()
    assert ToolReasoner(Math(), executor=PROGRAMS.__getitem__) == ToolReasoner(Math(), executor=print)  # type: ignore[arg-type]
