"""Workflows whose members each answer a problem once in a turn: `ensemble`, `debate`, `self_verification`.

A member reads what it is shown of others' replies, at most `capacity` characters of each, and their answers. An
episode ends after a turn in which all have the same answer (with `until_agreed`), or with the last turn. Nobody is
told whether an answer is right.

Rewards, every one of them the change of something, so that none can be had twice:

* member, on its own step: `correct` in [-1, 1], the change of "its answer is right" (0 or 1) since its last reply; or
  `format`, -0.2, for a reply without a box, after which its answer stays as it was.
* team, on the step of the last member: `progress` in [-1, 1], the change of "the team's answer is right"; and at the
  end of the episode `success`, 1 if it is right.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

from pettingllms_envs.core import UNREADABLE_PENALTY, Role, Unreadable
from pettingllms_envs.quoting import quote_inline
from pettingllms_envs.state_digest import Reported
from pettingllms_envs.teams.channels import Sent
from pettingllms_envs.teams.functions import Ask, Game, Questions, function_workflow


class Answered(NamedTuple):
    """A member's last reply: what others can read of it, its answer if it ever gave one, and what that is worth."""

    sent: Sent
    answer: str | None = None
    value: float = 0.0


Replies = Sequence[Answered]


def rounds(
    game: Game,
    heard: Callable[[str, Replies, Replies], Replies],
    choose: Callable[[Replies], str | None],
    *,
    ends: bool,
    confirms: bool = False,
) -> Questions:
    """Ask every member in every turn, and make of the answers the team's.

    Args:
        heard: What a member reads, of the last turn's replies and of those of this turn so far.
        choose: The team's answer after a turn; None if there is none.
        ends: Whether an agreement of all ends the episode.
        confirms: Whether it must be also the answers of the turn before.
    """
    task, (kept, _, reasons) = game.task, game.kept or ((), (), ())
    last, unread = tuple(Answered(Sent(*sent), *worth) for sent, *worth in kept), dict(reasons)
    for _ in game.turns():
        replies = tuple[Answered, ...]()
        for member in game.members:
            shown = partial(_shown, game, unread.get(member), heard(member, last, replies))
            reply = yield Ask(member, shown, keeps=(last, replies, unread))
            answer, before = task.parse(reply), last[len(replies)] if last else Answered(Sent(member, ""))
            now = before._replace(sent=game.send(member, reply))
            unread.pop(member, None)
            if isinstance(answer, Unreadable):
                unread[member] = answer.reason
                game.pay(member, "format", UNREADABLE_PENALTY)
            else:
                now = Answered(now.sent, answer, task.value(task.apply(game.state, answer)))
                game.pay(member, "correct", now.value - before.value)
            replies = (*replies, now)
        chosen = choose(replies)
        game.advance(game.state if chosen is None else task.apply(game.state, chosen))
        compared = (*last, *replies) if confirms else replies
        agreed = ends and bool(last or not confirms) and _agree(game, compared)
        if game.closes(agreed):
            return agreed
        last = replies


def _agree(game: Game, replies: Replies) -> bool:
    first, *others = (each.answer for each in replies)
    return first is not None and all(
        other is not None and game.task.agree(game.state, first, other) for other in others
    )


def _shown(game: Game, unread: str | None, replies: Replies) -> str:
    notes = [] if unread is None else [f"Your last reply was unreadable: {unread}."]
    for sent, answer, _ in replies:
        written = "It gave no answer." if answer is None else f"Its answer: {quote_inline(game.task.write(answer))}."
        notes += [sent.shown, written]
    return game.situation(*notes)


AGGREGATOR = Role(
    "aggregator",
    "You are the aggregator. You read the solutions of several solvers, any of which may be wrong, and decide. Your"
    " answer is the team's.",
)
SOLVERS_JOB = "You are a solver. Others solve the same problem; an aggregator reads at most {} characters of each."
DEBATERS_JOB = (
    "You are a debater. All debaters solve the same problem, read at most {} characters of each other's solutions, and"
    " answer again. Correct yourself where another is right, and keep your answer where you are. The answer of most"
    " debaters is the team's."
)
SOLVER = Role(
    "solver",
    "You are the solver. In the first turn solve the problem. In each later turn you read your last solution: verify"
    " it step by step, and give the corrected answer, or the same one if it is right.",
)
FLAG, SEVERAL = (True, False), 16
COMMON: dict[str, Any] = {
    "ranges": {"correct": (-1.0, 1.0)},
    "cyclic": True,
    "reported": Reported(),
    "bonuses": (),
    "turns_apart": True,
    "meanings": {
        "capacity": "Most characters of a reply that others read; its answer is shown besides.",
        "until_agreed": "Whether the episode ends early, after a turn in which all have the same answer.",
        "num_solvers": f"How many solvers there are, 1 to {SEVERAL}.",
        "num_debaters": f"How many debaters there are, 2 to {SEVERAL}.",
    },
}


@function_workflow(
    lambda team: (Role("solver", SOLVERS_JOB.format(team.capacity), count=team.num_solvers), AGGREGATOR),
    name="ensemble",
    num_turns=1,
    legal={"until_agreed": FLAG, "num_solvers": range(1, SEVERAL + 1)},
    **COMMON,
)
def Ensemble(game: Game, capacity: int = 2000, until_agreed: bool = True, num_solvers: int = 3) -> Questions:
    """Several solvers answer on their own, and an aggregator, who reads all of them, decides.

    As the aggregation of the math tasks in the code of arXiv:2510.11062, and a layer of Mixture-of-Agents
    (arXiv:2406.04692). The solvers of one policy are samples of it. With more than one turn, they read all replies of
    the turn before; with `role_tools={"solver": ["python"]}` they run programs before they answer. A solver is paid
    for its own answer and not for being followed, so an aggregator that ignores it does not keep it from learning.
    """

    def heard(member: str, last: Replies, replies: Replies) -> Replies:
        return replies if member == AGGREGATOR.name else last

    return (yield from rounds(game, heard, lambda replies: replies[-1].answer, ends=until_agreed))


@function_workflow(
    lambda team: (Role("debater", DEBATERS_JOB.format(team.capacity), count=team.num_debaters),),
    name="debate",
    num_turns=3,
    legal={"until_agreed": FLAG, "num_debaters": range(2, SEVERAL + 1)},
    **COMMON,
)
def Debate(game: Game, capacity: int = 2000, until_agreed: bool = True, num_debaters: int = 2) -> Questions:
    """Debaters answer at once, read each other's last answers, and answer again; the first majority counts.

    As in arXiv:2305.14325 and MAPoRL (arXiv:2502.18439), which trains it on GSM8K, and also pays a debater for what
    its reply brings others to in later turns. Here the returns have that:
    `credit={"at_grpo": {"value": "return_to_go"}}`.
    """

    def majority(replies: Replies) -> str | None:
        answers = [each.answer for each in replies if each.answer is not None]
        votes = [sum(game.task.agree(game.state, one, other) for other in answers) for one in answers]
        return answers[votes.index(max(votes))] if answers else None

    return (yield from rounds(game, lambda member, last, replies: last, majority, ends=until_agreed))


@function_workflow(SOLVER, name="self_verification", num_turns=3, legal={"until_agreed": FLAG}, **COMMON)
def SelfVerification(game: Game, capacity: int = 2000, until_agreed: bool = True) -> Questions:
    """One solver answers, then verifies its own solution and corrects it, or confirms it, which ends the episode.

    As the single agent of several turns in the code of arXiv:2510.11062: the counterpart for one agent of `debate`. A
    correction pays, a right answer that is given up costs as much, and one that is confirmed changes nothing.
    """

    def answer(replies: Replies) -> str | None:
        return replies[-1].answer

    return (yield from rounds(game, lambda member, last, replies: last, answer, ends=until_agreed, confirms=True))
