"""OpenTask: a base class for open-ended tasks, with defaults for what only a game with an exact solution has.

A subclass needs six members: `name`, `generate`, `rules`, `show`, `apply` and `solved`. Everything else that
`pettingllms_envs.core.Task` asks for has a default, to be overridden where there is something better to say.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, ClassVar, Generic

from pettingllms_envs.core import SPLITS, State, Unreadable


MAX_SHOWN = 200
"""Characters of a move that the words about the last turn quote."""


class OpenTask(Generic[State]):
    """A task without an oracle whose moves are texts and whose potential is 1 if it is solved, else 0.

    Frozen dataclasses inherit from it; their fields are the environment's settings.
    """

    __slots__ = ()

    name: ClassVar[str]
    version: ClassVar[int] = 0
    instance_fields: ClassVar[Mapping[str, tuple[object, ...]]] = {"split": SPLITS}
    blind_replies: ClassVar[tuple[str, ...]] = ()

    def generate(self, seed: int, *args: Any, **fields: Any) -> State:
        """The start state of the instance given by the seed and the `instance_fields`, the same in every process."""
        raise NotImplementedError

    def rules(self) -> str:
        """The task in a few plain sentences, for a system prompt."""
        raise NotImplementedError

    def show(self, state: State) -> str:
        """Everything that a player needs to know about the state, but not a solution."""
        raise NotImplementedError

    def apply(self, state: State, move: Any) -> State:
        raise NotImplementedError

    def solved(self, state: State) -> bool:
        """Whether the goal is reached, by the outcome alone."""
        raise NotImplementedError

    def parse(self, reply: str) -> Any | Unreadable:
        """The whole reply, without white space around it; unreadable if it is empty."""
        return reply.strip() or Unreadable("it is empty")

    def value(self, state: State) -> float:
        """1 if solved, else 0. Override it, and `ranges`, for partial credit."""
        return float(self.solved(state))

    def ranges(self) -> Mapping[str, tuple[float, float]]:
        """The potential is between 0 and 1, and moves cost nothing."""
        return {"value": (0.0, 1.0)}

    def costs(self, before: State, move: Any, after: State) -> Mapping[str, float]:
        return {}

    def reply_format(self) -> str:
        """Nothing to say: the whole reply is the move."""
        return ""

    def describe(self, before: State, move: Any, after: State, *, proposed: bool = False) -> str:
        """The move, quoted and shortened."""
        from pettingllms_envs.quoting import quote_inline  # most tasks have a description of their own

        words = str(move)
        words = words if len(words) <= MAX_SHOWN else f"{words[:MAX_SHOWN]} ..."
        return quote_inline(json.dumps(words, ensure_ascii=False))

    def write(self, move: Any) -> str:
        return str(move)

    def outcome(self, state: State) -> Mapping[str, bool | int | float]:
        return {"success": self.solved(state)}
