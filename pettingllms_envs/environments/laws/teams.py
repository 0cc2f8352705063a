"""Workflows of discovery: who chooses the experiments, and who names the law.

* `lab`: in each turn the `experimenter` makes an experiment, then the `theorist` names a law, or says something to the
  experimenter. Both see all readings. It ends with a law, right or wrong, or after the last experiment of the budget.
* `single`: one `scientist`, who does both, a move a turn; after the last experiment it has one more.
"""

from __future__ import annotations

from functools import partial

from pettingllms_envs.core import UNREADABLE_PENALTY, Role
from pettingllms_envs.environments.laws.rules import LAW, SAY, TRY, DiscoveryMove
from pettingllms_envs.replies.moves import move_of_kind
from pettingllms_envs.teams.functions import Ask, Game, Questions, function_workflow


NUM_TURNS = 18
EXPERIMENTER = Role("experimenter", "You are the experimenter: each of your replies is an experiment.")
THEORY = (
    "You are the theorist: you name the law. While you do not know it, end your reply with one line: Say: and at most "
    "{} characters to the experimenter."
)


@function_workflow(
    lambda team: (EXPERIMENTER, Role("theorist", THEORY.format(team.capacity))),
    name="lab",
    num_turns=NUM_TURNS,
    cyclic=True,
    turns_apart=True,
    meanings={"capacity": "Most characters of a message."},
)
def Lab(game: Game, capacity: int = 80) -> Questions:
    """An experimenter and a theorist."""
    while game.turns_left and game.task.budget(game.state) and not game.state.guesses:
        reply = yield Ask("experimenter", game.show(), partial(_best_reply, game), ())
        _, words = play_part(game, "experimenter", reply, TRY)
        reply = yield Ask("theorist", game.show(words), partial(_theory, game), (words,))
        move, answer = play_part(game, "theorist", reply, LAW, SAY)
        if move is not None and move.kind == SAY:
            answer = game.quote("theorist", move.what)
        game.end_turn(f"{words}\n{answer}")
    return bool(game.state.guesses or not game.task.budget(game.state))


@function_workflow(
    Role("scientist", "You are the scientist: you make the experiments, and name the law."),
    name="single",
    num_turns=NUM_TURNS,
    cyclic=True,
    channel=None,
    turns_apart=True,
)
def Scientist(game: Game) -> Questions:
    """One role makes the experiments and names the law."""
    while game.turns_left:
        is_last = not game.task.budget(game.state)
        game.play((yield Ask("scientist", game.show(), keeps=())), "scientist")
        if is_last or game.state.guesses:
            return True
    return False


def play_part(game: Game, role: str, reply: str, *kinds: str) -> tuple[DiscoveryMove | None, str]:
    """Play a role's part of a turn, if it is of these kinds, and pay for it; returns it, and what came of it."""
    before, task = game.state, game.task
    move, why = move_of_kind(task.parse(reply), kinds)
    if move is None:
        game.pay(role, "format", UNREADABLE_PENALTY)
        return None, f"The {role}'s reply was unreadable: {why}."
    game.advance(task.apply(before, move))
    if game.solved:
        game.pay_team("success", 1.0)
    for name, cost in task.costs(before, move, game.state).items():
        game.pay(role, name, cost)
    return move, f"The {role} played: {task.describe(before, move, game.state)}"


def _best_reply(game: Game) -> str:
    """The experiment that tells most."""
    return str(game.task.write(game.task.best(game.state)))


def _theory(game: Game) -> str:
    """The law once it is the only one; before that, the experiment that tells most."""
    move = game.task.oracle(game.state)
    if move.kind == TRY:
        move = DiscoveryMove(SAY, game.task.kind.writers[TRY](move.what))
    return str(game.task.write(move))


WORKFLOWS = (Lab, Scientist)
"""The workflows of the environment, the default one first."""
