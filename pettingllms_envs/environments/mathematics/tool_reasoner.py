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
from dataclasses import replace
from typing import Any, NamedTuple

from pettingllms_envs.core import UNREADABLE_PENALTY, Executor, Role, Unreadable, best_reply
from pettingllms_envs.quoting import quote_inline
from pettingllms_envs.replies.fences import fence, only_program
from pettingllms_envs.teams.functions import Ask, Game, Questions, function_workflow
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
TURNS = "Each turn the tool runs a program, then the reasoner answers, until both have the same answer."


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


def _checked(team: Any) -> Mapping[str, Any]:
    check_executor("tool_reasoner", team.executor)
    return {"imports": packages(team.imports)}


@function_workflow(
    lambda team: (
        replace(TOOL, job=f"{TURNS}\n{TOOL.job} {importable(team.imports)}", reply_format=""),
        replace(REASONER, job=f"{TURNS}\n{REASONER.job}"),
    ),
    name="tool_reasoner",
    ranges={"correct": (-1.0, 1.0), "runs": (-RUNS, RUNS)},
    cyclic=True,
    completed=_checked,
    channel=None,
    bonuses=(),
)
def ToolReasoner(game: Game, imports: tuple[str, ...] = (), executor: Executor | None = None) -> Questions:
    """A tool and a reasoner answer together.

    Args:
        imports: Packages that programs may import besides the standard library, such as `("sympy",)`: the tool is
            told, and the sandbox has them. An executor that you give yourself must have them, too.
        executor: Runs the tool's programs, a callable such as `pettingllms_envs.sandbox.ToolExecutor()`.
    """
    task, computed, tool, reasoner = game.task, Computed(), TOOL.name, REASONER.name
    assert executor is not None

    def program_of_best() -> str:
        return fence(f"print({best_reply(task, game.state)!r})", "python")

    for _ in game.turns():
        before = computed
        kept = computed.correct, computed.runs
        program = only_program((yield Ask(tool, game.situation(), program_of_best, kept)))
        if isinstance(program, Unreadable):
            computed = Computed(f"The tool's reply was unreadable: {program.reason}. Nothing was run.")
        else:
            computed = _computed(game, executor, program)
        game.pay(tool, "correct", computed.correct - before.correct)
        game.pay(tool, "runs", computed.runs - before.runs)
        if isinstance(program, Unreadable):
            game.pay(tool, "format", UNREADABLE_PENALTY)

        reply = yield Ask(reasoner, game.situation(f"This turn:\n{computed.words}"), keeps=computed)
        answer, agreed, change = task.parse(reply), False, 0.0
        if isinstance(answer, Unreadable):
            game.pay(reasoner, "format", UNREADABLE_PENALTY)
            words = f"The reasoner's reply was unreadable: {answer.reason}. Its answer stays as it was."
        else:
            after = task.apply(game.state, answer)
            change = task.value(after) - task.value(game.state)
            game.pay(reasoner, "correct", change)
            agreed = computed.answer is not None and task.agree(game.state, answer, computed.answer)
            game.state, words = after, f"The reasoner answered {quote_inline(task.write(answer))}."
        game.pay_team("progress", change)
        if game.closes(agreed):
            return agreed
        game.feedback = f"Last turn:\n{computed.words}\n{words}"


def _computed(game: Game, executor: Executor, program: str) -> Computed:
    printed, error, _ = game.call(executor, program)
    words = f"The tool's program:\n{shown(program, 'python')}\n{ran(printed, error)}"
    answer = Unreadable(error) if error else game.task.read_output(printed)
    if isinstance(answer, Unreadable):
        return Computed(words if error else f"{words}\nThat is no answer: {answer.reason}.")
    return Computed(words, answer, game.task.value(game.task.apply(game.state, answer)), RUNS)
