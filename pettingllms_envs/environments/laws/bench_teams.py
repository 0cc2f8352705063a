"""Workflows of two benches: who can use which, and who names the law.

In each turn an experiment is made at each bench, until its budget is used up or one law is left there. Then each
experimenter tells in one message, which is cut after `capacity` characters, and the law is named.

* `team`: `experimenter_0` and `experimenter_1`, each with the bench of its number, and a `theorist`, who is shown the
  class and the messages, never a reading.
  With `delivers=False` no message arrives.
* `alone`: one `experimenter` with one bench, who also names the law: right at most in `lone_bound` of the episodes.
* `full`: the same with both benches.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from pettingllms_envs.core import UNREADABLE_PENALTY, Role
from pettingllms_envs.environments.laws.benches import BENCHES, TOLD
from pettingllms_envs.environments.laws.rules import LAW, SAY, TRY, WASTED
from pettingllms_envs.replies.moves import move_of_kind
from pettingllms_envs.teams.forms import Form, Forms
from pettingllms_envs.teams.functions import Ask, Game, Questions, Script, function_workflow


Holders = Mapping[str, tuple[int, ...]]
"""The agents that make experiments, each with its benches."""

EXPERIMENTER, THEORIST = "experimenter", "theorist"
TEAM: Holders = {f"{EXPERIMENTER}_{bench}": (bench,) for bench in BENCHES}
NUM_TURNS = 8
CAPACITY = 40
MEANINGS = {
    "capacity": "Most characters of a message.",
    "delivers": "Whether messages arrive.",
    "bench": "The bench that the agent has, 0 or 1.",
}


def discovery(game: Game, holders: Holders, *, delivers: bool = True) -> Questions:
    """Experiments at the benches, a message of each experimenter of a team, then the law."""
    task, messages, unread = game.task, "", dict[str, str]()
    is_team = len(holders) > 1

    def asked(role: str, kind: str, request: str, oracle: Callable[[], str] | None = None) -> Questions:
        """Ask for a move of a kind; returns it, or None if the reply cannot be read."""
        shown = partial(
            _shown, game, holders.get(role, ()), messages if kind == LAW else "", unread.get(role), request
        )
        reply = yield Ask(role, shown, oracle, (messages, unread))
        move, why = move_of_kind(task.parse(reply), (kind,))
        unread[role] = f"Your last reply was unreadable: {why}." if why else ""
        if why:
            game.pay(role, "format", UNREADABLE_PENALTY)
        return move

    for _ in game.turns():
        for role, bench in [(role, bench) for role, benches in holders.items() for bench in benches]:
            if not task.is_open(game.state, bench):
                continue
            move = yield from asked(
                role, TRY, f"Make an experiment at bench {bench} now.", partial(_best, game, bench, TRY)
            )
            if move is not None and not game.advance(task.experiment(game.state, bench, move)):
                game.pay(role, "wasted", WASTED)
    for role, (bench,) in holders.items() if is_team else ():
        move = yield from asked(
            role, SAY, "Tell the theorist the law of your bench now.", partial(_best, game, bench, SAY)
        )
        if move is not None and delivers:
            sent = game.send(role, move.what)
            messages = "\n".join(filter(None, (messages, sent.shown)))
            if task.told(game.state, bench, sent.text):
                game.pay(role, "told", TOLD)
    role = THEORIST if is_team else next(iter(holders))
    move = yield from asked(role, LAW, "Name the law now, of bench 0 and of bench 1.")
    if move is not None:
        before, game.state = game.state, task.apply(game.state, move)
        if game.solved:
            game.pay_team("progress", 1 - task.value(before))
            game.pay_team("success", 1.0)
    return True


def _shown(game: Game, benches: tuple[int, ...], messages: str, unread: str | None, request: str) -> str:
    """The class, the readings of the agent's benches, the messages, and what it is to do now."""
    readings = [game.task.readings(game.state, bench) for bench in benches]
    return "\n".join([game.task.show(game.state), *readings, *filter(None, (messages, unread)), request])


def _best(game: Game, bench: int, kind: str) -> str:
    return str(game.task.write(game.task.wanted(game.state, bench, kind)))


def workflow(name: str, of: Callable[[Any], Holders], **others: Any) -> Callable[[Script], Any]:
    """`function_workflow` for the team of that name, which has these holders of benches."""

    def roles(team: Any) -> tuple[Role, ...]:
        holders = of(team)
        experimenter = Role(EXPERIMENTER, "", count=len(holders))
        return (experimenter, Role(THEORIST, "")) if len(holders) > 1 else (experimenter,)

    def system(team: Any, role: str) -> str:
        """The rules, the job, how to reply."""
        holders = of(team)
        if role not in holders:
            job = "You are the theorist. The experimenters tell you the laws of their benches, and you name both."
            return "\n".join([team.task.rules(), job, team.task.reply_format()])
        own = " and ".join(f"bench {bench}" for bench in holders[role])
        tries = "When you are asked for an experiment, end your reply with one line: Try: a=1 b=1 k=1."
        is_team = len(holders) > 1
        say = "When you are asked to tell, end your reply with one line: Say: and at most {} characters."
        end = say.format(team.capacity) if is_team else team.task.reply_format()
        return "\n".join([team.task.rules(), f"You are {role if is_team else f'the {role}'}, at {own}.", tries, end])

    def ranges(team: Any) -> Mapping[str, tuple[float, float]]:
        return {"wasted": (WASTED, 0.0), **({"told": (0.0, TOLD)} if len(of(team)) > 1 else {})}

    made = {"ranges": ranges, "system": system, "bonuses": (), "num_turns": NUM_TURNS, "meanings": MEANINGS}
    return function_workflow(roles, name=name, **{**made, **others})


def _forms(team: Any) -> Forms:
    own = {"num_turns": team.num_turns}
    return Forms(
        full=Form({"workflow": "full", **own}, f"{EXPERIMENTER}_0"),
        cut=Form({"workflow": "team", "delivers": False, "capacity": team.capacity, **own}),
        alone=[Form({"workflow": "alone", "bench": bench, **own}, f"{EXPERIMENTER}_{bench}") for bench in BENCHES],
    )


@workflow("team", lambda team: TEAM, forms=_forms)
def BenchTeam(game: Game, capacity: int = CAPACITY, delivers: bool = True) -> Questions:
    """Two experimenters and a theorist."""
    return (yield from discovery(game, TEAM, delivers=delivers))


@workflow("alone", lambda team: {EXPERIMENTER: (team.bench,)}, legal={"bench": BENCHES})
def LoneBench(game: Game, bench: int = 0) -> Questions:
    """One experimenter at one bench."""
    return (yield from discovery(game, {EXPERIMENTER: (bench,)}))


@workflow("full", lambda team: {EXPERIMENTER: BENCHES})
def BothBenches(game: Game) -> Questions:
    """One experimenter at both benches."""
    return (yield from discovery(game, {EXPERIMENTER: BENCHES}))


WORKFLOWS = (BenchTeam, LoneBench, BothBenches)
"""The workflows of the environment, the default one first."""
