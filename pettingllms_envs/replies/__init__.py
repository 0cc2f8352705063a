"""Parsers of model replies: the last line, lists of moves, boxed answers, fenced blocks. They run in linear time.

For an ambiguous reply a parser returns `pettingllms_envs.core.Unreadable` with a reason. It never raises, and nothing
that a model wrote is evaluated.
"""

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
from pettingllms_envs.replies.moves import LETTERS, blind_moves, last_line, match_last_line, read_moves, write_moves


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
