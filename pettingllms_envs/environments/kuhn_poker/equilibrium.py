"""Equilibrium strategies of Kuhn poker, as the probability of a bet or call by card and history.

Two players: Kuhn's family with alpha, the probability that the first player bets a J, here 1/3. The first player
loses 1/18 of a chip a hand on average, whatever it does about it.

Three players: a member of the family in D. Szafron, R. Gibson and N. Sturtevant, "A parameterized family of
equilibrium profiles for three-player Kuhn poker", AAMAS 2013, with c11 = 0, b11 = b21 = 1/4, b23 = b32 = c34 = 0 and
c33 = 1/2, in their names. The players' values are -1/32, -1/48 and 5/96. No player gains by deviating alone, but one
that deviates can cost a second something to the gain of the third, so no strategy guarantees a value.

tests/envs/test_kuhn_poker.py computes both values and all best responses exactly.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType


Chances = tuple[float, ...]

ALPHA = 1 / 3

TWO: Mapping[str, Chances] = MappingProxyType(
    {  # history: the probability of b with J, Q, K
        "": (ALPHA, 0.0, 3 * ALPHA),
        "p": (1 / 3, 0.0, 1.0),
        "b": (0.0, 1 / 3, 1.0),
        "pb": (0.0, ALPHA + 1 / 3, 1.0),
    }
)

THREE: Mapping[str, Chances] = MappingProxyType(
    {  # with J, Q, K, A
        "": (0.0, 0.0, 0.0, 0.0),
        "p": (1 / 4, 1 / 4, 0.0, 1.0),
        "b": (0.0, 0.0, 0.0, 1.0),
        "pp": (0.0, 1 / 2, 0.0, 1.0),
        "pb": (0.0, 0.0, 0.0, 1.0),
        "bp": (0.0, 0.0, 1 / 2, 1.0),
        "bb": (0.0, 0.0, 0.0, 1.0),
        "ppb": (0.0, 0.0, 0.0, 1.0),
        "pbp": (0.0, 0.0, 1 / 2, 1.0),
        "pbb": (0.0, 0.0, 0.0, 1.0),
        "ppbp": (0.0, 0.0, 7 / 8, 1.0),
        "ppbb": (0.0, 0.0, 0.0, 1.0),
    }
)


def bet_probability(players: int, card: int, history: str) -> float:
    """The probability with which the player to act, of 2 or 3, bets or calls with a card of a rank, from 0.

    The history has a `b` or `p` for each action so far.
    """
    return (TWO if players == 2 else THREE)[history][card]
