"""Workflow `single` of tasks with an answer: one reasoner, whose first box is the answer. The baseline of a team.

Roles: `reasoner`. A reply with a box ends the episode; one without is unreadable, and the next turn is another try.

`tools=True` gives it what a team's tool role has: instead of an answer it may reply with one block of Python, which is
run; the next turn shows the program and what it printed. A box after the last block counts as the answer, and the
program is not run then. A team's turn is two replies, so the fair baseline of a team with 4 turns is `tools=True` with
8, and the same number of tokens a reply.

Rewards: team `progress`, 1 if the answer is right, and `success`, 1 if it is; to the reasoner `format`, -0.2, for a
reply with neither a box nor, with tools, exactly one block of Python.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from pettingllms_envs.core import UNREADABLE_PENALTY, Executor, Role, Unreadable
from pettingllms_envs.replies.fences import PYTHON, only_program, read_blocks
from pettingllms_envs.teams.functions import Ask, Game, Questions, function_workflow
from pettingllms_envs.teams.tools import check_executor, importable, packages, ran, shown


REASONER = Role("reasoner", "You are the reasoner. Your first answer ends the episode.")
WITH_TOOLS = (
    "Instead of an answer you may reply with one block of Python, ```python ... ```. It is run, and in the next turn"
    " you see the program and what it printed, and none of your other words."
)


def _checked(team: Any) -> Mapping[str, Any]:
    if team.tools:
        check_executor("single", team.executor)
    return {"imports": packages(team.imports)}


def _reasoner(team: Any) -> tuple[Role, ...]:
    return (
        replace(REASONER, job=f"{REASONER.job} {WITH_TOOLS} {importable(team.imports)}") if team.tools else REASONER,
    )


@function_workflow(_reasoner, name="single", cyclic=True, completed=_checked, channel=None, turns_apart=True)
def SingleReasoner(
    game: Game, tools: bool = False, imports: tuple[str, ...] = (), executor: Executor | None = None
) -> Questions:
    """One role answers.

    Args:
        tools: Whether it may have programs run before it answers.
        imports: Packages that programs may import besides the standard library; see `ToolReasoner`.
        executor: Runs the programs, a callable such as `pettingllms_envs.sandbox.ToolExecutor()`; not used without
            `tools`.
    """
    task = game.task
    for _ in game.turns():
        reply = yield Ask(REASONER.name, game.situation(), keeps=())
        # A box that a program prints is no answer yet.
        answer = task.parse(read_blocks(reply, PYTHON).rest if tools else reply)
        if not isinstance(answer, Unreadable):
            game.advance(task.apply(game.state, answer))
            return game.closes(True)
        program = only_program(reply) if tools else answer
        if isinstance(program, Unreadable):
            also = f", and {program.reason}" if tools else ""
            game.feedback = f"Your last reply was unreadable: {answer.reason}{also}."
            game.pay(REASONER.name, "format", UNREADABLE_PENALTY)
        else:
            assert executor is not None
            printed, error, _ = game.call(executor, program)
            game.feedback = f"Last turn you had this program run:\n{shown(program, 'python')}\n{ran(printed, error)}"
    return False
