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

from dataclasses import dataclass, field
from typing import ClassVar

from pettingllms_envs.core import TEAM, UNREADABLE_PENALTY, Executor, Role, State, Transition, Unreadable, call_tool
from pettingllms_envs.replies import PYTHON, only_program, read_blocks
from pettingllms_envs.tasks.base import AnsweringTask
from pettingllms_envs.teams.single import Single, SingleState
from pettingllms_envs.teams.tools import check_executor, importable, packages, ran, shown


REASONER = Role("reasoner", "You are the reasoner. Your first answer ends the episode.")
WITH_TOOLS = (
    "Instead of an answer you may reply with one block of Python, ```python ... ```. It is run, and in the next turn"
    " you see the program and what it printed, and none of your other words."
)


@dataclass(frozen=True, slots=True)
class SingleReasoner(Single[State, str]):
    """One role answers.

    Args:
        num_turns: Turn budget, at least 1; a reply each.
        tools: Whether it may have programs run before it answers.
        imports: Packages that programs may import besides the standard library; see `ToolReasoner`.
        executor: Runs the programs, a callable such as `pettingllms_envs.sandbox.ToolExecutor()`; not used without
            `tools`.

    Raises:
        ValueError: `tools` without an executor, `imports` are no names, or `num_turns` is not a whole number of at
            least 1.
    """

    task: AnsweringTask[State]
    tools: bool = False
    imports: tuple[str, ...] = ()
    # Not a part of the game: a snapshot may go on in a process with another executor.
    executor: Executor | None = field(default=None, repr=False, compare=False)

    roles: ClassVar[tuple[Role, ...]] = (REASONER,)

    def __post_init__(self) -> None:
        Single.__post_init__(self)
        if self.tools:
            check_executor(self.name, self.executor)
        object.__setattr__(self, "imports", packages(self.imports))

    def system(self, role: str) -> str:
        """The rules, the job, how to reply."""
        job = f"{REASONER.job} {WITH_TOOLS} {importable(self.imports)}" if self.tools else REASONER.job
        return f"{self.task.rules()}\n{job}\n{self.task.reply_format()}"

    def step(self, state: SingleState[State], reply: str) -> Transition[SingleState[State]]:
        """Take the answer, which ends the episode, or run the program."""
        task = self.task
        # A box that a program prints is no answer yet.
        answer = task.parse(read_blocks(reply, PYTHON).rest if self.tools else reply)
        if not isinstance(answer, Unreadable):
            after = task.apply(state.task, answer)
            team = {"progress": task.value(after) - task.value(state.task)}
            if task.solved(after):
                team["success"] = 1.0
            return state._replace(task=after), {TEAM: team}, True, False
        feedback, local = self._instead_of_an_answer(reply, answer)
        over = state.turn == self.num_turns
        return SingleState(state.task, state.turn + (not over), feedback), {REASONER.name: local}, False, over

    def _instead_of_an_answer(self, reply: str, why: Unreadable) -> tuple[str, dict[str, float]]:
        """The words for the next prompt, and the reasoner's part of the reward."""
        program = only_program(reply) if self.tools else why
        if isinstance(program, Unreadable):
            also = f", and {program.reason}" if self.tools else ""
            return f"Your last reply was unreadable: {why.reason}{also}.", {"format": UNREADABLE_PENALTY}
        assert self.executor is not None
        printed, error, _ = call_tool(self.executor, program)
        result = ran(printed, error)
        return f"Last turn you had this program run:\n{shown(program, 'python')}\n{result}", {}
