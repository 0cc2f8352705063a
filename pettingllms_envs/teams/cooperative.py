"""Workflows of games whose players have one goal: `team`, an agent for each, and `ad_hoc`, one agent among bots.

* `team`: the role `player`, as often as the game has players. The game says whose turn it is. Each sees what the game
  lets it see, and what came of its own last reply if that was no move.
* `ad_hoc`: the agent is player 0, and the game's bot `partner` plays all others: a frozen partner, in training and in
  tests. What the bots do until the agent's next turn belongs to the agent's step.

Rewards: team `progress`, the change of the game's potential, and `success`, 1 when it is solved. In the player's own
scope the game's costs of its move, and `format`, -0.2, for a reply that is unreadable or not allowed now; instead of
it the game's `default_move` is played, which its player could have named. What a player tells others pays at later
steps: the role is declared as paid later.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, Generic, NamedTuple

from pettingllms_envs.core import (
    TEAM,
    UNREADABLE_PENALTY,
    State,
    Transition,
    Unreadable,
    check_choice,
    check_whole,
    part_ranges,
)
from pettingllms_envs.state_digest import Reported
from pettingllms_envs.tasks.cooperative import CooperativeTask
from pettingllms_envs.teams.seats import SeatWorkflow


class TableState(NamedTuple, Generic[State]):
    """A moment of a game.

    Args:
        turn: The number of the next move, from 1; at the end, of the last one.
        notes: For each player, why its last reply was no move; empty if it was one.
        reported: How many replies were unreadable, and how many moves that were not allowed.
    """

    task: State
    turn: int
    notes: tuple[str, ...]
    reported: Reported = Reported(unreadable=0, illegal=0)


@dataclass(frozen=True, slots=True)
class CooperativeTeam(SeatWorkflow, Generic[State]):
    """The players take their turns until the game is over.

    Args:
        num_turns: Most moves, at least 1; 0 is the most that the game can take.

    Raises:
        TypeError: The task is not a `CooperativeTask`.
        ValueError: `num_turns` is negative.
    """

    task: CooperativeTask[State]
    num_turns: int = 0

    name: ClassVar[str] = "team"
    job: ClassVar[str] = "You play for the team."

    def __post_init__(self) -> None:
        if not isinstance(self.task, CooperativeTask):
            raise TypeError(
                f"the workflow {self.name!r} got the task {type(self.task).__name__}; expected a CooperativeTask. Let "
                "its class inherit from pettingllms_envs.tasks.cooperative.CooperativeTask."
            )
        check_whole("num_turns", self.num_turns, 0)
        object.__setattr__(self, "num_turns", self.num_turns or self.task.max_game_length)
        self.check_seats()

    @property
    def bots(self) -> tuple[str, ...]:
        return self.task.bots

    def start(self, task_state: State) -> TableState[State]:
        """The first move of this instance."""
        return TableState(task_state, 1, ("",) * self.num_agents)

    def observe(self, state: TableState[State], role: str) -> str:
        """What the player knows, the turn if the budget may end the game, and why its last reply was no move."""
        player = self.members.index(role)
        is_short = self.num_turns < self.task.max_game_length
        turn = f"Move {state.turn} of {self.num_turns}." if is_short else ""
        return "\n".join(filter(None, (turn, self.task.observation(state.task, player), state.notes[player])))

    def step(self, state: TableState[State], reply: str) -> Transition[TableState[State]]:
        """Make the acting player's move."""
        role, before = self.actor(state), state.task
        after, own = self._played(state, reply)
        after = self._following(after)
        solved = self.task.solved(after.task)
        team = {"progress": self.task.value(after.task) - self.task.value(before)}
        is_over = self.task.is_terminal(after.task)
        is_late = after.turn > self.num_turns
        if is_over or is_late:
            after = after._replace(turn=after.turn - 1)
        parts = {TEAM: {**team, "success": 1.0} if solved else team, **({role: own} if own else {})}
        return after, parts, is_over, is_late and not is_over

    def bot(self, state: TableState[State], name: str) -> str:
        """The move of one of the game's bots for the acting player."""
        return self.task.write(self.task.bot(state.task, name))

    def ranges(self) -> Mapping[str, tuple[float, float]]:
        """Progress, success, format and the game's costs."""
        return part_ranges(self.task)

    def _played(self, state: TableState[State], reply: str) -> tuple[TableState[State], Mapping[str, float]]:
        """The state after a reply, and what the acting player is paid alone."""
        task, before = self.task, state.task
        move = task.parse(reply)
        is_unreadable = isinstance(move, Unreadable)
        why = move.reason if isinstance(move, Unreadable) else task.illegal(before, move)
        note = ""
        if why:
            move = task.default_move(before)
            note = f"Your last reply was no move: {why}. It was played as {task.write(move)!r}."
        after = task.apply(before, move)
        player = task.current_player(before)
        penalty = {"format": UNREADABLE_PENALTY} if why else {}
        return state._replace(
            task=after,
            turn=state.turn + 1,
            notes=(*state.notes[:player], note, *state.notes[player + 1 :]),
            reported=state.reported.plus(unreadable=is_unreadable, illegal=bool(why) and not is_unreadable),
        ), {**penalty, **task.costs(before, move, after)}

    def _following(self, state: TableState[State]) -> TableState[State]:
        """The state when an agent is to act next."""
        return state


@dataclass(frozen=True, slots=True)
class AdHoc(CooperativeTeam[State]):
    """One agent, player 0, among bots.

    Args:
        partner: The bot that plays all others, one of the task's `bots`; empty for its first.

    Raises:
        ValueError: The game has no such bot.
    """

    partner: str = ""

    name: ClassVar[str] = "ad_hoc"

    def __post_init__(self) -> None:
        CooperativeTeam.__post_init__(self)
        check_choice("partner", self.partner, ("", *self.task.bots))
        object.__setattr__(self, "partner", self.partner or self.task.bots[0])

    @property
    def num_agents(self) -> int:
        return 1

    def start(self, task_state: State) -> TableState[State]:
        """The agent's first move of this instance."""
        return self._following(CooperativeTeam.start(self, task_state))

    def _following(self, state: TableState[State]) -> TableState[State]:
        """The bots have moved until it is the agent's turn, or the end."""
        task = self.task
        while not task.is_terminal(state.task) and task.current_player(state.task) and state.turn <= self.num_turns:
            after = task.apply(state.task, task.bot(state.task, self.partner))
            state = state._replace(task=after, turn=state.turn + 1)
        return state
