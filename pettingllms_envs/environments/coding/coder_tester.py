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
from dataclasses import replace
from functools import partial

from pettingllms_envs.core import UNREADABLE_PENALTY, Role, Unreadable
from pettingllms_envs.environments.coding.text import CASES_FORMAT, case_text, runs_text, write_cases
from pettingllms_envs.graders.cases import CodeCase, read_cases
from pettingllms_envs.replies.fences import fenced_blocks
from pettingllms_envs.teams.functions import Ask, Game, Questions, function_workflow


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

CHANGE = (-1.0, 1.0)


@function_workflow(
    lambda team: tuple(
        CODER if role == CODER.name else replace(TESTER, reply_format=CASES_FORMAT.format(most=team.max_cases))
        for role in team.order
    ),
    name="coder_tester",
    ranges={"tests": CHANGE, "valid": CHANGE, "telling": CHANGE},
    cyclic=True,
    legal={"order": ORDERS, "max_cases": range(1, 17)},
    channel=None,
    bonuses=(),
)
def CoderTester(game: Game, order: tuple[str, str] = ORDERS[0], max_cases: int = 4) -> Questions:
    """A coder and a tester work on a problem.

    Args:
        order: Who acts first in a turn and who second: `("coder", "tester")` or the other way round.
        max_cases: Test cases that the tester may write in a turn, 1 to 16.
    """
    task, cases, right = game.task, tuple[CodeCase, ...](), ""

    def best_cases() -> str:
        return write_cases(task.best_cases(game.state, max_cases))

    for _ in game.turns():
        fresh, unread = False, dict[str, str]()
        for role in order:
            now = "\n".join(["The tester's test cases of this turn:", *map(case_text, cases)]) if fresh else ""
            shown = game.situation(_unread("The", unread), now)
            reply = yield Ask(role, shown, None if role == CODER.name else best_cases, (cases, fresh, unread, right))
            if role == CODER.name:
                read = task.parse(reply)
                if not isinstance(read, Unreadable):
                    game.pay(role, "tests", game.advance(game.once(task.apply, game.state, read)))
                    right = read if game.solved else right
            else:
                blocks, earlier = fenced_blocks(reply, BLOCKS), game.state.review
                read = blocks if isinstance(blocks, Unreadable) else read_cases(blocks, game.state.problem, max_cases)
                if not isinstance(read, Unreadable):
                    cases, fresh = read, True
                    game.state = game.once(partial(task.judge, right=right), game.state, cases)
                    game.pay(role, "valid", game.state.review.valid - earlier.valid)
                    game.pay(role, "telling", game.state.review.telling - earlier.telling)
            if isinstance(read, Unreadable):
                unread[role] = read.reason
                game.pay(role, "format", UNREADABLE_PENALTY)
        report, agree = "", False
        if game.state.program and cases:
            runs = game.once(task.run, game.state, cases)
            agree = fresh and all(run.passed for run in runs)
            report = f"Last turn's program was run on the tester's test cases.\n{runs_text(cases, runs, 'Case')}"
        if game.closes(agree):
            return agree
        game.feedback = "\n".join(filter(None, (_unread("Last turn the", unread), report)))


def _unread(when: str, unread: Mapping[str, str]) -> str:
    return "\n".join(f"{when} {role}'s reply was unreadable: {reason}." for role, reason in unread.items())
