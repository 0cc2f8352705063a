"""A tester's vectors: the inputs and outputs of a cycle on each line, and what they are worth.

    a=3 b=7 -> y=10

Of a design with a clock the lines are the cycles after its reset, in order, and the outputs those before the edge that
ends the cycle. `rst` is 0 where a line does not name it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from pettingllms_envs.core import Unreadable
from pettingllms_envs.graders.designs import CLOCK, RESET, Port
from pettingllms_envs.replies.fences import fenced_blocks


MOST_LINES, MOST_LINE = 16, 1000
_SETTING = re.compile(r"([A-Za-z_]\w*)=(0x[0-9a-fA-F]+|[0-9]+)", re.A)

Values = Mapping[str, int | None]


class Vector(NamedTuple):
    """A line: the inputs and the outputs, each a name and its number, in the order of the ports."""

    inputs: tuple[tuple[str, int], ...]
    outputs: tuple[tuple[str, int], ...]

    def __str__(self) -> str:
        return f"{_written(self.inputs)} -> {_written(self.outputs)}"

    def agrees(self, found: Values) -> bool:
        """Whether a design that gives these outputs gives those of the line."""
        return all(found.get(name) == number for name, number in self.outputs)


class Review(NamedTuple):
    """What came of the vectors of a turn.

    Args:
        num_valid: Of how many the golden design gives the outputs.
        num_told: How many wrong designs a valid one tells from the golden design.
    """

    num_lines: int = 0
    num_valid: int = 0
    num_wrong: int = 0
    num_told: int = 0

    @property
    def valid(self) -> float:
        """The share of valid lines."""
        return self.num_valid / max(1, self.num_lines)

    @property
    def telling(self) -> float:
        """The share of wrong designs that are told."""
        return self.num_told / max(1, self.num_wrong)


Lines = Sequence[Vector | None]
"""Vectors; None for a line that is none for the ports of the design, and so is not valid."""


def read_vectors(reply: str, ports: Sequence[Port]) -> tuple[Vector | None, ...] | Unreadable:
    """The lines of the one block of vectors in a reply."""
    blocks = fenced_blocks(reply, {"vectors": "vectors"})
    if isinstance(blocks, Unreadable):
        return blocks
    if len(blocks) != 1:
        return Unreadable(f"it has {len(blocks) or 'no'} blocks of vectors, and one is expected")
    lines = [line.strip() for line in blocks[0][1].split("\n") if line.strip()]
    if not 0 < len(lines) <= MOST_LINES:
        return Unreadable(f"it has {len(lines) or 'no'} vectors, and 1 to {MOST_LINES} are expected")
    return tuple(_vector(line, ports) for line in lines)


def vector_of(inputs: Mapping[str, int], outputs: Values, ports: Sequence[Port]) -> Vector:
    """The line of a cycle."""
    given = tuple((port.name, inputs.get(port.name, 0)) for port in ports if port.is_input and port.name != CLOCK)
    return Vector(given, tuple((port.name, outputs[port.name] or 0) for port in ports if not port.is_input))


def inputs_of(lines: Lines) -> list[dict[str, int]]:
    """The inputs of each cycle; in that of a line which is no vector all are 0."""
    return [dict(each.inputs) if each else {} for each in lines]


def reviewed(lines: Lines, golden: Sequence[Values], wrong: Sequence[Sequence[Values]]) -> Review:
    """What vectors are worth, from the outputs of the golden design and of wrong ones in each cycle."""
    valid = [(at, vector) for at, vector in enumerate(lines) if vector and vector.agrees(golden[at])]
    told = sum(not all(vector.agrees(found[at]) for at, vector in valid) for found in wrong)
    return Review(len(lines), len(valid), len(wrong), told)


def _vector(line: str, ports: Sequence[Port]) -> Vector | None:
    given, arrow, due = line.partition("->")
    if len(line) > MOST_LINE or not arrow:
        return None
    inputs = _side(given, [port for port in ports if port.is_input and port.name != CLOCK])
    outputs = _side(due, [port for port in ports if not port.is_input])
    return None if inputs is None or outputs is None else Vector(inputs, outputs)


def _side(text: str, ports: Sequence[Port]) -> tuple[tuple[str, int], ...] | None:
    numbers: dict[str, int] = {}
    for word in text.replace(",", " ").split():
        found = _SETTING.fullmatch(word)
        if found is None or found[1] in numbers:
            return None
        numbers[found[1]] = int(found[2], 0) if found[2][:2] == "0x" else int(found[2])
    if not {port.name for port in ports} - {RESET} <= {*numbers} <= {port.name for port in ports}:
        return None
    named = tuple((port.name, numbers.get(port.name, 0)) for port in ports)
    return named if all(numbers.get(port.name, 0) < 1 << port.width for port in ports) else None


def _written(numbers: Sequence[tuple[str, int]]) -> str:
    return " ".join(f"{name}={number}" for name, number in numbers)
