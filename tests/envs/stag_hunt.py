"""A stag hunt: a game of mixed motives, small enough to work out by hand.

Two hunters choose stag or hare without knowing the other's choice. Two stags are worth 4 to each, a hare 3, a stag
alone 0: both may win, and trust is worth it. Whatever cannot be read is a hare.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, NamedTuple

from pettingllms_envs.core import Unreadable
from pettingllms_envs.instances import seeded
from pettingllms_envs.replies.moves import last_line
from pettingllms_envs.tasks.multiplayer import MultiplayerTask


STAG, HARE = "Hunt: stag", "Hunt: hare"


class Hunt(NamedTuple):
    """The place, which says nothing about the game, and what was chosen so far."""

    place: int
    chosen: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class StagHunt(MultiplayerTask[Hunt]):
    name: ClassVar[str] = "stag_hunt"
    zero_sum: ClassVar[bool] = False
    unreadable_move: ClassVar[str] = HARE
    blind_replies: ClassVar[tuple[str, ...]] = (STAG, HARE)
    instance_fields: ClassVar[dict[str, tuple[object, ...]]] = {}
    num_players: ClassVar[int] = 2
    max_game_length: ClassVar[int] = 2
    utility_range: ClassVar[tuple[float, float]] = (0.0, 4.0)

    def generate(self, seed: int) -> Hunt:
        return Hunt(seeded("stag hunt", seed).randrange(100))

    def parse(self, reply: str) -> str | Unreadable:
        line = last_line(reply)
        return line if line in (STAG, HARE) else Unreadable("it is neither hunt")

    def apply(self, state: Hunt, move: str) -> Hunt:
        return state if self.is_terminal(state) else state._replace(chosen=(*state.chosen, move))

    def current_player(self, state: Hunt) -> int:
        return len(state.chosen)

    def is_terminal(self, state: Hunt) -> bool:
        return len(state.chosen) == 2

    def returns(self, state: Hunt) -> tuple[float, ...]:
        if not self.is_terminal(state):
            return 0.0, 0.0
        return tuple(3.0 if move == HARE else 4.0 * (state.chosen == (STAG, STAG)) for move in state.chosen)

    def rules(self) -> str:
        return "You and another hunter choose. Two stags give 4 to each, a hare 3, a stag alone 0."

    def reply_format(self) -> str:
        return f"End with {STAG} or {HARE}"

    def show(self, state: Hunt) -> str:
        return f"You meet at place {state.place}."

    def observation(self, state: Hunt, player: int) -> str:
        return self.show(state)

    def oracle(self, state: Hunt) -> str:
        return STAG
