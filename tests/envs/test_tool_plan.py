"""Workflow `tool_plan`: programs are read, run by the caller's executor, shown to the planner, and paid."""

import pickle

import pytest

from pettingllms_envs.aec import TextEnv
from pettingllms_envs.core import ToolResult, Unreadable
from pettingllms_envs.environments.plan_path.grid import PlanPathState
from pettingllms_envs.environments.plan_path.rules import PlanPath
from pettingllms_envs.plan_path_v0 import raw_env
from pettingllms_envs.replies.fences import only_program
from pettingllms_envs.teams.tool_plan import ToolPlan
from pettingllms_envs.teams.tools import DefaultExecutor


PROGRAMS = {
    "print('Moves: R R R')": ToolResult("Moves: R R R\n"),
    "moves = 'DD'\nprint('Moves:', *moves)": ToolResult("Moves: D D\n"),
    "print('hello')": ToolResult("hello\n"),
    "1 / 0": ToolResult("", "ZeroDivisionError"),
    "print('x' * 5000)": ToolResult("x" * 5000),
    "print('Moves: D D R D R R')": ToolResult("Moves: D D R D R R"),
}


@pytest.fixture
def env(grid: PlanPathState) -> TextEnv:
    env = raw_env(size=4, workflow="tool_plan", num_turns=2, executor=PROGRAMS.__getitem__)
    env.reset(seed=0)
    env.restore(env.snapshot()._replace(play=env.workflow.start(grid)))
    return env


def block(program: str) -> str:
    return f"I compute.\n```python\n{program}\n```"


def test_the_planner_sees_the_program_its_output_and_where_it_leads(env: TextEnv) -> None:
    before = env.observe("tool_0")["text"]
    env.step(block("print('Moves: R R R')"))
    assert env.agent_selection == "planner_0"
    assert env.observe("planner_0")["text"] == (
        f"{before}\nThe tool's program:\n```python\nprint('Moves: R R R')\n```\nIt printed:\n```\nMoves: R R R\n```\n"
        "The tool proposes: R R R. It would end at row 0, column 3."
    )
    assert "The tool's program" not in env.observe("tool_0")["text"]


def test_the_tool_is_paid_for_where_its_output_leads_and_settled_when_the_planner_moves(env: TextEnv) -> None:
    env.step(block("print('Moves: R R R')"))  # 3 of 6 steps nearer, at 0.01 a step
    assert env.rewards == pytest.approx({"tool_0": 0.5 - 0.03, "planner_0": 0.0})
    env.step("Moves: R")  # 1 of 6: the tool's 0.5 - 0.03 is settled down to 1/6, and both share the team's 1/6
    assert env.rewards == pytest.approx({"tool_0": (1 / 6 - 0.47) + 1 / 6, "planner_0": 1 / 6 - 0.01})
    assert set(env.infos["tool_0"]["rewards"]) == {"progress", "settle"}


@pytest.mark.parametrize(
    ("reply", "words"),
    [
        ("Moves: R", "The tool's reply was unreadable: it has no blocks of Python, and one is expected."),
        (block("1 / 0"), "The tool's reply was unreadable: its program failed (ZeroDivisionError)."),
        (
            block("print('hello')"),
            "The tool's reply was unreadable: what its program printed is no move: its last line does not begin with"
            " 'Moves:'.",
        ),
    ],
)
def test_a_reply_without_a_readable_output_costs_the_tool_its_format(env: TextEnv, reply: str, words: str) -> None:
    env.step(reply)
    assert env.rewards == pytest.approx({"tool_0": -0.2, "planner_0": 0.0})
    assert env.observe("planner_0")["text"].splitlines()[-1] == words


def test_a_long_output_is_shown_without_its_middle(env: TextEnv) -> None:
    env.step(block("print('x' * 5000)"))
    text = env.observe("planner_0")["text"]
    assert f"{'x' * 1000}\n... 3000 characters left out ...\n{'x' * 1000}\n```" in text


@pytest.mark.parametrize(
    ("reply", "expected"),
    [
        ("```python\nprint(1)\n```", "print(1)"),
        ("So:\n  ```Python  \na\n\nb\n  ``` \nDone.", "a\n\nb"),
        ("```py\n```", ""),
        ("```\nprint(1)\n```", "it has no blocks of Python, and one is expected"),
        ("", "it has no blocks of Python, and one is expected"),
        ("```python\na\n```\n```python\nb\n```", "it has 2 blocks of Python, and one is expected"),
        ("```python\na", "its block of Python has no end"),
        ("<think>\n```python\na\n```\nOr ```python\nb\n</think>\n```python\nc\n```", "c"),
        ("<think>\n```python\na\n```\n</think>\nHm.", "it has no blocks of Python, and one is expected"),
        ("```python\n" + "a" * 20_001 + "\n```", "its program is longer than 20000 characters"),
    ],
)
def test_the_one_block_of_python_is_the_program(reply: str, expected: str) -> None:
    found = only_program(reply)
    assert (found.reason if isinstance(found, Unreadable) else found) == expected


def test_the_oracles_program_and_move_solve_the_grid(env: TextEnv) -> None:
    assert env.oracle() == "```python\nprint('Moves: D D R D R R')\n```"
    env.step(env.oracle())
    assert env.oracle() == "Moves: D D R D R R"
    env.step(env.oracle())
    assert env.terminations == {"tool_0": True, "planner_0": True}


def test_the_workflow_alone_has_no_executor() -> None:
    with pytest.raises(ValueError, match=r"tool_plan got no executor; expected one that runs a model's Python where"):
        ToolPlan(PlanPath())


def test_an_environment_that_is_given_no_executor_runs_programs_in_the_sandbox() -> None:
    workflow = raw_env(size=4, workflow="tool_plan").workflow
    assert isinstance(workflow, ToolPlan)
    assert workflow.executor == DefaultExecutor()


def test_a_snapshot_goes_on_with_another_executor(env: TextEnv) -> None:
    env.step(block("print('Moves: R R R')"))
    other = raw_env(size=4, workflow="tool_plan", num_turns=2, executor=lambda program: ToolResult("Moves: U"))
    other.restore(pickle.loads(pickle.dumps(env.snapshot())))
    assert other.last() == env.last()
    assert ToolPlan(PlanPath(), executor=PROGRAMS.__getitem__) == ToolPlan(PlanPath(), executor=print)  # type: ignore[arg-type]
