"""Workflow `coder_tester`: in every turn a coder writes the program and a tester writes test cases for it.

Roles: `coder` and `tester`, as in the code tasks of arXiv:2510.11062, in the order that `order` says. Who acts second
sees what the first one just wrote. At the end of a turn the program runs on the tester's cases; what came of it is
shown to both in the next turn. The episode ends when the program passes all cases of this turn (they agree, right or
wrong), or when the turns are used up. Nobody is shown a golden test, or a verdict that comes from one.

Rewards:

* team, on the coder's step: `progress`, the change of the program's share of golden tests passed; on the last step of
  the episode `success`, 1 if the program passes them all. Over an episode they add up to 0 to 2.
* coder, on its own step: `tests`, the same change, -1 to 1; over an episode the pass rate, 0 to 1.
* tester, on its own step: the change, since its last cases, of `valid`, the share of its cases that a right program
  agrees with, and of `telling`, the share of the known wrong programs that a valid case fails; each -1 to 1, and over
  an episode 0 to 1. A case that is copied from the statement is not valid.
* each, on its own step: `format` = -0.2 for a reply that is unreadable. Program or cases then stay as they were.

Wrong are up to four programs that the data set says are wrong; where it names none, mutants of its golden solution
that fail a golden test; where there are none (LiveCodeBench), `telling` is 0 for everybody. No program of the episode
is among them, so that nobody is paid for a program that was broken on purpose.

Right is the data set's golden solution. Without one (LiveCodeBench) it is a golden test with the same input, or a
program of this episode that passed all golden tests; where there is neither, a case is not known to be valid and is
paid like one that is not: `outcome["num_judged"]` says of how many of the `num_cases` it was known. All parts are
changes of a potential, so nothing is to be had by playing on, and among siblings, which share what was before, the
part is the share itself.
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
    best_reply,
    check_choice,
    part_ranges,
    situation,
)
from pettingllms_envs.environments.coding.rules import Coding, CodingState
from pettingllms_envs.environments.coding.text import CASES_FORMAT, case_text, runs_text, write_cases
from pettingllms_envs.graders.cases import Case, read_cases
from pettingllms_envs.replies import fenced_blocks
from pettingllms_envs.teams.base import BaseWorkflow


CODER = Role(
    "coder",
    "You are the coder. You write the program. A tester writes test cases for it, and you see what came of them; a"
    " test case may be wrong. The work is done when the program passes the test cases of the turn.",
)
TESTER = Role(
    "tester",
    "You are the tester. A coder writes the program, you write test cases: inputs that the problem allows, none of"
    " them copied from it, with the outputs that a right program gives, such that wrong programs fail.",
)
BLOCKS = {"input": "input", "output": "output"}
ORDERS = (("coder", "tester"), ("tester", "coder"))


class CoderTesterState(NamedTuple):
    """Where an episode stands.

    Args:
        acted: Whether the first role has acted in this turn.
        cases: The tester's last readable cases.
        fresh: Whether they are of this turn.
        report: The words about the last turn.
        unread: The roles whose reply in this turn was unreadable, each with the reason.
        right: A program so far that passed all golden tests; empty if there was none.
    """

    task: CodingState
    turn: int = 1
    acted: bool = False
    cases: tuple[Case, ...] = ()
    fresh: bool = False
    report: str = ""
    unread: tuple[tuple[str, str], ...] = ()
    right: str = ""


@dataclass(frozen=True, slots=True)
class CoderTester(BaseWorkflow[CodingState, str]):
    """A coder and a tester work on a problem.

    Args:
        num_turns: Turn budget, at least 1; both roles act once in a turn.
        order: Who acts first in a turn and who second: `("coder", "tester")` or the other way round.
        max_cases: Test cases that the tester may write in a turn, 1 to 16.
    """

    task: Coding
    order: tuple[str, str] = ORDERS[0]
    max_cases: int = 4

    name: ClassVar[str] = "coder_tester"

    def __post_init__(self) -> None:
        BaseWorkflow.__post_init__(self)
        check_choice("order", self.order, ORDERS)
        check_choice("max_cases", self.max_cases, range(1, 17))

    @property
    def roles(self) -> tuple[Role, ...]:
        """The coder and the tester, in their order."""
        return (CODER, TESTER) if self.order == ORDERS[0] else (TESTER, CODER)

    def start(self, task_state: CodingState) -> CoderTesterState:
        """Turn 1, nothing written yet."""
        return CoderTesterState(task_state)

    def actor(self, state: CoderTesterState) -> str:
        """The first role until it has acted, then the second."""
        return self.order[state.acted]

    def system(self, role: str) -> str:
        """The rules, the role's job, how to write a program or test cases."""
        if role == CODER.name:
            return f"{self.task.rules()}\n{CODER.job}\n{self.task.reply_format()}"
        return f"{self.task.rules()}\n{TESTER.job}\n{CASES_FORMAT.format(most=self.max_cases)}"

    def observe(self, state: CoderTesterState, role: str) -> str:
        """Problem, program so far, what came of the last cases; for who acts second, cases of this turn as well."""
        cases = ""
        if state.acted and state.fresh:
            cases = "The tester's test cases of this turn:\n" + "\n".join(map(case_text, state.cases))
        return situation(self, state, state.report, _unread("The", state.unread), cases)

    def step(self, state: CoderTesterState, reply: str) -> Transition[CoderTesterState]:
        """Take the program or the cases; after the second role's, run one on the other and end the turn."""
        role = self.actor(state)
        after, parts = (self._code if role == CODER.name else self._test)(state, reply)
        return (after._replace(acted=True), parts, False, False) if not state.acted else self._end_turn(after, parts)

    def oracle(self, state: CoderTesterState) -> str:
        """The golden solution; golden tests that tell the most wrong programs."""
        if self.actor(state) == CODER.name:
            return best_reply(self.task, state.task)
        return write_cases(self.task.best_cases(state.task, self.max_cases))

    def ranges(self) -> Mapping[str, tuple[float, float]]:
        """Progress, success, format; the coder's tests; the tester's valid and telling."""
        change = (-1.0, 1.0)
        return {**part_ranges(self.task), "tests": change, "valid": change, "telling": change}

    def _code(self, state: CoderTesterState, reply: str) -> tuple[CoderTesterState, dict[str, dict[str, float]]]:
        program = self.task.parse(reply)
        if isinstance(program, Unreadable):
            return _unreadable(state, CODER.name, program)
        after = self.task.apply(state.task, program)
        change = self.task.value(after) - self.task.value(state.task)
        known = state._replace(task=after, right=program if self.task.solved(after) else state.right)
        return known, {TEAM: {"progress": change}, CODER.name: {"tests": change}}

    def _test(self, state: CoderTesterState, reply: str) -> tuple[CoderTesterState, dict[str, dict[str, float]]]:
        blocks = fenced_blocks(reply, BLOCKS)
        cases = blocks if isinstance(blocks, Unreadable) else read_cases(blocks, state.task.problem, self.max_cases)
        if isinstance(cases, Unreadable):
            return _unreadable(state, TESTER.name, cases)
        before = state.task.review
        judged = self.task.judge(state.task, cases, right=state.right)
        parts = {"valid": judged.review.valid - before.valid, "telling": judged.review.telling - before.telling}
        return state._replace(task=judged, cases=cases, fresh=True), {TESTER.name: parts}

    def _end_turn(self, state: CoderTesterState, parts: dict[str, dict[str, float]]) -> Transition[CoderTesterState]:
        report, agree = "", False
        if state.task.program and state.cases:
            runs = self.task.run(state.task, state.cases)
            agree = state.fresh and all(run.passed for run in runs)
            report = f"Last turn's program was run on the tester's test cases.\n{runs_text(state.cases, runs, 'Case')}"
        over = agree or state.turn == self.num_turns
        if over and self.task.solved(state.task):
            parts.setdefault(TEAM, {})["success"] = 1.0
        words = "\n".join(filter(None, (_unread("Last turn the", state.unread), report)))
        after = state._replace(turn=state.turn + (not over), acted=False, fresh=False, report=words, unread=())
        return after, parts, agree, over and not agree


def _unreadable(
    state: CoderTesterState, role: str, why: Unreadable
) -> tuple[CoderTesterState, dict[str, dict[str, float]]]:
    return state._replace(unread=(*state.unread, (role, why.reason))), {role: {"format": UNREADABLE_PENALTY}}


def _unread(when: str, unread: tuple[tuple[str, str], ...]) -> str:
    return "\n".join(f"{when} {role}'s reply was unreadable: {reason}." for role, reason in unread)
