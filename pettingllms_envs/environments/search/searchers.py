"""Workflows of search: a searcher and an answerer, or one agent that does both.

* `team`: in each turn the `searcher` searches once, then the `answerer`, who cannot search, reads what was found and
  either answers, which ends the episode, or asks for more in a message of at most 120 characters.
* `single`: one `searcher`, who in each turn searches or answers. By default it has as many replies as the team.

All agents see the question, the searches and the latest passages, at most `max_passages`, quoted. Passages
may say the answer, so all roles are `informed`. An episode ends with the answer, right or wrong.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache, partial
from typing import Any

from pettingllms_envs.core import UNREADABLE_PENALTY, Role
from pettingllms_envs.environments.search.rules import ANSWER, ASK, MOST_QUERY, SEARCH, SearchMove, SearchState
from pettingllms_envs.quoting import quote
from pettingllms_envs.replies.moves import move_of_kind
from pettingllms_envs.retrieval.passages import Passage
from pettingllms_envs.teams.channels import Channel, Sent
from pettingllms_envs.teams.functions import Ask, Game, Questions, function_workflow


SEARCHER, ANSWERER = "searcher", "answerer"
SEARCH_COST = -0.01
SEARCH_FORMAT = f"To search, end your reply with one line: Search: and at most {MOST_QUERY} characters."
CHANNEL = Channel(120)
ASK_FORMAT = (
    "To ask the searcher for something else, end your reply with one line: Ask: and at most"
    f" {CHANNEL.capacity} characters."
)
SEARCHER_JOB = "You are the searcher. You search, and the answerer answers from what you find."
ANSWERER_JOB = "You are the answerer. You cannot search. You answer from what the searcher finds."
LONE_JOB = "You are the searcher. You search and answer."


def ranges(team: Any) -> Mapping[str, tuple[float, float]]:
    """The cost of searches; support, if it is paid."""
    return {"searches": (SEARCH_COST, 0.0)} | ({"support": (0.0, 1.0)} if team.task.support_reward else {})


COMMON: dict[str, Any] = {
    "ranges": ranges,
    "cyclic": True,
    "legal": {"max_passages": range(1, 51)},
    "channel": CHANNEL,
    "state_form": 3,
    "bonuses": (),
    "turns_apart": True,
    "meanings": {"max_passages": "Most passages in a prompt, the latest ones, 1 to 50."},
}


def searches(game: Game, kinds: Mapping[str, tuple[str, ...]], max_passages: int) -> Questions:
    """Each agent in turn makes a move of one of its kinds, until one answers."""
    task, (sent, reasons) = game.task, game.kept or (None, ())
    message, unread = sent and Sent(*sent), {**dict.fromkeys(kinds, ""), **dict(reasons)}
    for _ in game.turns():
        for role, own in kinds.items():
            shown = partial(_prompt, game, max_passages, message, unread[role])
            reply = yield Ask(role, shown, partial(_best, game, own), (message, unread))
            move, why = move_of_kind(task.parse(reply), own)
            unread[role] = f"Your last reply was unreadable: {why}." if why else ""
            if move is None:
                game.pay(role, "format", UNREADABLE_PENALTY)
                continue
            before, game.state = game.state, game.once(task.apply, game.state, move)
            if move.kind == ANSWER:
                game.win()
                return True
            if move.kind == SEARCH:
                game.pay(role, "searches", SEARCH_COST)
                if task.support_reward:  # for the share of the needed passages that it showed first
                    game.pay(role, "support", task.support(game.state) - task.support(before))
            else:
                message = game.send(role, move.text)
    return False


def _prompt(game: Game, max_passages: int, message: Sent | None, unread: str) -> str:
    return game.situation(*_found(game.state, max_passages), message.shown if message else "", unread)


def _best(game: Game, kinds: tuple[str, ...]) -> str:
    """A search for what is missing, a request for it, or the answer."""
    problem, best = game.state.problem, game.task.oracle(game.state)
    if ANSWER in kinds and (best.kind == ANSWER or game.turn == game.num_turns):
        move = SearchMove(ANSWER, problem.answers[0])
    elif SEARCH not in kinds:
        move = SearchMove(ASK, best.text)
    else:
        move = SearchMove(SEARCH, best.text if best.kind == SEARCH else problem.statement[:MOST_QUERY])
    return str(game.task.write(move))


def _found(state: SearchState, max_passages: int) -> list[str]:
    if not state.queries:
        return ["Nothing was searched yet."]
    lines = ["Searches so far:", *map(_quoted, state.queries)]
    if not state.passages:
        return [*lines, "They found nothing."]
    latest = state.passages[-max_passages:]
    which = "Passages" if len(latest) == len(state.passages) else f"The latest {len(latest)} passages"
    return [*lines, f"{which} that they found:", *map(_shown, latest)]


def _shown(passage: Passage) -> str:
    return _quoted(f"{passage.title}: {passage.text}" if passage.title else passage.text)


_quoted = lru_cache(maxsize=1024)(quote)  # prompts say the same again


def _team(team: Any) -> tuple[Role, ...]:
    formats = f"{team.task.reply_format()}\n{ASK_FORMAT}"
    delayed = not team.task.support_reward  # paid later if nothing is paid for what it finds
    return (
        Role(SEARCHER, SEARCHER_JOB, delayed=delayed, informed=True, reply_format=SEARCH_FORMAT),
        Role(ANSWERER, ANSWERER_JOB, informed=True, reply_format=formats),
    )


@function_workflow(_team, name="team", **COMMON)
def SearchTeam(game: Game, max_passages: int = 6) -> Questions:
    """A searcher and an answerer."""
    return (yield from searches(game, {SEARCHER: (SEARCH,), ANSWERER: (ASK, ANSWER)}, max_passages))


@function_workflow(
    lambda team: (
        Role(SEARCHER, LONE_JOB, informed=True, reply_format=f"{team.task.reply_format()}\n{SEARCH_FORMAT}"),
    ),
    name="single",
    num_turns=8,
    **COMMON,
)
def LoneSearcher(game: Game, max_passages: int = 6) -> Questions:
    """One agent that searches and answers."""
    return (yield from searches(game, {SEARCHER: (SEARCH, ANSWER)}, max_passages))
