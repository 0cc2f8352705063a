"""Parses fenced blocks, the text between a line such as "```python" and the next line "```"; takes thoughts off."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import NamedTuple

from pettingllms_envs.core import Unreadable


FENCE = "```"
END_OF_THINKING = "</think>"
PYTHON: Mapping[str, str] = {"python": "Python", "py": "Python", "python3": "Python"}
"""The info strings of a block of Python."""

MAX_PROGRAM = 20_000
"""Most characters of a program that is run for a role."""

_THOUGHTS = r"think|thinking|thoughts?|reasoning|seed:think|longcat_think"
_OPENING = re.compile(
    rf"(?i)<(?:{_THOUGHTS})>|<\|(?:think|begin_of_thought|start_thinking|inner_prefix)\|>|\[THINK\]|◁think▷"
    r"|<\|?channel\|?>(?:analysis|thought)"
)
_ENDING = re.compile(
    rf"(?i)</(?:{_THOUGHTS})>|<\|(?:/think|end_of_thought|end_thinking|inner_suffix)\|>|\[/THINK\]|◁/think▷|<channel\|>"
    r"|(?:<\|channel\|>|assistant)final(?:<\|message\|>)?"
)
_SIGNS = ("<", "[think", "[/think", "◁", "final")
"""One of them is in each opening and ending, in lower case; texts without any are told sooner than by the patterns."""


class Blocks(NamedTuple):
    """The fenced blocks of a reply.

    Args:
        found: Kind and text of each block, in order.
        unclosed: The kind of a last block that has no end, or None.
        rest: The text after the last block, or all of the reply if it has none.
    """

    found: list[tuple[str, str]]
    unclosed: str | None
    rest: str


def read_blocks(reply: str, kinds: Mapping[str, str]) -> Blocks:
    r"""Find the fenced blocks of a reply, in time linear in its length.

    Blocks before a line `</think>`, with which reasoning models end their thinking, are ignored: drafts are no answer.

    Args:
        reply: The reply. Its lines end as `str.splitlines` has it; within a block `"\r\n"` becomes `"\n"`.
        kinds: From the word after the three backticks, in lower case, to the kind of block; others are ignored.
    """
    openings = {f"{FENCE}{word}": kind for word, kind in kinds.items()}
    found: list[tuple[str, str]] = []
    lines: list[str] = []
    rest: list[str] = []
    kind = None
    for line in reply.splitlines(keepends=True):
        mark = line.strip()
        if mark == END_OF_THINKING:
            found, kind = [], None
        elif kind is None:
            kind = openings.get(mark.lower()) if mark.startswith(FENCE) else None
            if kind is None:
                rest.append(line)
            else:
                lines, rest = [], []
        elif mark == FENCE:
            found.append((kind, "".join(lines)[:-1]))
            kind = None
        else:
            lines.append(f"{line[:-2]}\n" if line.endswith("\r\n") else line)
    return Blocks(found, kind, "".join(rest))


def fenced_blocks(reply: str, kinds: Mapping[str, str]) -> list[tuple[str, str]] | Unreadable:
    """Kind and text of each block of a reply, as `read_blocks` has them; unreadable if the last one has no end."""
    blocks = read_blocks(reply, kinds)
    return Unreadable(f"its block of {blocks.unclosed} has no end") if blocks.unclosed else blocks.found


def only_program(reply: str) -> str | Unreadable:
    """The text of the only block of Python in a reply; unreadable if there is none or a second one, or if too long."""
    blocks = fenced_blocks(reply, PYTHON)
    if isinstance(blocks, Unreadable):
        return blocks
    if len(blocks) != 1:
        return Unreadable(f"it has {len(blocks) or 'no'} blocks of Python, and one is expected")
    program = blocks[0][1]
    if len(program) > MAX_PROGRAM:
        return Unreadable(f"its program is longer than {MAX_PROGRAM} characters")
    return program


def fence(text: str, language: str = "") -> str:
    """A text between fences."""
    return f"{FENCE}{language}\n{text}\n{FENCE}"


def without_thoughts(reply: str) -> str:
    """What a reply says after its thoughts, however they are marked; what stands before those that have no end."""
    return split_thoughts(reply)[1]


def split_thoughts(reply: str) -> tuple[str, str, str]:
    """The thoughts of a reply, what it says after them, and further thoughts that have no end."""
    lower = reply.lower()
    if not any(sign in lower for sign in _SIGNS):
        return "", reply, ""
    start = max((match.end() for match in _ENDING.finditer(reply)), default=0)
    opening = _OPENING.search(reply, start)
    end = len(reply) if opening is None else opening.start()
    return reply[:start], reply[start:end], reply[end:]
