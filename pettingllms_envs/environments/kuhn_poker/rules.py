"""Kuhn poker for two or three players: one card each, one round of betting, one size of bet.

Rules: the deck has one card more than there are players, J < Q < K, and A with three players. Everybody pays an
ante of one chip and is dealt one card, which nobody else sees. The players act in turn. As long as nobody has bet, a
player checks or bets one chip; after a bet, each of the others calls it or folds, once. The hand is over when all have
checked or all have answered the bet; the highest card among those who bet or called, or among all if nobody did, wins
the pot.
Replies: the last line, `Action: bet` (bets, or calls) or `Action: pass` (checks, or folds). The words of the table
will do as well: a call is a bet, a check or a fold is a pass, so that every action is legal at every time. An
unreadable reply is a pass. It wins and costs what a pass does, no more and no less, so neither its player nor anybody
else can gain by it.
Rewards: `payoff`, the chips that a player wins or loses, all at the end of the hand and in its own scope. They add up
to 0. With two players it is between -2 and 2, with three between -2 and 4.
Outcome: `pot`, chips in it; `showdown`, whether cards were compared; `unreadable` replies.
Instances: a seed decides the cards, and a random number for each move, which only the oracle uses. There are 6 deals
for two players and 24 for three, so there are no splits: nothing could be held out. The option `deal` gives the cards.
Oracle: an equilibrium strategy (`equilibrium`). It is mixed, and draws by the instance's random numbers:
the same in the same state, and with the right probabilities over the seeds. With two players it guarantees its share
of the game; with three, only that nobody gains by deviating alone.
Source: H. W. Kuhn, "A simplified two-person poker", Contributions to the Theory of Games 1 (1950), 97-103; for three
players N. Abou Risk and D. Szafron, "Using counterfactual regret minimization to create competitive multiplayer poker
agents", AAMAS 2010. The rules are those of OpenSpiel's `kuhn_poker`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

from pettingllms_envs.core import Unreadable, check_choice
from pettingllms_envs.environments.kuhn_poker.equilibrium import bet_probability
from pettingllms_envs.instances import seeded
from pettingllms_envs.replies.moves import match_last_line
from pettingllms_envs.tasks.multiplayer import MultiplayerTask


RANKS = "JQKA"
BET, PASS = "bet", "pass"
ACTIONS = {"bet": BET, "call": BET, "pass": PASS, "check": PASS, "fold": PASS}

_ACTION = re.compile(rf"action:[ \t]*({'|'.join(ACTIONS)})\.?", re.I | re.A)


class KuhnState(NamedTuple):
    """A hand.

    Args:
        cards: The rank of each player's card, from 0 for J.
        draws: A random number in [0, 1) for each move that there may be; only the oracle looks at them.
        history: A letter for each action so far, `b` for a bet or call, `p` for a check or fold.
    """

    cards: tuple[int, ...]
    draws: tuple[float, ...]
    history: str = ""


@dataclass(frozen=True, slots=True)
class KuhnPoker(MultiplayerTask[KuhnState]):
    """The task. Its state is a `KuhnState`, its move `"bet"` or `"pass"`.

    Args:
        players: Number of players, 2 or 3.
    """

    players: int = 2

    name: ClassVar[str] = "kuhn_poker"
    zero_sum: ClassVar[bool] = True
    unreadable_move: ClassVar[str] = PASS
    instance_fields: ClassVar[Mapping[str, tuple[object, ...]]] = {"deal": ()}
    blind_replies: ClassVar[tuple[str, ...]] = ("Action: bet", "Action: pass")

    def __post_init__(self) -> None:
        check_choice("players", self.players, (2, 3))

    @property
    def num_players(self) -> int:
        """2 or 3."""
        return self.players

    @property
    def max_game_length(self) -> int:
        """All check but the last, who bets; then all others answer."""
        return 2 * self.players - 1

    @property
    def utility_range(self) -> tuple[float, float]:
        """The ante and a bet lost; those of all others won."""
        return -2.0, 2.0 * (self.players - 1)

    def generate(self, seed: int, deal: str | None = None) -> KuhnState:
        """The hand of a seed.

        Args:
            deal: The players' cards in order, such as `"KJ"`; None for those that the seed deals.
        """
        rng = seeded("kuhn_poker", "v0", self.players, seed)
        cards = tuple(rng.sample(range(self.players + 1), self.players))
        draws = tuple(rng.random() for _ in range(self.max_game_length))
        return KuhnState(cards if deal is None else self._read_deal(deal), draws)

    def parse(self, reply: str) -> str | Unreadable:
        """The action that the last line names."""
        found = match_last_line(_ACTION, reply, "'Action: bet' or 'Action: pass'")
        return found if isinstance(found, Unreadable) else ACTIONS[found[1].lower()]

    def apply(self, state: KuhnState, move: str) -> KuhnState:
        """The hand after the action; at its end nothing changes."""
        return state if self.is_terminal(state) else state._replace(history=state.history + move[0])

    def current_player(self, state: KuhnState) -> int:
        return len(state.history) % self.players

    def is_terminal(self, state: KuhnState) -> bool:
        bettor = state.history.find("b")
        return len(state.history) == self.players + max(bettor, 0)

    def returns(self, state: KuhnState) -> tuple[float, ...]:
        """Chips won or lost at the end of the hand; until then 0."""
        if not self.is_terminal(state):
            return (0.0,) * self.players
        stakes, winner = self._stakes(state.history), self._winner(state)
        pot = float(sum(stakes))
        return tuple(pot - stake if player == winner else -float(stake) for player, stake in enumerate(stakes))

    def rules(self) -> str:
        """The game in about 110 words."""
        deck = ", ".join(RANKS[: self.players + 1])
        return (
            f"Kuhn poker with {self.players} players, {' and '.join(f'player_{i}' for i in range(self.players))}. The "
            f"deck has the cards {deck}, from lowest to highest. Everybody pays an ante of 1 chip and is dealt one "
            "card, which nobody else sees. You act in turn, player_0 first. As long as nobody has bet, you either "
            "check, or bet 1 chip. Once somebody has bet, each of the others either calls for 1 chip or folds, and "
            "then the hand is over. It is over, too, when all have checked. The highest card among those who bet or "
            "called, or among all if nobody bet, wins all chips. Who folds loses the ante."
        )

    def reply_format(self) -> str:
        return (
            "End your reply with one line, Action: bet (to bet, or to call) or Action: pass (to check, or to fold). "
            "Any other reply is a pass."
        )

    def show(self, state: KuhnState) -> str:
        """The betting so far, the pot, and who is to act."""
        actions = [f"player_{i % self.players} {self._word(state.history, i)}" for i in range(len(state.history))]
        end = "The hand is over." if self.is_terminal(state) else f"player_{self.current_player(state)} is to act."
        pot = sum(self._stakes(state.history))
        return f"Betting so far: {', '.join(actions) or 'none'}.\nPot: {pot} chips.\n{end}"

    def observation(self, state: KuhnState, player: int) -> str:
        """The player's own card, and what everybody knows."""
        return f"Your card: {RANKS[state.cards[player]]}\n{self.show(state)}"

    def describe(self, before: KuhnState, move: str, after: KuhnState, *, proposed: bool = False) -> str:
        """The action as it is called at the table, such as `"folds"`."""
        at = len(before.history)
        return self._word(before.history + move[0], at)

    def write(self, move: str) -> str:
        """`Action: bet` or `Action: pass`."""
        return f"Action: {move}"

    def oracle(self, state: KuhnState) -> str:
        """The acting player's action in equilibrium: drawn by the instance's random number for this move."""
        at = len(state.history)
        if self.is_terminal(state):
            return PASS
        chance = bet_probability(self.players, state.cards[at % self.players], state.history)
        return BET if state.draws[at] < chance else PASS

    def outcome(self, state: KuhnState) -> Mapping[str, bool | int | float]:
        """Chips in the pot, and whether it came to a showdown."""
        stakes = self._stakes(state.history)
        showdown = self.is_terminal(state) and ("b" not in state.history or stakes.count(2) > 1)
        return {"pot": sum(stakes), "showdown": showdown}

    def _stakes(self, history: str) -> list[int]:
        """Chips that each player has put in: the ante, and one for a bet or call."""
        return [1 + ("b" in history[player :: self.players]) for player in range(self.players)]

    def _winner(self, state: KuhnState) -> int:
        stakes = self._stakes(state.history)
        return max(
            (player for player, stake in enumerate(stakes) if stake == max(stakes)), key=state.cards.__getitem__
        )

    def _word(self, history: str, at: int) -> str:
        """The name of an action at the table."""
        if "b" in history[:at]:
            return "calls" if history[at] == "b" else "folds"
        return "bets" if history[at] == "b" else "checks"

    def _read_deal(self, deal: str) -> tuple[int, ...]:
        deck = RANKS[: self.players + 1]
        cards = "".join(str(deal).upper().split())
        if len(cards) != self.players or len(set(cards)) != self.players or set(cards) - set(deck):
            raise ValueError(
                f"the deal is {deal!r}; expected {self.players} different cards of {deck}, player_0's first, such as "
                f"{deck[: self.players]!r}."
            )
        return tuple(deck.index(card) for card in cards)
