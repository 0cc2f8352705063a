"""Workflows of HiddenBench: members of a group talk in turn, and vote in the last turn.

* `team`: a member for each hidden fact. In all turns but the last one each member writes a message, which is cut after
  `capacity` characters; it reads the latest message of each other member. In the last turn each votes.
* `cut`: the same, but no message arrives.
* `full`: one member, who knows all facts and votes at once.
"""

from __future__ import annotations

from functools import partial
from typing import Any

from pettingllms_envs.core import UNREADABLE_PENALTY, Role, Unreadable
from pettingllms_envs.environments.hidden_bench.rows import MOST_MEMBERS
from pettingllms_envs.quoting import quote_inline
from pettingllms_envs.teams.channels import Sent
from pettingllms_envs.teams.functions import Ask, Game, Questions, function_workflow


MEMBER = "member"
JOB = "You are one of the members."
SAY = "When you are asked to write, your whole reply is your message to the others, at most {} characters."
COMMON: dict[str, Any] = {
    "ranges": {"correct": (0.0, 1.0)},
    "cyclic": True,
    "state_form": 3,
    "turns_apart": True,
    "bonuses": (),
    "system": lambda team, _: f"{team.task.rules()}\n{SAY.format(team.channel.capacity)}\n{team.task.reply_format()}",
    "present": lambda team, state: team.members[: state.task.num_members],  # as many as there are hidden facts
}


def discussion(game: Game, *, delivers: bool) -> Questions:
    """The members write in turn, and vote in the last turn; the episode ends with the last vote."""
    task, said = game.task, {member: Sent(*sent) for member, sent in game.kept or ()}
    for turn in game.turns():
        is_vote = turn == game.num_turns
        for index, member in enumerate(game.members[: game.state.num_members]):
            shown = partial(_shown, game, index, dict(said))
            own = str(game.state.problem.hidden[game.state.order[index]])
            reply = yield Ask(member, shown, None if is_vote else partial(str, own), said, [own])
            if not is_vote:
                if delivers:
                    said[member] = game.send(member, reply)
                continue
            vote, before = task.parse(reply), game.state
            game.state = task.apply(before, "" if isinstance(vote, Unreadable) else vote)
            if isinstance(vote, Unreadable):
                game.pay(member, "format", UNREADABLE_PENALTY)
            else:
                game.pay(member, "correct", float(game.state.num_right - before.num_right))
            if not task.solved(before):
                game.win()
    return True


def _shown(game: Game, index: int, said: dict[str, Sent]) -> str:
    """The situation, the member's facts, the latest messages of the others, and what it is to do."""
    facts = (f"- {quote_inline(fact)}" for fact in game.task.facts(game.state, index))
    messages = (sent.shown for other, sent in said.items() if other != game.members[index])
    request = "Write to the others now." if game.turn < game.num_turns else "Vote now."
    return game.situation("What you know:", *facts, *messages, request)


MEMBERS = Role(MEMBER, JOB, count=MOST_MEMBERS, informed=True)


@function_workflow(MEMBERS, name="team", num_turns=3, **COMMON)
def GroupDiscussion(game: Game, capacity: int = 500) -> Questions:
    """Members who hear each other."""
    return (yield from discussion(game, delivers=True))


@function_workflow(MEMBERS, name="cut", num_turns=3, **COMMON)
def SilentDiscussion(game: Game) -> Questions:
    """Members none of whose messages arrive."""
    return (yield from discussion(game, delivers=False))


@function_workflow(Role(MEMBER, JOB, informed=True), name="full", num_turns=1, **COMMON)
def FullProfile(game: Game) -> Questions:
    """One member who knows all facts; its vote counts for all."""
    game.state = game.state._replace(num_members=1)
    return (yield from discussion(game, delivers=False))
