"""CooperativeTask: a base class for games in which players with different knowledge have one goal.

The workflows of `pettingllms_envs.teams.cooperative` play such a game: each player is an agent, sees its own
observation, and the team is paid the change of the potential.

A subclass needs `name`, `generate`, `rules`, `apply`, `solved`, the members of `SequentialTask`, and `default_move`;
`parse` and `reply_format`, too, unless its moves are free texts; `value` and `ranges` for partial credit; `illegal`,
if some moves are not allowed at all times; `bots` and `bot` for players that are written as rules.
"""

from __future__ import annotations

from typing import Any, ClassVar

from pettingllms_envs.core import State
from pettingllms_envs.tasks.sequential import SequentialTask


class CooperativeTask(SequentialTask[State]):
    """A game of several players with a common goal.

    Frozen dataclasses inherit from it; their fields are the environment's settings.
    """

    __slots__ = ()

    bots: ClassVar[tuple[str, ...]] = ()
    """Names of the players that are written as rules, see `bot`."""

    def default_move(self, state: State) -> Any:
        """The move that is played for a reply that is unreadable or illegal.

        It must be legal, so that nothing is gained that the player could not have had by naming it.
        """
        raise NotImplementedError

    def illegal(self, state: State, move: Any) -> str:
        """Why the acting player may not make the move now, as a clause in fixed words; empty if it may.

        `apply` plays the `default_move` instead of an illegal one.
        """
        return ""

    def bot(self, state: State, name: str) -> Any:
        """The move of one of the `bots` for the acting player, by what that player knows; the same every time."""
        raise NotImplementedError
