"""Workflow `tool_plan`: a program proposes a move, and a planner decides. Rewards as in `proposal`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pettingllms_envs.core import Executor, Role, Unreadable, best_reply
from pettingllms_envs.quoting import quote_inline
from pettingllms_envs.replies.fences import fence, only_program
from pettingllms_envs.teams.functions import Game, Questions, function_workflow
from pettingllms_envs.teams.proposal import proposals, ranges
from pettingllms_envs.teams.tools import check_executor, shown


TOOL = Role(
    "tool",
    "You are the tool. Reply with one block of Python, ```python ... ```, that works out good moves and prints them:"
    " the last thing it prints is the line asked for below. The planner sees program and output, and decides.",
)
PLANNER = Role(
    "planner",
    "You are the planner. You see the tool's program and what it printed, and decide. Your moves are played.",
)


def _checked(team: Any) -> Mapping[str, Any]:
    check_executor("tool_plan", team.executor, ", or take workflow='draft_plan'")
    return {}


@function_workflow(
    TOOL,
    PLANNER,
    name="tool_plan",
    ranges=ranges,
    cyclic=True,
    channel=None,
    bonuses=(),
    completed=_checked,
    turns_apart=True,
)
def ToolPlan(game: Game, executor: Executor | None = None) -> Questions:
    """In every turn a tool role writes a Python program that prints a move; a planner, who sees both, decides.

    As in the games of arXiv:2510.11062. The output must end as a reply of the game does. The program runs in the
    executor that the caller gives: of an environment, the sandbox's if not told. A reply without exactly one block, a
    program that fails, and an output that is no move are unreadable.
    """
    task = game.task

    def read(reply: str) -> tuple[Any, str]:
        program = only_program(reply)
        if isinstance(program, Unreadable):
            return program, ""
        assert executor is not None
        printed, error, _ = game.call(executor, program)
        words = f"The tool's program:\n{shown(program, 'python')}\nIt printed:\n{shown(printed)}\n"
        if error:
            return Unreadable(f"its program failed ({quote_inline(error)})"), words
        move = task.parse(printed)
        if isinstance(move, Unreadable):
            return Unreadable(f"what its program printed is no move: {move.reason}"), words
        return move, words

    yield from proposals(game, read, lambda: fence(f"print({best_reply(task, game.state)!r})", "python"))
