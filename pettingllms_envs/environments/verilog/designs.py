"""What a design is: a specification, the ports, and two golden forms of the module."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from pettingllms_envs.graders.designs import CLOCK, TOP, Port


class Design(NamedTuple):
    """A specification with its golden forms.

    Args:
        family: What it is one of; empty for a design of a data set.
        ports: In the order of the header.
        other: The same, written in another way; empty where there is one form only.
        structure: What it shares with designs that are alike but for names and order; the name of one of a data set.
    """

    family: str
    text: str
    ports: tuple[Port, ...]
    golden: str
    other: str
    structure: str

    @property
    def clocked(self) -> bool:
        return any(port.name == CLOCK for port in self.ports)


def header(ports: Sequence[Port], name: str = TOP) -> str:
    """The first line of a module with these ports."""
    return f"module {name}({', '.join(map(_declared, ports))});"


def design(text: str, inputs: str, outputs: str, forms: tuple[str, str], family: str, *structure: object) -> Design:
    """A design of two bodies, whose ports are words such as `a`, or `a:4` for four bits."""
    words = [(word, True) for word in inputs.split()] + [(word, False) for word in outputs.split()]
    ports = tuple(
        Port(name, int(width or 1), is_input) for word, is_input in words for name, _, width in (word.partition(":"),)
    )
    golden, other = (f"{header(ports)}\n{body}\nendmodule" for body in forms)
    return Design(family, text, ports, golden, other, repr((family, *structure)))


def bits(width: int) -> str:
    """The range of a vector, with a space behind it; empty for one bit."""
    return f"[{width - 1}:0] " if width > 1 else ""


def _declared(port: Port) -> str:
    return f"{'input' if port.is_input else 'output'} {bits(port.width)}{port.name}"
