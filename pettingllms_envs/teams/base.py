"""BaseWorkflow, and TurnWorkflow for teams that act in a fixed order, where the last role's reply is played.

A subclass of `TurnWorkflow` needs two members: `name` and `roles`. In each turn every agent acts once, in order; what
the others write is a message to those after them in the same turn, and the last one's reply is the move:

    @dataclass(frozen=True, slots=True)
    class Advise(TurnWorkflow):
        name: ClassVar[str] = "advise"
        roles: ClassVar[tuple[Role, ...]] = (
            Role("adviser", "You are the adviser. Tell the player what to do.", delayed=True),
            Role("player", "You are the player. You read the advice and decide. Your moves are played."),
        )

Override `channel` for messages of another length, `observe` for what each agent is shown, and `pay` to reward
messages; roles whose messages are not paid for themselves are `delayed`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Generic, NamedTuple

from pettingllms_envs.core import (
    Move,
    Role,
    State,
    Task,
    Transition,
    best_reply,
    check_whole,
    part_ranges,
    play,
    situation,
    system_prompt,
)
from pettingllms_envs.state_digest import Reported
from pettingllms_envs.teams.channels import NO_MESSAGES, Channel, Sent


@dataclass(frozen=True, slots=True)
class BaseWorkflow(Generic[State, Move]):
    """What workflows have in common: a task, a turn budget, the task's oracle, and its parts of the reward.

    Args:
        num_turns: Turn budget, at least 1.

    Raises:
        ValueError: `num_turns` is not a whole number of at least 1.
    """

    task: Task[State, Move]
    num_turns: int = 4

    name: ClassVar[str]
    cyclic: ClassVar[bool] = True

    def __post_init__(self) -> None:
        check_whole("num_turns", self.num_turns, 1)

    def oracle(self, state: Any) -> str:
        """The task's best move."""
        return best_reply(self.task, state.task)

    def ranges(self) -> Mapping[str, tuple[float, float]]:
        """Progress, success, format and the task's costs."""
        return part_ranges(self.task)


class TurnState(NamedTuple, Generic[State]):
    """A moment of an episode.

    Args:
        messages: The messages of this turn so far, one from each agent that has acted.
        reported: How many messages were sent in the episode, and their characters.
    """

    task: State
    turn: int = 1
    feedback: str = ""
    messages: tuple[Sent, ...] = ()
    reported: Reported = NO_MESSAGES


@dataclass(frozen=True, slots=True)
class TurnWorkflow(BaseWorkflow[State, Move]):
    """Each agent acts once in a turn, in a fixed order, and the last one's reply is played."""

    roles: ClassVar[tuple[Role, ...]]
    channel: ClassVar[Channel] = Channel()
    state_form: ClassVar[int] = 2

    def outcome(self, state: Any) -> Mapping[str, Any]:
        """How many messages arrived, and their characters in total."""
        return dict(state.reported)

    def pay(self, state: TurnState[State], role: str, reply: str) -> Mapping[str, float]:
        """The parts of the reward for a message, by name; by default none. Declare them in `ranges`."""
        return {}

    def start(self, task_state: State) -> TurnState[State]:
        """Turn 1 on this instance, the first agent to act."""
        return TurnState(task_state)

    def actor(self, state: TurnState[State]) -> str:
        """The first agent that has not acted in this turn."""
        return self._members()[len(state.messages)]

    def system(self, role: str) -> str:
        """The rules, the role's job, how to reply: as a move for the last role, in free words for the others."""
        job = next(each for each in self.roles if role in each.members)
        if role == self._members()[-1]:
            return system_prompt(self.task, job)
        fate = f"Your reply is shown to those who act after you, up to {self.channel.capacity} characters."
        return "\n".join(filter(None, (self.task.rules(), job.job, job.reply_format, fate)))

    def observe(self, state: TurnState[State], role: str) -> Any:
        """The situation, what came of the last turn, and the messages of this turn so far."""
        return situation(self, state, state.feedback, *(sent.shown for sent in state.messages))

    def step(self, state: TurnState[State], reply: str) -> Transition[TurnState[State]]:
        """Send the acting agent's message or, of the last one, play the move and end the turn."""
        members = self._members()
        role = members[len(state.messages)]
        if role != members[-1]:
            sent = self.channel.send(role, reply)
            after = state._replace(
                messages=(*state.messages, sent),
                reported=state.reported.plus(messages=1, message_chars=len(sent.text)),
            )
            paid = self.pay(state, role, reply)
            return after, {role: paid} if paid else {}, False, False
        task_state, solved, parts, feedback = play(self.task, state.task, reply, role)
        over = solved or state.turn == self.num_turns
        after = state._replace(task=task_state, turn=state.turn + (not over), feedback=feedback, messages=())
        return after, parts, solved, over and not solved

    def _members(self) -> list[str]:
        return [member for role in self.roles for member in role.members]
