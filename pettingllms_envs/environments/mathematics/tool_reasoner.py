"""Workflow `tool_reasoner`: a tool role computes an answer with a program, a reasoner decides, until they agree.

Roles: `tool`, then `reasoner`, as in the math tasks of arXiv:2510.11062. In every turn the tool replies with one block
of Python, which is run; the last line that it prints is the tool's answer. The reasoner sees the program and what it
printed, and gives the team's answer in a box. The episode ends after a turn in which the two answers are the same, or
with the last turn. Nobody is told whether an answer is right. In the next turn both see the program of the last one,
what it printed, and the team's answer, which stands until the reasoner gives another.

Rewards, every one of them the change of something, so that none can be had twice:

* team, on the reasoner's step: `progress` in [-1, 1], the change of "the team's answer is right" (0 or 1); and at the
  end of the episode `success`, 1 if it is right. Together 2 if the last answer is right, else 0.
* reasoner, on its own step: `correct` in [-1, 1], the same change; or `format`, -0.2, for a reply without a box.
* tool, on its own step: `correct` in [-1, 1], the change of "what the program printed is right", and `runs` in
  [-0.1, 0.1], the change of 0.1 for a program that ended without an error and printed an answer. They add up to what
  the last program is worth, at most 1 and 0.1. `format`, -0.2, for a reply without exactly one block of Python, which
  is worth nothing besides.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import ClassVar, Generic, NamedTuple

from pettingllms_envs.core import (
    TEAM,
    UNREADABLE_PENALTY,
    Executor,
    Role,
    State,
    Transition,
    Unreadable,
    best_reply,
    call_tool,
    part_ranges,
    situation,
)
from pettingllms_envs.quoting import quote_inline
from pettingllms_envs.replies import fence, only_program
from pettingllms_envs.tasks.base import AnsweringTask
from pettingllms_envs.teams.base import BaseWorkflow
from pettingllms_envs.teams.tools import check_executor, importable, packages, ran, shown


TOOL = Role(
    "tool",
    "You are the tool. Reply with one block of Python, ```python ... ```, that works out the answer and prints it. The"
    " last line that it prints is your answer: print the bare answer there, without words.",
)
REASONER = Role(
    "reasoner",
    "You are the reasoner. You see the tool's program and what it printed, which may be wrong, and decide. Your answer"
    " is the team's.",
)
RUNS = 0.1


class Computed(NamedTuple):
    """What came of the tool's reply.

    Args:
        words: The program and what it printed, or why the reply was unreadable; for prompts.
        answer: What it printed as the answer; None if it failed, printed none, or there was no program.
        correct: What the answer is worth, the task's potential with it.
        runs: `RUNS` if there is an answer, else 0.
    """

    words: str = ""
    answer: str | None = None
    correct: float = 0.0
    runs: float = 0.0


class ReasonerState(NamedTuple, Generic[State]):
    """The task's state, the turn from 1, the words about the last turn, the tool's last reply, and who is to act.

    `computed` is of this turn if `decides`, that is if the reasoner is to act, else of the turn before.
    """

    task: State
    turn: int = 1
    feedback: str = ""
    computed: Computed = Computed()
    decides: bool = False


@dataclass(frozen=True, slots=True)
class ToolReasoner(BaseWorkflow[State, str]):
    """A tool and a reasoner answer together.

    Args:
        num_turns: Turn budget, at least 1; both roles act once in a turn.
        imports: Packages that programs may import besides the standard library, such as `("sympy",)`: the tool is
            told, and the sandbox has them. An executor that you give yourself must have them, too.
        executor: Runs the tool's programs, a callable such as `pettingllms_envs.sandbox.ToolExecutor()`.

    Raises:
        ValueError: There is no executor, `imports` are no names, or `num_turns` is not a whole number of at least 1.
    """

    task: AnsweringTask[State]
    imports: tuple[str, ...] = ()
    # Not a part of the game: a snapshot may go on in a process with another executor.
    executor: Executor | None = field(default=None, repr=False, compare=False)

    name: ClassVar[str] = "tool_reasoner"
    roles: ClassVar[tuple[Role, ...]] = (TOOL, REASONER)

    def __post_init__(self) -> None:
        BaseWorkflow.__post_init__(self)
        check_executor(self.name, self.executor)
        object.__setattr__(self, "imports", packages(self.imports))

    def start(self, task_state: State) -> ReasonerState[State]:
        """Turn 1 on this instance, the tool to act."""
        return ReasonerState(task_state)

    def actor(self, state: ReasonerState[State]) -> str:
        """The tool, then the reasoner."""
        return self.roles[state.decides].name

    def system(self, role: str) -> str:
        """The rules and how a turn goes, the role's job, how to reply."""
        turns = "Each turn the tool runs a program, then the reasoner answers, until both have the same answer."
        if role == TOOL.name:
            return f"{self.task.rules()}\n{turns}\n{TOOL.job} {importable(self.imports)}"
        return f"{self.task.rules()}\n{turns}\n{REASONER.job}\n{self.task.reply_format()}"

    def observe(self, state: ReasonerState[State], role: str) -> str:
        """The problem, the team's answer, what came of the last turn; for the reasoner also of this turn's program."""
        if role == TOOL.name or not state.decides:
            return situation(self, state, state.feedback)
        return situation(self, state, state.feedback, f"This turn:\n{state.computed.words}")

    def step(self, state: ReasonerState[State], reply: str) -> Transition[ReasonerState[State]]:
        """Run the tool's program, or take the reasoner's answer and end the turn."""
        return self._decide(state, reply) if state.decides else self._compute(state, reply)

    def oracle(self, state: ReasonerState[State]) -> str:
        """The task's best answer, for the tool a program that prints it."""
        answer = best_reply(self.task, state.task)
        return answer if state.decides else fence(f"print({answer!r})", "python")

    def ranges(self) -> Mapping[str, tuple[float, float]]:
        """Progress, success, format, correct and runs."""
        ranges = part_ranges(self.task)
        return {**ranges, "correct": ranges["progress"], "runs": (-RUNS, RUNS)}

    def _compute(self, state: ReasonerState[State], reply: str) -> Transition[ReasonerState[State]]:
        program = only_program(reply)
        if isinstance(program, Unreadable):
            computed = Computed(f"The tool's reply was unreadable: {program.reason}. Nothing was run.")
        else:
            computed = self._run(state.task, program)
        before = state.computed
        parts = {"correct": computed.correct - before.correct, "runs": computed.runs - before.runs}
        if isinstance(program, Unreadable):
            parts["format"] = UNREADABLE_PENALTY
        return state._replace(computed=computed, decides=True), {TOOL.name: parts}, False, False

    def _run(self, task_state: State, program: str) -> Computed:
        assert self.executor is not None
        printed, error, _ = call_tool(self.executor, program)
        words = f"The tool's program:\n{shown(program, 'python')}\n{ran(printed, error)}"
        answer = Unreadable(error) if error else self.task.read_output(printed)
        if isinstance(answer, Unreadable):
            return Computed(words if error else f"{words}\nThat is no answer: {answer.reason}.")
        return Computed(words, answer, self.task.value(self.task.apply(task_state, answer)), RUNS)

    def _decide(self, state: ReasonerState[State], reply: str) -> Transition[ReasonerState[State]]:
        task, computed = self.task, state.computed
        answer = task.parse(reply)
        agreed = False
        if isinstance(answer, Unreadable):
            after, change, local = state.task, 0.0, {"format": UNREADABLE_PENALTY}
            words = f"The reasoner's reply was unreadable: {answer.reason}. Its answer stays as it was."
        else:
            after = task.apply(state.task, answer)
            change = task.value(after) - task.value(state.task)
            local = {"correct": change}
            agreed = computed.answer is not None and task.agree(state.task, answer, computed.answer)
            words = f"The reasoner answered {quote_inline(task.write(answer))}."
        over = agreed or state.turn == self.num_turns
        team = {"progress": change, "success": 1.0} if over and task.solved(after) else {"progress": change}
        feedback = f"Last turn:\n{computed.words}\n{words}"
        play = ReasonerState(after, state.turn + (not over), feedback, computed)
        return play, {TEAM: team, REASONER.name: local}, agreed, over and not agreed
