"""Workflow `match`: the players of a game, each of whom plays for itself.

Roles: `player`, as often as the game has players; a subclass may name them instead, such as a seller and a buyer:

    class Market(Match):
        roles = (Role("seller", "You sell the lamp.", delayed=True), Role("buyer", "You buy it.", delayed=True))

The game says whose turn it is, so a player's turns are its own
moves. Each sees what the game lets it see, and whether its last reply could be read.
Rewards: `payoff`, to each player in its own scope: what it won or lost by the move, also by those of the others. The
sum over an episode is its return in the game. Nobody is paid as a team. A game is decided at its end, so the role is
declared as paid later.
An unreadable reply is played as a legal move, the game's `unreadable_move`. There is no penalty besides, which would
have to be somebody else's gain in a zero-sum game.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, Generic, NamedTuple

from pettingllms_envs.core import State, Transition, Unreadable
from pettingllms_envs.state_digest import Reported
from pettingllms_envs.tasks.multiplayer import MultiplayerTask
from pettingllms_envs.teams.seats import SeatWorkflow


class MatchState(NamedTuple, Generic[State]):
    """A moment of a match.

    Args:
        turn: The number of the next move, from 1; at the end, of the last one.
        notes: For each player, why its last reply was unreadable; empty if it was not.
        reported: How many replies were unreadable.
    """

    task: State
    turn: int
    notes: tuple[str, ...]
    reported: Reported = Reported(unreadable=0)


@dataclass(frozen=True, slots=True)
class Match(SeatWorkflow, Generic[State]):
    """The players of a game take their turns until it is over.

    Args:
        num_turns: Most moves of a match; 0 is the most that the game can take, and it cannot be less: a game that is
            cut short has no result.

    Raises:
        TypeError: The task is not a game of several players.
        ValueError: `num_turns` is less than the moves that the game can take, or the roles of a subclass have more or
            fewer agents than the game has players.
    """

    task: MultiplayerTask[State]
    num_turns: int = 0

    name: ClassVar[str] = "match"
    job: ClassVar[str] = "You play for yourself: win as much as you can."

    def __post_init__(self) -> None:
        if not isinstance(self.task, MultiplayerTask):
            raise TypeError(
                f"the workflow 'match' got the task {type(self.task).__name__}; expected a MultiplayerTask. Let its "
                "class inherit from pettingllms_envs.tasks.multiplayer.MultiplayerTask."
            )
        longest = self.task.max_game_length
        if not isinstance(self.num_turns, int) or 0 != self.num_turns < longest:
            raise ValueError(
                f"num_turns is {self.num_turns!r}; expected 0 or at least {longest}, the most moves of the game, "
                "since it has no result before its end. Leave it out."
            )
        object.__setattr__(self, "num_turns", self.num_turns or longest)
        self.check_seats()

    def start(self, task_state: State) -> MatchState[State]:
        """The first move of this instance."""
        return MatchState(task_state, 1, ("",) * self.task.num_players)

    def observe(self, state: MatchState[State], role: str) -> str:
        """What the player knows, and what came of its last reply if that was unreadable."""
        player = self.members.index(role)
        note = state.notes[player]
        shown = self.task.observation(state.task, player)
        return f"{shown}\n{note}" if note else shown

    def step(self, state: MatchState[State], reply: str) -> Transition[MatchState[State]]:
        """Make the acting player's move and pay everybody what it won or lost by it."""
        task, before = self.task, state.task
        player = task.current_player(before)
        move = task.parse(reply)
        note, is_unreadable = "", isinstance(move, Unreadable)
        if isinstance(move, Unreadable):
            reason, move = move.reason, task.unreadable_move
            note = f"Your last reply was unreadable: {reason}. It was played as {task.write(move)!r}."
        after = task.apply(before, move)
        won = [new - old for new, old in zip(task.returns(after), task.returns(before), strict=True)]
        is_over = task.is_terminal(after)
        following = MatchState(
            after,
            state.turn + (not is_over),
            (*state.notes[:player], note, *state.notes[player + 1 :]),
            state.reported.plus(unreadable=is_unreadable),
        )
        members = self.members
        parts = {members[i]: {"payoff": each} for i, each in enumerate(won)} if any(won) else {}
        return following, parts, is_over, False

    def ranges(self) -> Mapping[str, tuple[float, float]]:
        """What one move can win or lose a player."""
        return {"payoff": self.task.utility_range}
