"""The cards of Hanabi: decks, what is known of a card, moves, and a player's view of a game.

Everything that a player or a bot may know is in a `HanabiView`. Observations and bots are functions of it, so neither
can depend on a card that its player does not see.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from functools import cache, lru_cache
from types import MappingProxyType
from typing import NamedTuple


COLORS = "RYGWB"
RANKS = (1, 2, 3, 4, 5)
COPIES = {1: 3, 2: 2, 3: 2, 4: 2, 5: 1}
"""Copies of each rank in each color."""
ALL_RANKS = (1 << len(RANKS)) - 1

PLAY, DISCARD, COLOR, RANK = "play", "discard", "color", "rank"


class Variant(NamedTuple):
    """A size of the game.

    Args:
        hand_size: Cards of a hand; 0 for 5 with two or three players and 4 with more.
        information: Information tokens at the start, which is also their greatest number.
    """

    colors: int
    hand_size: int
    information: int
    lives: int

    def cards_held(self, players: int) -> int:
        """Cards of a hand, by the number of players."""
        return self.hand_size or (5 if players <= 3 else 4)

    @property
    def deck_size(self) -> int:
        """10 cards of each color."""
        return self.colors * sum(COPIES.values())

    @property
    def best_score(self) -> int:
        """5 for each color."""
        return self.colors * len(RANKS)


VARIANTS = {1: Variant(1, 2, 3, 1), 2: Variant(2, 2, 3, 1), 3: Variant(5, 0, 8, 3)}
"""By level. In the Hanabi Learning Environment they are Hanabi-Very-Small, Hanabi-Small and Hanabi-Full."""


class Card(NamedTuple):
    """A card: the index of its color in `COLORS`, and its rank from 1 to 5."""

    color: int
    rank: int

    def __str__(self) -> str:
        return f"{COLORS[self.color]}{self.rank}"


class Knowledge(NamedTuple):
    """What hints have told about a card, also by not naming it: the colors that it may have as bits, and the ranks as
    bits `rank - 1`."""

    colors: int
    ranks: int

    def allows(self, card: Card) -> bool:
        return bool(self.colors >> card.color & 1 and self.ranks >> (card.rank - 1) & 1)

    @property
    def color(self) -> int | None:
        return None if self.colors & (self.colors - 1) else self.colors.bit_length() - 1

    @property
    def rank(self) -> int | None:
        return None if self.ranks & (self.ranks - 1) else self.ranks.bit_length()

    def __str__(self) -> str:
        colors = "".join(color for i, color in enumerate(COLORS) if self.colors >> i & 1)
        return f"{colors} {''.join(str(rank) for rank in RANKS if self.ranks >> (rank - 1) & 1)}"


class HeldCard(NamedTuple):
    """A card in a hand, and what its holder was told about it."""

    card: Card
    known: Knowledge


class HanabiMove(NamedTuple):
    """A move, with what it refers to counted from the acting player.

    Args:
        kind: `"play"`, `"discard"`, or `"color"` or `"rank"` for a hint of that kind.
        value: Index of the card in the hand, 0 the oldest; of a hint the color's index or the rank.
        offset: Of a hint, how many seats after the acting player its receiver sits, from 1; else 0.
    """

    kind: str
    value: int
    offset: int = 0


class Event(NamedTuple):
    """A move that was made, as everybody saw it.

    Args:
        card: The card that was played or discarded; None for a hint.
        cards: Indices of the cards that a hint named.
    """

    player: int
    move: HanabiMove
    card: Card | None = None
    cards: tuple[int, ...] = ()
    is_strike: bool = False


class HanabiView(NamedTuple):
    """Everything that a player knows.

    Args:
        fireworks: The highest rank that was played of each color, 0 for none.
        discards: Cards that were discarded, or played without success.
        own: What is known of each of the player's own cards, the oldest first.
        others: The hands of the others, the next player's first.
        events: The last moves, at most one of each player.
    """

    variant: Variant
    player: int
    acting: int
    is_over: bool
    fireworks: tuple[int, ...]
    discards: tuple[Card, ...]
    information: int
    lives: int
    deck_size: int
    own: tuple[Knowledge, ...]
    others: tuple[tuple[HeldCard, ...], ...]
    events: tuple[Event, ...]

    @property
    def num_players(self) -> int:
        return len(self.others) + 1


def all_cards(colors: int) -> list[Card]:
    """The deck with that number of colors, in order."""
    return [Card(color, rank) for color in range(colors) for rank in RANKS for _ in range(COPIES[rank])]


def canonical(deck: Iterable[Card]) -> bytes:
    """The deck, its colors numbered as they appear: the same for all decks that differ by colors only."""
    numbers: dict[int, int] = {}
    return bytes(numbers.setdefault(card.color, len(numbers)) * len(RANKS) + card.rank for card in deck)


@lru_cache(maxsize=8)
def unseen(view: HanabiView) -> Mapping[Card, int]:
    """How many copies of each card the player does not see: those in its hand and in the deck."""
    seen = Counter(view.discards)
    seen.update(held.card for hand in view.others for held in hand)
    seen.update(Card(color, rank) for color, top in enumerate(view.fireworks) for rank in range(1, top + 1))
    left = ((card, count - seen[card]) for card, count in _copies(view.variant.colors).items())
    return MappingProxyType({card: count for card, count in left if count})


@cache
def _copies(colors: int) -> Mapping[Card, int]:
    return MappingProxyType(Counter(all_cards(colors)))


def legal_moves(view: HanabiView) -> list[HanabiMove]:
    """Every move that the player may make when it is to act."""
    moves = [HanabiMove(PLAY, i) for i in range(len(view.own))]
    if view.information < view.variant.information:
        moves += [HanabiMove(DISCARD, i) for i in range(len(view.own))]
    if view.information:
        for offset, hand in enumerate(view.others, 1):
            moves += [HanabiMove(COLOR, color, offset) for color in sorted({held.card.color for held in hand})]
            moves += [HanabiMove(RANK, rank, offset) for rank in sorted({held.card.rank for held in hand})]
    return moves
