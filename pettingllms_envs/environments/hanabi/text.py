"""Hanabi in words: what a player is shown, and how moves are written and read, in English or in short symbols."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple

from pettingllms_envs.core import Unreadable
from pettingllms_envs.environments.hanabi.cards import (
    COLOR,
    COLORS,
    DISCARD,
    PLAY,
    RANK,
    Event,
    HanabiMove,
    HanabiView,
    HeldCard,
)
from pettingllms_envs.replies.moves import match_last_line


ENGLISH_RULES = """\
Hanabi with {players} players, {names}. The cards have a color (R, Y, G, W or B; smaller games have fewer colors) \
and a rank from 1 to 5. Of each color there are three 1s, two each of 2, 3 and 4, and one 5. You see all hands but \
your own. Together you build one firework of each color, by playing its cards in the order 1, 2, 3, 4, 5. On your \
turn you either play a card: if it is the next one of its color it is added, otherwise it is discarded and one life \
is lost; or discard a card, which gives back an information token unless all are there; or reveal, for one \
information token, all cards of one color or of one rank in the hand of another player, which must be at least one. \
After playing or discarding you draw a card. Completing a firework gives back an information token, too. The game \
ends when the last life is lost, with a score of 0; when all fireworks are complete; or one turn of each player \
after the last card was drawn. The score is the number of cards in the fireworks. Hands are numbered from 0, the \
oldest card; a new card comes last. After a card stand the colors and ranks that it may have by all that its holder \
was told."""

SYMBOL_RULES = "Hanabi, {players} players."


class Wording(NamedTuple):
    """A way to put the game into words.

    Args:
        rules: The rules, with `{players}` and `{names}` to be filled in.
        pattern: The last line of a reply; its groups are named `kind` and `card` for a play or discard, or `offset`
            and `color` or `rank` for a hint.
        hint: How a hint is written, with `{offset}`, `{kind}` and `{value}`.
        card: How a play or discard is written, with `{kind}` and `{value}`.
        expected: What an unreadable last line is not.
    """

    rules: str
    reply_format: str
    show: Callable[[HanabiView], str]
    pattern: re.Pattern[str]
    hint: str
    card: str
    expected: str


def parse(wording: Wording, reply: str) -> HanabiMove | Unreadable:
    """The move in the last line."""
    found = match_last_line(wording.pattern, reply, wording.expected)
    if isinstance(found, Unreadable):
        return found
    if found["card"]:
        return HanabiMove(found["kind"].lower(), int(found["card"]))
    offset = int(found["offset"])
    if found["rank"]:
        return HanabiMove(RANK, int(found["rank"]), offset)
    return HanabiMove(COLOR, COLORS.index(found["color"].upper()), offset)


def write(wording: Wording, move: HanabiMove) -> str:
    """The reply that `parse` reads as this move."""
    if move.kind in (PLAY, DISCARD):
        return wording.card.format(kind=move.kind, value=move.value)
    value = COLORS[move.value] if move.kind == COLOR else move.value
    return wording.hint.format(offset=move.offset, kind=move.kind, value=value)


def english(view: HanabiView) -> str:
    """The view in full; without an own hand, that of a person who looks on."""
    lines = [
        f"Fireworks: {_fireworks(view)}. Score: {sum(view.fireworks)} of {view.variant.best_score}.",
        f"Information tokens: {view.information} of {view.variant.information}. "
        f"Lives: {view.lives} of {view.variant.lives}. Cards to draw: {view.deck_size}.",
        f"Discarded: {_cards(view.discards) or 'none'}.",
    ]
    if view.events:
        lines += ["Last moves:", *(_event(event, view.num_players) for event in view.events)]
    if view.own:
        lines += ["Your hand:", *(f"{i}: {known}" for i, known in enumerate(view.own))]
    for offset, hand in enumerate(view.others, 1):
        player = (view.player + offset) % view.num_players
        if hand:
            lines += [f"Hand of player_{player} (+{offset}):", *(f"{i}: {_held(held)}" for i, held in enumerate(hand))]
    acting = "You are" if view.own and view.acting == view.player else f"player_{view.acting} is"
    lines.append("The game is over." if view.is_over else f"{acting} to act.")
    return "\n".join(lines)


def symbols(view: HanabiView) -> str:
    """The view in few words: fireworks, tokens and lives, discards, the own hand, the others', the last moves."""
    lines = [
        f"F {_fireworks(view)}",
        f"I {view.information} L {view.lives} D {view.deck_size}",
        f"X {_cards(view.discards)}".rstrip(),
    ]
    if view.own:
        lines.append(f"H {' , '.join(map(str, view.own))}")
    lines += [f"+{i} {' , '.join(map(_held, hand))}" for i, hand in enumerate(view.others, 1) if hand]
    lines += [f"< {_short_event(event, view)}" for event in view.events]
    return "\n".join(lines)


WORDINGS: Mapping[str, Wording] = {
    "english": Wording(
        rules=ENGLISH_RULES,
        reply_format=(
            "End your reply with one line: Action: play and the number of a card, Action: discard and the number of "
            "a card, or Action: reveal, the receiver's place after you, and a color or a rank, such as "
            "Action: reveal +1 color R or Action: reveal +1 rank 2."
        ),
        show=english,
        pattern=re.compile(
            r"action:[ \t]*(?:(?P<kind>play|discard)[ \t]+(?P<card>\d)|"
            rf"reveal[ \t]+\+?(?P<offset>\d)[ \t]+(?:color[ \t]+(?P<color>[{COLORS}])|rank[ \t]+(?P<rank>\d)))\.?",
            re.I | re.A,
        ),
        hint="Action: reveal +{offset} {kind} {value}",
        card="Action: {kind} {value}",
        expected="'Action:' with 'play', 'discard' or 'reveal' and what belongs to it",
    ),
    "symbols": Wording(
        rules=SYMBOL_RULES,
        reply_format="play I, discard I, +K color C or +K rank R",
        show=symbols,
        pattern=re.compile(
            r"(?:(?P<kind>play|discard) (?P<card>\d)|"
            rf"\+(?P<offset>\d) (?:color (?P<color>[{COLORS}])|rank (?P<rank>\d)))",
            re.A,
        ),
        hint="+{offset} {kind} {value}",
        card="{kind} {value}",
        expected="a move",
    ),
}


def _fireworks(view: HanabiView) -> str:
    return " ".join(f"{color}{top}" for color, top in zip(COLORS, view.fireworks, strict=False))


def _cards(cards: Iterable[object]) -> str:
    return " ".join(map(str, sorted(cards)))  # type: ignore[type-var]


def _held(held: HeldCard) -> str:
    return f"{held.card} {held.known}"


def _event(event: Event, num_players: int) -> str:
    who, (kind, value, offset) = f"player_{event.player}", event.move
    if event.card is not None:
        result = " A life was lost." if event.is_strike else ""
        return f"{who} {'played' if kind == PLAY else 'discarded'} {event.card}.{result}"
    shown = COLORS[value] if kind == COLOR else value
    receiver = (event.player + offset) % num_players
    return f"{who} revealed {kind} {shown} to player_{receiver}: cards {', '.join(map(str, event.cards))}."


def _short_event(event: Event, view: HanabiView) -> str:
    """The event, its player counted from the viewing one."""
    who, (kind, value, offset) = f"+{(event.player - view.player) % view.num_players}", event.move
    if event.card is not None:
        return f"{who} {kind} {event.card}{' !' if event.is_strike else ''}"
    shown = COLORS[value] if kind == COLOR else value
    receiver = (event.player + offset - view.player) % view.num_players
    return f"{who} {kind} {shown} +{receiver} {' '.join(map(str, event.cards))}"
