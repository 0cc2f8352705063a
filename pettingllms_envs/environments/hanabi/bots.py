"""Players of Hanabi that are written as rules: each takes the first rule of its list that gives a move.

* `piers` and `iggi`: J. Walton-Rivers, P. R. Williams, R. Bartle, D. Perez-Liebana and S. M. Lucas, "Evaluating and
  modelling Hanabi-playing agents", CEC 2017, arXiv:1704.07069. `iggi` plays what is certain to succeed, tells others
  about playable cards, discards what is certain to be useless, else the oldest card. `piers` also plays a card that is
  probably playable, tells of useless cards when tokens are few, and takes its chances once the deck is empty.
* `outer`, as the same paper describes it after H. Osawa, "Solving Hanabi", AAAI Workshop 2015: it plays what is
  certain to succeed, and keeps track of what others know, so that it tells them of playable cards, else of any card,
  only what they do not know.
* `flawed`, of the same authors: it risks a life on a card that is playable with probability 1/4, and hints at random.
* `random`: every legal move is equally likely.

The rules are written after their descriptions; what those leave open is decided here. A player knows all that follows
from hints, also from those that did not name a card, and from the cards that it sees. "The first" of several cards is
the oldest, "the first" of several players the next one.

A bot is a function of a player's view. Its random choices are drawn by numbers that the view decides, so that it does
the same in the same situation.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from functools import partial

from pettingllms_envs.environments.hanabi.cards import (
    COLOR,
    COPIES,
    DISCARD,
    PLAY,
    RANK,
    RANKS,
    Card,
    HanabiMove,
    HanabiView,
    Knowledge,
    legal_moves,
    unseen,
)
from pettingllms_envs.instances import seeded


Bot = Callable[[HanabiView], HanabiMove]
Rule = Callable[[HanabiView, random.Random], HanabiMove | None]
"""A rule gives a move, or None where it does not apply."""

FEW_TOKENS = 4
"""`piers` tells of useless cards while there are fewer information tokens."""


def by_rules(name: str, rules: tuple[Rule, ...], view: HanabiView) -> HanabiMove:
    """The move of the first rule that gives one; the last rule of a bot always does."""
    rng = seeded("hanabi bot", name, view)
    return next(move for rule in rules if (move := rule(view, rng)) is not None)


def play_probably_safe(threshold: float, view: HanabiView, rng: random.Random) -> HanabiMove | None:
    """Play the card that is playable with the greatest probability, if that is at least the threshold.

    The probability is the share of playable cards among those that the player does not see and that hints allow.
    """
    chances = [_chance(view, known, partial(_is_playable, view)) for known in view.own]
    best = max(range(len(chances)), key=chances.__getitem__)
    return HanabiMove(PLAY, best) if chances[best] >= threshold else None


def play_at_the_end(view: HanabiView, rng: random.Random) -> HanabiMove | None:
    """Once the deck is empty, and if a life may be lost: play the card that is most probably playable."""
    return play_probably_safe(0.0, view, rng) if view.lives > 1 and not view.deck_size else None


def play_probably_safe_with_lives(threshold: float, view: HanabiView, rng: random.Random) -> HanabiMove | None:
    """Play a card that is probably playable, if a life may be lost."""
    return play_probably_safe(threshold, view, rng) if view.lives > 1 else None


def tell_useful(view: HanabiView, rng: random.Random) -> HanabiMove | None:
    """Tell the next player with a playable card about it: its rank or, if that is known, its color."""
    if view.information:
        for offset, hand in enumerate(view.others, 1):
            for card, known in hand:
                if _is_playable(view, card) and (hint := _missing(card, known, offset)):
                    return hint
    return None


def tell_dispensable(view: HanabiView, rng: random.Random) -> HanabiMove | None:
    """If tokens are few, tell a player what it needs to know that a card was played already."""
    if not 0 < view.information < FEW_TOKENS:
        return None
    for offset, hand in enumerate(view.others, 1):
        for card, known in hand:
            color, rank = HanabiMove(COLOR, card.color, offset), HanabiMove(RANK, card.rank, offset)
            if known.color is None and view.fireworks[card.color] == RANKS[-1]:
                return color
            if known.rank is None and card.rank <= min(view.fireworks):
                return rank
            if (known.color is None) != (known.rank is None) and card.rank <= view.fireworks[card.color]:
                return color if known.color is None else rank
    return None


def discard_useless(view: HanabiView, rng: random.Random) -> HanabiMove | None:
    """Discard a card that is certain to be of no more use (the discard rule of Osawa, 2015)."""
    if view.information == view.variant.information:
        return None
    useless = (i for i, known in enumerate(view.own) if _chance(view, known, partial(_is_useless, view)) == 1)
    index = next(useless, None)
    return None if index is None else HanabiMove(DISCARD, index)


def discard_oldest(view: HanabiView, rng: random.Random) -> HanabiMove | None:
    """Discard the oldest card."""
    return None if view.information == view.variant.information else HanabiMove(DISCARD, 0)


def tell_randomly(view: HanabiView, rng: random.Random) -> HanabiMove | None:
    """Tell the next player the color or the rank of one of its cards."""
    if not view.information:
        return None
    card = rng.choice(view.others[0]).card
    return rng.choice((HanabiMove(COLOR, card.color, 1), HanabiMove(RANK, card.rank, 1)))


def tell_playable_randomly(view: HanabiView, rng: random.Random) -> HanabiMove | None:
    """Tell any player something that it does not know about a playable card."""
    return _tell_any(view, rng, partial(_is_playable, view))


def tell_unknown(view: HanabiView, rng: random.Random) -> HanabiMove | None:
    """Tell any player something that it does not know about a card."""
    return _tell_any(view, rng, lambda card: True)


def discard_randomly(view: HanabiView, rng: random.Random) -> HanabiMove | None:
    """Discard any card."""
    full = view.information == view.variant.information
    return None if full else HanabiMove(DISCARD, rng.randrange(len(view.own)))


def move_randomly(view: HanabiView, rng: random.Random) -> HanabiMove | None:
    """Any legal move."""
    return rng.choice(legal_moves(view))


play_safe: Rule = partial(play_probably_safe, 1.0)

RULES: Mapping[str, tuple[Rule, ...]] = {
    "piers": (
        play_at_the_end,
        play_safe,
        partial(play_probably_safe_with_lives, 0.6),
        tell_useful,
        tell_dispensable,
        discard_useless,
        discard_oldest,
        tell_randomly,
    ),
    "iggi": (play_safe, tell_useful, discard_useless, discard_oldest, tell_randomly),
    "outer": (play_safe, discard_useless, tell_playable_randomly, tell_unknown, discard_randomly, tell_randomly),
    "flawed": (play_safe, partial(play_probably_safe, 0.25), tell_randomly, discard_useless, discard_oldest),
    "random": (move_randomly,),
}

BOTS: Mapping[str, Bot] = {name: partial(by_rules, name, rules) for name, rules in RULES.items()}


def _chance(view: HanabiView, known: Knowledge, holds: Callable[[Card], bool]) -> float:
    """The share of the unseen cards that hints allow for which something holds."""
    cards = [(card, count) for card, count in unseen(view).items() if known.allows(card)]
    return sum(count for card, count in cards if holds(card)) / sum(count for _, count in cards)


def _is_playable(view: HanabiView, card: Card) -> bool:
    return view.fireworks[card.color] + 1 == card.rank


def _is_useless(view: HanabiView, card: Card) -> bool:
    """Whether it was played already, or all copies of a card that must come before it are lost."""
    needed = range(view.fireworks[card.color] + 1, card.rank)
    lost = (view.discards.count(Card(card.color, rank)) == COPIES[rank] for rank in needed)
    return card.rank <= view.fireworks[card.color] or any(lost)


def _tell_any(view: HanabiView, rng: random.Random, holds: Callable[[Card], bool]) -> HanabiMove | None:
    """Tell any player the unknown color or rank of a card for which something holds."""
    hints = []
    for offset, hand in enumerate(view.others, 1):
        for card, known in hand:
            if holds(card):
                hints += [] if known.color is not None else [HanabiMove(COLOR, card.color, offset)]
                hints += [] if known.rank is not None else [HanabiMove(RANK, card.rank, offset)]
    return rng.choice(hints) if hints and view.information else None


def _missing(card: Card, known: Knowledge, offset: int) -> HanabiMove | None:
    """A hint of the rank if it is not known, else of the color if that is not known."""
    if known.rank is None:
        return HanabiMove(RANK, card.rank, offset)
    return HanabiMove(COLOR, card.color, offset) if known.color is None else None
