"""Workflow `tool_plan`: in every turn a tool role writes a Python program that prints a move; a planner decides.

Roles: `tool`, then `planner`, as in the games of arXiv:2510.11062. The tool sees the task's state and what came of
the last turn, and replies with one block of Python, whose output must end as a reply of the game does. The planner
sees the same, the program, what it printed, and where that move would lead. Only the planner's move is played.

The program runs in the executor that the caller gives: of an environment, the sandbox's if not told. A reply without
exactly one block, a program that fails, and an output that is no move are unreadable. Rewards: see
`pettingllms_envs.teams.proposal`; the tool is the proposer.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

from pettingllms_envs.core import Executor, Move, Role, State, Unreadable, best_reply, call_tool
from pettingllms_envs.quoting import quote_inline
from pettingllms_envs.replies import fence, only_program
from pettingllms_envs.teams.proposal import ProposalState, ProposalWorkflow
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


@dataclass(frozen=True, slots=True)
class ToolPlan(ProposalWorkflow[State, Move]):
    """A tool role and a planner play the task together.

    Args:
        executor: Runs the tool's programs, a callable such as `pettingllms_envs.sandbox.ToolExecutor()`.

    Raises:
        ValueError: There is no executor, or `num_turns` is not a whole number of at least 1.
    """

    # Not a part of the game: a snapshot may go on in a process with another executor.
    executor: Executor | None = field(default=None, repr=False, compare=False)

    name: ClassVar[str] = "tool_plan"
    roles: ClassVar[tuple[Role, ...]] = (TOOL, PLANNER)

    def __post_init__(self) -> None:
        ProposalWorkflow.__post_init__(self)
        check_executor(self.name, self.executor, ", or take workflow='draft_plan'")

    def read(self, reply: str) -> tuple[Move | Unreadable, str]:
        """Run the one block of Python in the reply and read what it printed as a move."""
        program = only_program(reply)
        if isinstance(program, Unreadable):
            return program, ""
        assert self.executor is not None
        stdout, error, _ = call_tool(self.executor, program)
        words = f"The tool's program:\n{shown(program, 'python')}\nIt printed:\n{shown(stdout)}\n"
        if error:
            return Unreadable(f"its program failed ({quote_inline(error)})"), words
        move = self.task.parse(stdout)
        if isinstance(move, Unreadable):
            return Unreadable(f"what its program printed is no move: {move.reason}"), words
        return move, words

    def oracle(self, state: ProposalState[State]) -> str:
        """A program that prints the task's best move, or that move itself for the planner."""
        move = best_reply(self.task, state.task)
        return fence(f"print({move!r})", "python") if state.proposal is None else move
