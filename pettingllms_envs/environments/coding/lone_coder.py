"""Workflows of a coder alone, the baselines that `coder_tester` is compared with: `single` and `self_refine`.

* `single`: one program. The episode ends with the first readable one.
* `single` with `tools=True`: what the team has, for one agent. With its program the coder may write test cases of its
  own; they are run, and what came of them is shown in the next turn. The episode ends when the program passes them,
  when it writes none, or when the turns are used up. A turn of a team is one reply of each role: twice the
  `num_turns` gives one agent as many replies.
* `self_refine`: the coder is shown what came of running its program on the public tests, and may write another one,
  until it passes them all or the turns are used up. Where a problem has no public tests it looks at its own program
  again, and ends by writing the same one twice.

Role: `coder`. Rewards: team `progress`, the change of the program's share of golden tests passed, and on the last step
`success`, 1 if it passes them all; over an episode 0 to 2. To the coder `tests`, the same change, -1 to 1, or
`format`, -0.2 for an unreadable reply.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

from pettingllms_envs.core import (
    TEAM,
    UNREADABLE_PENALTY,
    Role,
    Transition,
    Unreadable,
    check_choice,
    part_ranges,
    situation,
)
from pettingllms_envs.environments.coding.coder_tester import BLOCKS
from pettingllms_envs.environments.coding.rules import Coding, CodingState
from pettingllms_envs.environments.coding.text import CASES_FORMAT, runs_text, write_cases
from pettingllms_envs.graders.cases import Case, as_case, read_cases
from pettingllms_envs.replies import fenced_blocks
from pettingllms_envs.teams.base import BaseWorkflow


ONCE = Role("coder", "You are the coder. You write the program. It is handed in as you write it.")
WITH_TOOLS = Role(
    "coder",
    "You are the coder. You write the program, and may write test cases for it: inputs that the problem allows, with"
    " the outputs that a right program gives. They are run, and you see what came of them and write the program anew."
    " The program is handed in when it passes your test cases, or when you write none.",
)
REFINING = Role(
    "coder",
    "You are the coder. You write the program. It is run on the problem's public tests, and you see what came of them"
    " and write it anew. It is handed in when it passes them; without public tests, when you write the same one"
    " twice.",
)


class LoneState(NamedTuple):
    """The task's state with the program, the turn from 1, and the words about the last reply and the last runs."""

    task: CodingState
    turn: int = 1
    unread: str = ""
    ran: str = ""


@dataclass(frozen=True, slots=True)
class LoneCoder(BaseWorkflow[CodingState, str]):
    """What the workflows of a coder alone share; how a program is tried out is left to the subclass."""

    task: Coding

    @property
    def roles(self) -> tuple[Role, ...]:
        """The coder."""
        raise NotImplementedError

    def cases(self, problem: CodingState, reply: str) -> tuple[Case, ...] | Unreadable:
        """What the program in the reply is run on."""
        raise NotImplementedError

    def handed_in(self, before: CodingState, after: CodingState) -> bool:
        """Whether a program that was run on nothing is the coder's last word."""
        return True

    def start(self, task_state: CodingState) -> LoneState:
        """Turn 1, nothing written yet."""
        return LoneState(task_state)

    def actor(self, state: LoneState) -> str:
        """Always the coder."""
        return "coder"

    def system(self, role: str) -> str:
        """The rules, the job, how to write a program."""
        return f"{self.task.rules()}\n{self.roles[0].job}\n{self.task.reply_format()}"

    def observe(self, state: LoneState, role: str) -> str:
        """The problem, the program so far, and what came of it."""
        return situation(self, state, state.unread, state.ran)

    def step(self, state: LoneState, reply: str) -> Transition[LoneState]:
        """Grade the program, run it on its cases, and go on unless it passes them or the turns are used up."""
        program, cases = self.task.parse(reply), self.cases(state.task, reply)
        task_state, done, unread, ran = state.task, False, "", state.ran
        parts: dict[str, dict[str, float]] = {}
        if isinstance(program, Unreadable) or isinstance(cases, Unreadable):
            why = program if isinstance(program, Unreadable) else cases
            assert isinstance(why, Unreadable)
            parts["coder"] = {"format": UNREADABLE_PENALTY}
            unread = f"Your last reply was unreadable: {why.reason}. Nothing came of it."
        else:
            task_state = self.task.apply(state.task, program)
            change = self.task.value(task_state) - self.task.value(state.task)
            parts = {TEAM: {"progress": change}, "coder": {"tests": change}}
            runs = self.task.run(task_state, cases) if cases else ()
            done = all(run.passed for run in runs) if runs else self.handed_in(state.task, task_state)
            ran = f"Your program was run.\n{runs_text(cases, runs, 'Case')}" if runs else ""
        over = done or state.turn == self.num_turns
        if over and self.task.solved(task_state):
            parts.setdefault(TEAM, {})["success"] = 1.0
        return LoneState(task_state, state.turn + (not over), unread, ran), parts, done, over and not done

    def ranges(self) -> Mapping[str, tuple[float, float]]:
        """Progress, success, format and the coder's tests."""
        return {**part_ranges(self.task), "tests": (-1.0, 1.0)}


@dataclass(frozen=True, slots=True)
class SingleCoder(LoneCoder):
    """One program, or with tools several, tried on the coder's own test cases; see the module.

    Args:
        tools: Whether the coder may write test cases, which are run.
        max_cases: Test cases that it may then write in a turn, 1 to 16.
    """

    tools: bool = False
    max_cases: int = 4

    name: ClassVar[str] = "single"

    def __post_init__(self) -> None:
        LoneCoder.__post_init__(self)
        check_choice("tools", self.tools, (True, False))
        check_choice("max_cases", self.max_cases, range(1, 17))

    @property
    def roles(self) -> tuple[Role, ...]:
        """The coder, who hands in a program at once, or tries it out."""
        return (WITH_TOOLS if self.tools else ONCE,)

    def system(self, role: str) -> str:
        """The rules, the job, how to write a program and, with tools, test cases."""
        text = LoneCoder.system(self, role)
        return f"{text}\n{CASES_FORMAT.format(most=self.max_cases)}" if self.tools else text

    def cases(self, problem: CodingState, reply: str) -> tuple[Case, ...] | Unreadable:
        """With tools, the coder's own, which it may leave out."""
        blocks = fenced_blocks(reply, BLOCKS) if self.tools else []
        if isinstance(blocks, Unreadable) or not blocks:
            return blocks if isinstance(blocks, Unreadable) else ()
        return read_cases(blocks, problem.problem, self.max_cases)

    def oracle(self, state: LoneState) -> str:
        """The golden solution, with tools and golden tests."""
        program = LoneCoder.oracle(self, state)
        return f"{program}\n{write_cases(self.task.best_cases(state.task, self.max_cases))}" if self.tools else program


@dataclass(frozen=True, slots=True)
class SelfRefine(LoneCoder):
    """The coder refines its program by what came of the public tests; see the module."""

    name: ClassVar[str] = "self_refine"
    roles: ClassVar[tuple[Role, ...]] = (REFINING,)

    def cases(self, problem: CodingState, reply: str) -> tuple[Case, ...] | Unreadable:
        """The public tests."""
        found = problem.problem
        return tuple(as_case(test) for test in found.tests[: found.num_public])

    def handed_in(self, before: CodingState, after: CodingState) -> bool:
        """Without public tests: when the program is the one before."""
        return before.program == after.program
