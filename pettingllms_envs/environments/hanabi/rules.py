"""Hanabi: two to five players see all hands but their own, and build fireworks together.

Rules: those of the Hanabi Learning Environment, in three sizes: a hint names at least one card, no card is discarded
while all information tokens are there, and a completed firework gives one back. The game ends with the last life, with
the last firework, or one turn of each player after the last card was drawn.
Replies: the last line, `Action: play 0`, `Action: discard 0`, `Action: reveal +1 color R` or
`Action: reveal +1 rank 2`; cards are numbered from 0, the oldest, and `+1` is the next player. In symbols `play 0`,
`discard 0`, `+1 color R`, `+1 rank 2`. For a reply that is unreadable or not allowed the oldest card is discarded or,
while no discard is allowed, played: a move that its player could have named.
Rewards: team `progress`, the change of the score as a share of the best one, and `success`, 1 for the best score. The
score is 0 once the last life is lost, so that all progress is taken back. In the player's own scope `strike`, what one
card is worth, for a life that it loses, and `format`, -0.2, for an unreadable or illegal reply. Only cards on the
fireworks pay, each once, so no way of playing can farm them. What a hint is worth shows at later steps: the role is
declared as paid later.
Outcome: `score`; `fireworks`, the cards on them, also if the last life was lost; `lives`; `deck`, cards left to draw.
Instances: a seed decides the order of the deck. The splits have no deck in common, also if colors are renamed.
Levels: 1 one color, 2 two colors, 3 all five; 1 and 2 have two cards in a hand, three information tokens and one life.
Not every deck can be played to the best score; with four or five players level 1 has next to no cards to draw.
Oracle: none. A player that looks at all cards is not a player of this game, and nobody knows an optimal strategy for
what players do see. `bots` are players by rules, which see what a player sees: baselines, and partners.
Source: A. Bauza, "Hanabi" (2010); N. Bard et al., "The Hanabi challenge: a new frontier for AI research", Artificial
Intelligence 280 (2020), arXiv:1902.00506.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

from pettingllms_envs.core import SPLITS, Unreadable, check_choice
from pettingllms_envs.environments.hanabi.bots import BOTS
from pettingllms_envs.environments.hanabi.cards import (
    ALL_RANKS,
    COLOR,
    DISCARD,
    PLAY,
    RANK,
    RANKS,
    VARIANTS,
    Card,
    Event,
    HanabiMove,
    HanabiView,
    HeldCard,
    Knowledge,
    Variant,
    all_cards,
    canonical,
)
from pettingllms_envs.environments.hanabi.text import WORDINGS, parse, write
from pettingllms_envs.instances import seeded, split_of
from pettingllms_envs.tasks.cooperative import CooperativeTask


Hand = tuple[HeldCard, ...]


class HanabiState(NamedTuple):
    """A moment of a game.

    Args:
        level: Of the instance; a key of `VARIANTS`.
        deck: The cards left to draw, the next one first.
        hands: The players' hands, the oldest card first.
        fireworks: The highest rank that was played of each color, 0 for none.
        discards: Cards that were discarded, or played without success, in that order.
        last_turns: Turns that are left once the deck is empty.
    """

    level: int
    deck: tuple[Card, ...]
    hands: tuple[Hand, ...]
    fireworks: tuple[int, ...]
    discards: tuple[Card, ...]
    information: int
    lives: int
    last_turns: int
    player: int = 0
    events: tuple[Event, ...] = ()

    @property
    def variant(self) -> Variant:
        return VARIANTS[self.level]


@dataclass(frozen=True, slots=True)
class Hanabi(CooperativeTask[HanabiState]):
    """The task. Its state is a `HanabiState`, its move a `HanabiMove`.

    Args:
        players: Number of players, 2 to 5.
        level: The level of instances that name none, 1 to 3.
        wording: `"english"`, or `"symbols"` for short prompts of few words.
    """

    players: int = 2
    level: int = 3
    wording: str = "english"

    name: ClassVar[str] = "hanabi"
    single_agent: ClassVar[str] = "ad_hoc"
    instance_fields: ClassVar[Mapping[str, tuple[object, ...]]] = {"split": SPLITS, "level": tuple(VARIANTS)}
    bots: ClassVar[tuple[str, ...]] = tuple(BOTS)

    def __post_init__(self) -> None:
        check_choice("players", self.players, (2, 3, 4, 5))
        check_choice("level", self.level, tuple(VARIANTS))
        check_choice("wording", self.wording, tuple(WORDINGS))

    @property
    def num_players(self) -> int:
        """2 to 5."""
        return self.players

    @property
    def max_game_length(self) -> int:
        """With all cards: tokens are spent, cards discarded, each token but the last spent again, the last turns."""
        full = VARIANTS[max(VARIANTS)]
        to_draw = full.deck_size - self.players * full.cards_held(self.players)
        return full.information + 2 * to_draw - 1 + self.players

    @property
    def blind_replies(self) -> tuple[str, ...]:  # type: ignore[override]  # it depends on the wording
        """A card to play, a card to discard, and hints."""
        moves = (HanabiMove(PLAY, 0), HanabiMove(PLAY, 1), HanabiMove(DISCARD, 0), HanabiMove(COLOR, 0, 1))
        return tuple(self.write(move) for move in (*moves, *(HanabiMove(RANK, rank, 1) for rank in RANKS)))

    def generate(self, seed: int, split: str | None = None, level: int | None = None) -> HanabiState:
        """The deal of a seed.

        Args:
            split: `"train"` (also for None), `"validation"` or `"test"`.
            level: 1 to 3; None for the task's own.
        """
        split = SPLITS[0] if split is None else split
        level = self.level if level is None else level
        check_choice("split", split, SPLITS)
        check_choice("level", level, tuple(VARIANTS))
        rng = seeded("hanabi", "v0", self.players, level, split, seed)
        deck = all_cards(VARIANTS[level].colors)
        rng.shuffle(deck)
        while split_of(canonical(deck)) != split:
            rng.shuffle(deck)
        return self.dealt(deck, level)

    def dealt(self, deck: list[Card], level: int) -> HanabiState:
        """The start of a game with a deck, whose first cards are player 0's hand, the next player 1's, and so on."""
        variant, cards = VARIANTS[level], iter(deck)
        size, untold = variant.cards_held(self.players), _untold(variant)
        hands = tuple(
            tuple(HeldCard(card, untold) for card in itertools.islice(cards, size)) for _ in range(self.players)
        )
        fireworks = (0,) * variant.colors
        return HanabiState(level, tuple(cards), hands, fireworks, (), variant.information, variant.lives, self.players)

    def view(self, state: HanabiState, player: int) -> HanabiView:
        """What a player knows: everything but the deck and the cards in its own hand."""
        others = (*state.hands[player + 1 :], *state.hands[:player])
        return HanabiView(
            state.variant,
            player,
            state.player,
            self.is_terminal(state),
            state.fireworks,
            state.discards,
            state.information,
            state.lives,
            len(state.deck),
            tuple(held.known for held in state.hands[player]),
            others,
            state.events,
        )

    def parse(self, reply: str) -> HanabiMove | Unreadable:
        """The move in the last line."""
        return parse(WORDINGS[self.wording], reply)

    def write(self, move: HanabiMove) -> str:
        """Such as `Action: play 0`."""
        return write(WORDINGS[self.wording], move)

    def illegal(self, state: HanabiState, move: HanabiMove) -> str:
        """Why the acting player may not make the move now; empty if it may."""
        if move.kind in (PLAY, DISCARD):
            if move.value >= len(state.hands[state.player]):
                return "there is no card of that number"
            if move.kind == DISCARD and state.information == state.variant.information:
                return "no card is discarded while all information tokens are there"
            return ""
        if not 1 <= move.offset < self.players:
            return "there is no other player at that place"
        if not state.information:
            return "there is no information token"
        return "" if any(_is_named(held.card, move) for held in self._receiver(state, move)) else "it names no card"

    def default_move(self, state: HanabiState) -> HanabiMove:
        """The oldest card is discarded or, while no discard is allowed, played."""
        kind = PLAY if state.information == state.variant.information else DISCARD
        return HanabiMove(kind, 0)

    def apply(self, state: HanabiState, move: HanabiMove) -> HanabiState:
        """The state after the move, or after the `default_move` for an illegal one; at the end nothing changes."""
        if self.is_terminal(state):
            return state
        if self.illegal(state, move):
            move = self.default_move(state)
        after = self._with_card(state, move) if move.kind in (PLAY, DISCARD) else self._with_hint(state, move)
        return after._replace(
            last_turns=state.last_turns - (not state.deck),
            player=(state.player + 1) % self.players,
            events=after.events[-self.players :],
        )

    def current_player(self, state: HanabiState) -> int:
        return state.player

    def is_terminal(self, state: HanabiState) -> bool:
        """Whether the last life is lost, all fireworks are complete, or the turns after the last card are over."""
        return not state.lives or not state.last_turns or self.solved(state)

    def solved(self, state: HanabiState) -> bool:
        """Whether all fireworks are complete."""
        return self.score(state) == state.variant.best_score

    def score(self, state: HanabiState) -> int:
        """Cards on the fireworks; 0 if the last life was lost."""
        return sum(state.fireworks) if state.lives else 0

    def value(self, state: HanabiState) -> float:
        """The score as a share of the best one."""
        return self.score(state) / state.variant.best_score

    def ranges(self) -> Mapping[str, tuple[float, float]]:
        """A strike costs what a card is worth, which is most at level 1."""
        return {"value": (0.0, 1.0), "strike": (-1 / VARIANTS[1].best_score, 0.0)}

    def costs(self, before: HanabiState, move: HanabiMove, after: HanabiState) -> Mapping[str, float]:
        """What one card is worth, for a life."""
        return {"strike": -1 / after.variant.best_score} if after.lives < before.lives else {}

    def rules(self) -> str:
        """The game in about 270 words, or in three."""
        names = ", ".join(f"player_{i}" for i in range(self.players))
        return WORDINGS[self.wording].rules.format(players=self.players, names=names)

    def reply_format(self) -> str:
        return WORDINGS[self.wording].reply_format

    def observation(self, state: HanabiState, player: int) -> str:
        """The player's view in words."""
        return WORDINGS[self.wording].show(self.view(state, player))

    def show(self, state: HanabiState) -> str:
        """The table with all hands, for people who look on."""
        hands = [f"player_{i}: {' '.join(str(held.card) for held in hand)}" for i, hand in enumerate(state.hands)]
        public = self.view(state, state.player)._replace(own=(), others=((),) * (self.players - 1))
        return "\n".join([WORDINGS[self.wording].show(public), *hands])

    def describe(self, before: HanabiState, move: HanabiMove, after: HanabiState, *, proposed: bool = False) -> str:
        return self.write(move)

    def outcome(self, state: HanabiState) -> Mapping[str, bool | int | float]:
        """`success`, the score, the cards on the fireworks (also after the last life), lives, and cards to draw."""
        return {
            "success": self.solved(state),
            "score": self.score(state),
            "fireworks": sum(state.fireworks),
            "lives": state.lives,
            "deck": len(state.deck),
        }

    def bot(self, state: HanabiState, name: str) -> HanabiMove:
        """The move of a bot for the acting player; see `bots`."""
        return BOTS[name](self.view(state, state.player))

    def _receiver(self, state: HanabiState, move: HanabiMove) -> Hand:
        return state.hands[(state.player + move.offset) % self.players]

    def _with_card(self, state: HanabiState, move: HanabiMove) -> HanabiState:
        """A card is played or discarded, and another one drawn."""
        hand = state.hands[state.player]
        card = hand[move.value].card
        is_next = state.fireworks[card.color] + 1 == card.rank
        is_added = move.kind == PLAY and is_next
        is_strike = move.kind == PLAY and not is_next
        gives_token = move.kind == DISCARD or (is_added and card.rank == RANKS[-1])
        drawn = tuple(HeldCard(new, _untold(state.variant)) for new in state.deck[:1])
        left = (*hand[: move.value], *hand[move.value + 1 :], *drawn)
        return state._replace(
            deck=state.deck[1:],
            hands=_with(state.hands, state.player, left),
            fireworks=_with(state.fireworks, card.color, card.rank) if is_added else state.fireworks,
            discards=state.discards if is_added else (*state.discards, card),
            information=min(state.information + gives_token, state.variant.information),
            lives=state.lives - is_strike,
            events=(*state.events, Event(state.player, move, card, is_strike=is_strike)),
        )

    def _with_hint(self, state: HanabiState, move: HanabiMove) -> HanabiState:
        """Another player is told which of its cards have a color or a rank."""
        hand = self._receiver(state, move)
        named = tuple(i for i, held in enumerate(hand) if _is_named(held.card, move))
        told = tuple(HeldCard(held.card, _after_hint(held.known, move, i in named)) for i, held in enumerate(hand))
        return state._replace(
            hands=_with(state.hands, (state.player + move.offset) % self.players, told),
            information=state.information - 1,
            events=(*state.events, Event(state.player, move, cards=named)),
        )


def _untold(variant: Variant) -> Knowledge:
    """What is known of a card before any hint."""
    return Knowledge((1 << variant.colors) - 1, ALL_RANKS)


def _is_named(card: Card, move: HanabiMove) -> bool:
    return move.value == (card.color if move.kind == COLOR else card.rank)


def _after_hint(known: Knowledge, move: HanabiMove, is_named: bool) -> Knowledge:
    """What is known of a card after a hint that named it, or others in its hand."""
    bit = 1 << (move.value if move.kind == COLOR else move.value - 1)
    if move.kind == COLOR:
        return known._replace(colors=known.colors & (bit if is_named else ~bit))
    return known._replace(ranks=known.ranks & (bit if is_named else ~bit))


def _with(items: tuple[Any, ...], index: int, item: Any) -> tuple[Any, ...]:
    return (*items[:index], item, *items[index + 1 :])
