"""A third-party workflow on a task of this package: an adviser says something, and a player moves."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

from pettingllms_envs.assembly import assemble
from pettingllms_envs.core import Role, Task, Transition, part_ranges, play, situation
from pettingllms_envs.environments.plan_path.rules import PlanPath


ROLES = (Role("adviser", "You say something."), Role("player", "You move."))


class WhisperState(NamedTuple):
    """The task's state, the turn, and what was said in it."""

    task: Any
    turn: int = 1
    said: str | None = None


@dataclass(frozen=True, slots=True)
class Whisper:
    """The workflow; `loud` are the words that the player hears."""

    task: Task[Any, Any]
    num_turns: int = 2
    loud: tuple[tuple[str, ...], ...] = ()

    name: ClassVar[str] = "whisper"
    cyclic: ClassVar[bool] = True
    roles: ClassVar[tuple[Role, ...]] = ROLES

    def start(self, task_state: Any) -> WhisperState:
        return WhisperState(task_state)

    def actor(self, state: WhisperState) -> str:
        return "adviser" if state.said is None else "player"

    def system(self, role: str) -> str:
        return f"{self.task.rules()}\n{self.task.reply_format()}"

    def observe(self, state: WhisperState, role: str) -> str:
        return situation(self, state, state.said or "")

    def step(self, state: WhisperState, reply: str) -> Transition[WhisperState]:
        if state.said is None:
            return state._replace(said=reply), {}, False, False
        after, solved, parts, _ = play(self.task, state.task, reply, "player")
        over = solved or state.turn == self.num_turns
        return WhisperState(after, state.turn + (not over)), parts, solved, over and not solved

    def oracle(self, state: WhisperState) -> str:
        return "Well" if state.said is None else self.task.write(self.task.oracle(state.task))

    def ranges(self) -> Mapping[str, tuple[float, float]]:
        return part_ranges(self.task)


raw_env, env, parallel_env = assemble(PlanPath, __name__, (Whisper,))
