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

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from pettingllms_envs.core import UNREADABLE_PENALTY, Role, Unreadable, best_reply
from pettingllms_envs.environments.coding.coder_tester import BLOCKS
from pettingllms_envs.environments.coding.rules import CodingState
from pettingllms_envs.environments.coding.text import CASES_FORMAT, runs_text, write_cases
from pettingllms_envs.graders.cases import CodeCase, as_case, read_cases
from pettingllms_envs.replies.fences import fenced_blocks
from pettingllms_envs.teams.functions import Ask, Game, Questions, function_workflow


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

COMMON: dict[str, Any] = {
    "ranges": {"tests": (-1.0, 1.0)},
    "cyclic": True,
    "channel": None,
    "bonuses": (),
    "turns_apart": True,
}


def programs(
    game: Game,
    cases_in: Callable[[str], tuple[CodeCase, ...] | Unreadable],
    is_handed_in: Callable[[CodingState, CodingState], bool],
    oracle: Callable[[], str] | None = None,
) -> Questions:
    """The coder writes a program until it passes its cases, or the turns are used up.

    Args:
        cases_in: What the program in a reply is run on.
        is_handed_in: Whether a program that was run on nothing, after the one before, is the coder's last word.
        oracle: Makes the best reply; None for a right program.
    """
    task, ran = game.task, game.kept or ""
    for _ in game.turns():
        reply = yield Ask("coder", game.situation(ran), oracle, ran)
        program, cases, before, done = task.parse(reply), cases_in(reply), game.state, False
        game.feedback = ""
        why = program if isinstance(program, Unreadable) else cases
        if isinstance(program, Unreadable) or isinstance(cases, Unreadable):
            assert isinstance(why, Unreadable)
            game.pay("coder", "format", UNREADABLE_PENALTY)
            game.feedback = f"Your last reply was unreadable: {why.reason}. Nothing came of it."
        else:
            game.pay("coder", "tests", game.advance(game.once(task.apply, before, program)))
            runs = game.once(task.run, game.state, cases) if cases else ()
            done = all(run.passed for run in runs) if runs else is_handed_in(before, game.state)
            ran = f"Your program was run.\n{runs_text(cases, runs, 'Case')}" if runs else ""
        if game.closes(done):
            return done


def _single(team: Any) -> tuple[Role, ...]:
    if not team.tools:
        return (ONCE,)
    return (
        replace(WITH_TOOLS, reply_format=f"{team.task.reply_format()}\n{CASES_FORMAT.format(most=team.max_cases)}"),
    )


@function_workflow(_single, name="single", legal={"tools": (True, False), "max_cases": range(1, 17)}, **COMMON)
def SingleCoder(game: Game, tools: bool = False, max_cases: int = 4) -> Questions:
    """One program, or with tools several, tried on the coder's own test cases; see the module.

    Args:
        tools: Whether the coder may write test cases, which are run.
        max_cases: Test cases that it may then write in a turn, 1 to 16.
    """

    def own(reply: str) -> tuple[CodeCase, ...] | Unreadable:
        blocks = fenced_blocks(reply, BLOCKS) if tools else []
        if isinstance(blocks, Unreadable) or not blocks:
            return blocks if isinstance(blocks, Unreadable) else ()
        return read_cases(blocks, game.state.problem, max_cases)

    def oracle() -> str:
        program = best_reply(game.task, game.state)
        return f"{program}\n{write_cases(game.task.best_cases(game.state, max_cases))}"

    return (yield from programs(game, own, lambda before, after: True, oracle if tools else None))


@function_workflow(REFINING, name="self_refine", **COMMON)
def SelfRefine(game: Game) -> Questions:
    """The coder refines its program by what came of the public tests; see the module."""
    problem = game.state.problem
    public = tuple(as_case(test) for test in problem.tests[: problem.num_public])
    return (yield from programs(game, lambda reply: public, lambda before, after: before.program == after.program))
