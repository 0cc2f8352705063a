"""Boards of tasks: rows of tiles, for pictures, terminals and prompts. Optional features, as those of `features`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol, runtime_checkable


class Tile(NamedTuple):
    """How one cell of a board looks.

    Args:
        text: What is written on it, at most two characters; may be empty.
        paper: Colour of the cell, `"#rrggbb"`.
        ink: Colour of the text.
        shape: Under the text: `"none"`, `"disc"`, `"square"` or `"ring"`.
        fill: Colour of the shape.
    """

    text: str
    paper: str
    ink: str = "#000000"
    shape: str = "none"
    fill: str = "#000000"


@runtime_checkable
class Board(Protocol):
    """An optional feature of a task: a board of tiles, for pictures and terminals. Without it the text is drawn."""

    def tiles(self, state: Any) -> Sequence[Sequence[Tile]]:
        """The state as rows of tiles, all rows of the same length."""


@runtime_checkable
class Sheet(Protocol):
    """An optional feature of a task: its tables as a text, which a page shows beside the conversation."""

    def sheet(self, state: Any) -> str:
        """The state in lines of equal columns."""


@runtime_checkable
class HasLegend(Protocol):
    """An optional feature of a task with a board: what the rules' symbols look like in its picture."""

    @property
    def legend(self) -> str:
        """A sentence for a prompt."""


@runtime_checkable
class HasSymbols(HasLegend, Board, Protocol):
    """An optional feature of a task with a board: each tile has a symbol, so the board can be written."""

    @property
    def symbols(self) -> str:
        """All symbols, one character each."""

    def rows(self, state: Any) -> Sequence[str]:
        """The state's symbols row by row, a character for each tile."""
