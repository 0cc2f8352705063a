"""Parsers of model replies: the last line, lists of moves, boxed answers, fenced blocks. They run in linear time.

For an ambiguous reply a parser returns `pettingllms_envs.core.Unreadable` with a reason. It never raises, and nothing
that a model wrote is evaluated. A module is loaded when one of its names is used.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any


if TYPE_CHECKING:
    from pettingllms_envs.replies.boxes import boxed
    from pettingllms_envs.replies.fences import (
        END_OF_THINKING,
        FENCE,
        PYTHON,
        Blocks,
        fence,
        fenced_blocks,
        only_program,
        read_blocks,
    )
    from pettingllms_envs.replies.moves import (
        LETTERS,
        blind_moves,
        last_line,
        match_last_line,
        read_moves,
        write_moves,
    )

__all__ = [
    "END_OF_THINKING",
    "FENCE",
    "LETTERS",
    "PYTHON",
    "Blocks",
    "blind_moves",
    "boxed",
    "fence",
    "fenced_blocks",
    "last_line",
    "match_last_line",
    "only_program",
    "read_blocks",
    "read_moves",
    "write_moves",
]

_MOVES = ("LETTERS", "blind_moves", "last_line", "match_last_line", "read_moves", "write_moves")

if not TYPE_CHECKING:  # a type checker that sees it takes every misspelt name for an Any

    def __getattr__(name: str) -> Any:
        if name not in __all__:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}. It has: {', '.join(__all__)}.")
        home = "moves" if name in _MOVES else "boxes" if name == "boxed" else "fences"
        return getattr(importlib.import_module(f"{__name__}.{home}"), name)
