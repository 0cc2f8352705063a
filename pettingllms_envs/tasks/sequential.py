"""SequentialTask: a base class for games whose players act one after another and each know something else.

`MultiplayerTask` is for players who compete, `CooperativeTask` for a team. Members have the names that they have in
OpenSpiel (Lanctot et al. 2019, arXiv:1908.09453). Players are numbered from 0, in the order of their agents.
"""

from __future__ import annotations

from pettingllms_envs.core import State
from pettingllms_envs.tasks.base import OpenTask


class SequentialTask(OpenTask[State]):
    """A game in which the state says whose turn it is, and what each player knows."""

    __slots__ = ()

    @property
    def num_players(self) -> int:
        """The number of players, at least 2."""
        raise NotImplementedError

    @property
    def max_game_length(self) -> int:
        """The most moves that a game can take."""
        raise NotImplementedError

    def current_player(self, state: State) -> int:
        raise NotImplementedError

    def is_terminal(self, state: State) -> bool:
        raise NotImplementedError

    def observation(self, state: State, player: int) -> str:
        """Everything that a player knows in this state, and nothing that it must not know."""
        raise NotImplementedError

    def show(self, state: State) -> str:
        raise NotImplementedError
