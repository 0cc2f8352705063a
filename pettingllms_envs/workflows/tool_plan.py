"""Workflow `tool_plan`: in every turn a tool role writes a Python program that prints a move; a planner decides.

Roles: `tool`, then `planner`, as in the games of arXiv:2510.11062. The tool sees the task's state and what came of
the last turn, and replies with one block of Python, whose output must end as a reply of the game does. The planner
sees the same, the program, what it printed, and where that move would lead. Only the planner's move is played.

The program runs in the executor that the caller gives: of an environment, the sandbox's if not told. A reply without
exactly one block, a program that fails, and an output that is no move are unreadable. Rewards: see
`pettingllms_envs.workflows.proposal`; the tool is the proposer.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

from pettingllms_envs.core import Move, PythonExecutor, Role, State, Unreadable
from pettingllms_envs.replies import END_OF_THINKING
from pettingllms_envs.workflows.proposal import ProposalState, ProposalWorkflow


TOOL = Role(
    "tool",
    "You are the tool. Reply with one block of Python, ```python ... ```, that works out good moves and prints them:"
    " the last thing it prints is the line asked for below. The planner sees program and output, and decides.",
)
PLANNER = Role(
    "planner",
    "You are the planner. You see the tool's program and what it printed, and decide. Your moves are played.",
)
MAX_PROGRAM = 20_000
MAX_SHOWN = 2_000

_FENCE = "```"


@dataclass(frozen=True, slots=True)
class ToolPlan(ProposalWorkflow[State, Move]):
    """A tool role and a planner play the task together.

    Args:
        task: The task.
        num_turns: Turn budget, at least 1; both roles act once in a turn.
        executor: Runs the tool's programs, a `pettingllms_envs.core.PythonExecutor`: `sandbox.ToolExecutor()`.

    Raises:
        ValueError: There is no executor, or `num_turns` is not a whole number of at least 1.
    """

    # Not a part of the game: a snapshot may go on in a process with another executor.
    executor: PythonExecutor | None = field(default=None, repr=False, compare=False)

    name: ClassVar[str] = "tool_plan"
    roles: ClassVar[tuple[Role, ...]] = (TOOL, PLANNER)

    def __post_init__(self) -> None:
        ProposalWorkflow.__post_init__(self)
        if not callable(self.executor):
            given = "no executor" if self.executor is None else f"the executor {self.executor!r}"
            raise ValueError(
                f"the workflow tool_plan got {given}; expected one that runs a model's Python where it can do no"
                " harm. Pass executor=pettingllms_envs.sandbox.ToolExecutor(), or take workflow='draft_plan'."
            )

    def read(self, reply: str) -> tuple[Move | Unreadable, str]:
        """Run the one block of Python in the reply and read what it printed as a move."""
        program = read_program(reply)
        if isinstance(program, Unreadable):
            return program, ""
        assert self.executor is not None
        stdout, error = self.executor(program)
        shown = f"The tool's program:\n{fenced(program, 'python')}\nIt printed:\n{fenced(stdout)}\n"
        if error:
            return Unreadable(f"its program failed ({error})"), shown
        move = self.task.parse(stdout)
        if isinstance(move, Unreadable):
            return Unreadable(f"what its program printed is no move: {move.reason}"), shown
        return move, shown

    def oracle(self, state: ProposalState[State]) -> str:
        """A program that prints the task's best move, or that move itself for the planner."""
        move = self.task.write(self.task.oracle(state.task))
        return f"{_FENCE}python\nprint({move!r})\n{_FENCE}" if state.proposal is None else move


def read_program(reply: str) -> str | Unreadable:
    """The text of the one block between a line "```python" (or "```py") and a line "```"; linear in the length.

    What stands before a line `</think>` is not looked at; see `pettingllms_envs.replies.fenced_blocks`.
    """
    programs: list[str] = []
    lines: list[str] | None = None
    for line in reply.splitlines():
        mark = line.strip()
        if mark == END_OF_THINKING:
            programs, lines = [], None
        elif lines is None and mark.lower() in (f"{_FENCE}python", f"{_FENCE}py"):
            lines = []
        elif lines is not None and mark == _FENCE:
            programs.append("\n".join(lines))
            lines = None
        elif lines is not None:
            lines.append(line)
    if lines is not None:
        return Unreadable("its block of Python has no end")
    if len(programs) != 1:
        return Unreadable(f"it has {len(programs) or 'no'} blocks of Python, and one is expected")
    if len(programs[0]) > MAX_PROGRAM:
        return Unreadable(f"its program is longer than {MAX_PROGRAM} characters")
    return programs[0]


def fenced(text: str, language: str = "") -> str:
    """The text in a fence, its middle left out if it is long."""
    if len(text) > MAX_SHOWN:
        half = MAX_SHOWN // 2
        text = f"{text[:half]}\n... {len(text) - 2 * half} characters left out ...\n{text[-half:]}"
    return f"{_FENCE}{language}\n{text.rstrip()}\n{_FENCE}"
