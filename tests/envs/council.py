"""Small workflows on Plan-Path in which the team changes, or the play decides who acts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

from pettingllms_envs.core import TEAM, Role, Task, Transition


class Said(NamedTuple):
    """The task's state, the turn, who acts, who is there, and what each wrote."""

    task: Any
    turn: int
    actor: str
    there: tuple[str, ...]
    words: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class Council:
    """Three members and a chair. A reply names who acts next, `leave` takes its agent out, `join X` lets X in.

    Everybody is paid 1 for each reply, and the one who wrote it 10. It ends with the reply `end`.
    """

    task: Task[Any, Any]
    num_turns: int = 4

    name: ClassVar[str] = "council"
    cyclic: ClassVar[bool] = False
    roles: ClassVar[tuple[Role, ...]] = (
        Role("chair", "You are the chair."),
        Role("member", "You are a member.", count=3),
    )

    def start(self, task_state: Any) -> Said:
        return Said(task_state, 1, "chair", ("chair", "member_0"))

    def actor(self, state: Said) -> str:
        return state.actor

    def present(self, state: Said) -> Sequence[str]:
        return state.there

    def system(self, role: str) -> str:
        return f"You are {role}."

    def observe(self, state: Said, role: str) -> str:
        return f"{role} reads {len(state.words)} replies"

    def step(self, state: Said, reply: str) -> Transition[Said]:
        verb, _, name = reply.partition(" ")
        there, actor = state.there, state.actor
        if verb == "join":
            there = (*there, name)
        elif verb == "leave":
            there, actor = tuple(each for each in there if each != actor), name
        elif verb == "ask":
            actor = name
        words = (*state.words, (state.actor, reply))
        parts = {TEAM: {"reply": 1.0}, state.actor: {"own": 10.0}}
        return Said(state.task, 1, actor, there, words), parts, reply == "end", False

    def oracle(self, state: Said) -> str:
        return "end"

    def ranges(self) -> Mapping[str, tuple[float, float]]:
        return {"reply": (0.0, 1.0), "own": (0.0, 10.0)}
