"""What a reply does, and whose it may be."""

from __future__ import annotations

import re
from typing import NamedTuple


CALL, SAY, ASK, END = "call", "say", "ask", "end"
_WORD = re.compile(r"\w+")
SIDES = USER, ASSISTANT, SPECIALIST = "user", "assistant", "specialist"


class ServiceMove(NamedTuple):
    """What a reply does."""

    kind: str  # "call", "say", "ask" or "end"
    text: str = ""  # the message, or a call's arguments as they are written
    name: str = ""  # the tool's; empty for several calls at once, none of which is made


def words_in(text: str) -> list[str]:
    """The whole words of a text, in lower case."""
    return _WORD.findall(text.lower())
