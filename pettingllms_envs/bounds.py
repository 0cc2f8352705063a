"""Optional features of tasks: upper bounds, by proof, of what agents can reach alone or without reading a part."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from fractions import Fraction
from typing import Any, NamedTuple, Protocol, runtime_checkable


@runtime_checkable
class HasLoneBound(Protocol):
    """An optional feature of a task: an upper bound, by proof, of what an agent can reach alone.

    The conformance suite recomputes it if the task also says why there is one: `LimitedAccess` or `LimitedMemory`.
    """

    def lone_bound(self) -> Fraction:
        """The greatest share of successes of any agent in any of the team's forms `alone`."""


BlindPolicy = Callable[[str, random.Random], str]
"""A reply to a prompt, of an agent that does not read what the task says it has to. It draws from the generator."""


def always(reply: str, prompt: str, rng: random.Random) -> str:
    """The blind policy of a constant: `partial(always, reply)`."""
    return reply


@runtime_checkable
class HasBlindBound(Protocol):
    """An optional feature of a task: an upper bound, by proof, of agents that do not read a part of the question.

    A task whose bound is 1 can be solved without it. The conformance suite plays the policies against the bound.
    """

    def blind_bound(self) -> Fraction:
        """The greatest share of successes of such agents, whatever they know of the rest."""

    @property
    def blind_policies(self) -> Mapping[str, BlindPolicy]:
        """The best of such agents that are known, by name. Each plays all agents of a team."""


@runtime_checkable
class LimitedAccess(HasLoneBound, Protocol):
    """An optional feature of a task: an agent alone cannot tell instances with different solutions apart."""

    def look_alikes(self, state: Any, settings: Mapping[str, Any]) -> Sequence[Any]:
        """Tasks in which the state means other instances, all equally likely, this task among them.

        Whatever an agent does alone, it is shown the same in each of them.

        Args:
            settings: Settings of the form in which the agent plays.
        """


class Memory(NamedTuple):
    """What an agent has to remember, and how much it can.

    Args:
        values: For each thing that may be asked for, all equally likely: how many values it can have, uniformly.
        num_notes: How many different notes there are. The agent is shown its notes and the question when it answers,
            and nothing else that depends on the instance.
    """

    values: tuple[int, ...]
    num_notes: int


@runtime_checkable
class LimitedMemory(HasLoneBound, Protocol):
    """An optional feature of a task: what an agent is shown alone does not fit into its notes."""

    def lone_memory(self) -> Memory:
        """What it has to remember, and its notes."""

    def asked(self, state: Any) -> Sequence[Any]:
        """The same instance with each of the questions in turn, as many as `Memory.values`."""
