"""Workflows of note taking: two note takers with and without messages, one alone, and one that is shown everything.

The readings pass one by one, and the agent that is shown one may rewrite its notes: `readings` replies, however many
agents there are. Then one reading is asked for. All agents act in one order, and what each is shown depends on nothing
but its own notes once the question is known; whether its last reply was unreadable is shown only before.

* `team`: `left` and `right` have a stream and notes each. One of them is asked for a reading of the other's stream, so
  the other one, who knows the question, first tells it in a message of as many digits as a reading has. With
  `answerer="watcher"` the one who saw the reading is asked, and nobody needs a message.
* `cut`: the same, but the message does not arrive. The answer can only be guessed: right in 1 of `values` episodes.
* `alone`: one `watcher` sees all readings, one by one, with the notes of one: right in `lone_bound` of the episodes.
* `full`: the same, and every prompt has all readings so far: what communication and notes cannot add to.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from pettingllms_envs.core import UNREADABLE_PENALTY, Role, Unreadable
from pettingllms_envs.environments.note_taking.rules import ANSWER, NOTES, SAY
from pettingllms_envs.teams.forms import Form, Forms
from pettingllms_envs.teams.functions import Ask, Game, Questions, Script, function_workflow


ANSWERERS = ("other", "watcher")
SAY_FORMAT = "When another agent is asked about your stream, end it with one line: Say: and the digits of the reading."
PAIR, LONE = ("left", "right"), ("watcher",)


def note_takers(
    name: str, members: tuple[str, ...], *, delivers: bool = True, **others: Any
) -> Callable[[Script], Any]:
    """`function_workflow` for the note takers of that name."""

    def tells(team: Any) -> bool:
        """Whether the one who is asked did not see the reading, so that a message comes before the answer."""
        return len(members) > 1 and getattr(team, "answerer", ANSWERERS[0]) == ANSWERERS[0]

    def completed(team: Any) -> Mapping[str, Any]:
        needed = team.task.readings + 1 + tells(team)
        if team.num_turns not in (0, needed):
            raise ValueError(f"num_turns is {team.num_turns!r}; expected {needed}, which it takes. Leave it out.")
        return {"num_turns": needed}

    def job(team: Any, role: str) -> str:
        if len(members) == 1:
            return f"You are the {role}. You see all readings."
        other = members[1 - members.index(role)]
        end = "The one who did not see it is asked, after a message from the one who did."
        return (
            f"You are {role}, one of two note takers. The readings pass in turn for you and for {other}, each with"
            f" notes of its own. {end if tells(team) else 'The one who saw it is asked.'}"
        )

    def roles(team: Any) -> tuple[Role, ...]:
        """One for each; paid later if nothing is paid for notes and messages."""
        reply_format = "\n".join(filter(None, (team.task.reply_format(), SAY_FORMAT if tells(team) else "")))
        delayed = not team.task.communication_reward
        return tuple(Role(each, job(team, each), delayed=delayed, reply_format=reply_format) for each in members)

    def ranges(team: Any) -> Mapping[str, tuple[float, float]]:
        if not team.task.communication_reward:
            return {}
        return {"noted": (-1.0, 1.0), **({"told": (0.0, 1.0)} if tells(team) and delivers else {})}

    return function_workflow(
        roles,
        name=name,
        num_turns=0,
        ranges=ranges,
        completed=completed,
        tells=property(tells),
        channel=None,
        bonuses=(),
        **others,
    )


def readings(game: Game, *, tells: bool = False, delivers: bool = True, remembers: bool = False) -> Questions:
    """The readings pass, then one is asked for.

    Args:
        tells: Whether a message comes before the answer.
        remembers: Whether all readings so far are shown.
    """
    task, members, unread = game.task, game.members, dict[str, str]()
    count = len(members)
    game.state = game.state._replace(notes=("",) * count)

    def asked(role: str, kind: str, *texts: str, keeps: Any = ()) -> Questions:
        """Ask for a move of a kind, play it, and return whether it was one."""
        before = game.state
        notes = f"Your notes: {before.notes[members.index(role)] or 'none'}"
        earlier = _readings(game) if remembers else ""
        shown = "\n".join(filter(None, (earlier, texts[0], notes, *texts[1:])))
        best = partial(_best, game, kind)
        reply = yield Ask(role, shown, best, keeps, texts[:1] if kind == NOTES else ())
        move = task.parse(reply)
        reason = move.reason if isinstance(move, Unreadable) else ""
        if not reason and move.kind != kind:
            reason = f"its last line is not {kind.capitalize()!r} with digits"
        game.state = task.apply(before, None if reason else move)
        game.turn = min(game.turn + 1, game.num_turns)
        if reason:
            game.pay(role, "format", UNREADABLE_PENALTY)
        elif task.communication_reward and kind == NOTES:
            member = before.num_passed % count
            game.pay(role, "noted", task.noted(game.state, member) - task.noted(before, member))
        elif task.communication_reward and kind == SAY and delivers:
            game.pay(role, "told", float(task.is_asked_for(game.state, game.state.message)))
        return reason

    for at in range(task.readings):
        role, reading = members[at % count], task.write_reading(game.state.readings[at])
        shown = f"Your reading {at // count + 1} of {task.readings // count}: {reading}"
        reason = yield from asked(role, NOTES, shown, unread.get(role, ""), keeps=unread)
        unread[role] = f"Your last reply was unreadable: {reason}. Your notes are as they were." if reason else ""
    number, member = divmod(game.state.question, count)
    watcher, answerer, message = members[member], members[(member + tells) % count], ""
    if tells:
        question = f"{answerer.capitalize()} is asked for your reading {number + 1}."
        yield from asked(watcher, SAY, f"All readings have passed. {question}")
        if delivers:
            message = f"{watcher.capitalize()} tells you: {game.state.message or 'nothing'}"
    whose = "your" if watcher == answerer else f"{watcher}'s"
    yield from asked(
        answerer, ANSWER, f"All readings have passed. You are asked for {whose} reading {number + 1}.", message
    )
    game.win()
    return True


def _best(game: Game, kind: str) -> str:
    """Notes in order, the reading that is asked for as the message, and as the answer."""
    return str(game.task.write(game.task.oracle(game.state)._replace(kind=kind)))


def _readings(game: Game) -> str:
    """All earlier readings, of a workflow with one agent."""
    seen = game.state.readings[: game.state.num_passed]
    return "\n".join(f"Reading {at}: {game.task.write_reading(each)}" for at, each in enumerate(seen, 1))


def _forms(team: Any) -> Forms:
    """`cut` is a form only where there are messages. A lone watcher has the notes of either."""
    player = f"{PAIR[0]}_0"
    full, alone = (Form({"workflow": name}, player) for name in ("full", "alone"))
    return Forms(full=full, cut=Form({"workflow": "cut"}) if team.tells else None, alone=(alone,))


@note_takers("team", PAIR, legal={"answerer": ANSWERERS}, forms=_forms)
def NoteTakers(game: Game, answerer: str = ANSWERERS[0]) -> Questions:
    """Two note takers, one of whom tells the other.

    Args:
        answerer: Who is asked: `"other"`, the one who did not see the reading, or `"watcher"`, who did.
    """
    return (yield from readings(game, tells=answerer == ANSWERERS[0]))


@note_takers("cut", PAIR, delivers=False)
def SilentNoteTakers(game: Game) -> Questions:
    """Two note takers whose messages do not arrive."""
    return (yield from readings(game, tells=True, delivers=False))


@note_takers("alone", LONE)
def LoneNoteTaker(game: Game) -> Questions:
    """One note taker for all readings."""
    return (yield from readings(game))


@note_takers("full", LONE)
def FullView(game: Game) -> Questions:
    """One agent whose prompts have all readings so far."""
    return (yield from readings(game, remembers=True))
