"""The code blocks of a page: what runs, what is shown after it, and what cannot run here, with the reason.

A fence of `python`, `bash` or `console` is a block; a fence of `text` right after a Python block is what it prints.
HTML comments before a block, which no reader sees, say what holds for it:

    <!-- not run: needs a GPU -->
    <!-- tested by tests/trl/trainer/test_readme.py -->
    <!-- first: Python that is run before the block -->
    <!-- output varies: it says how long it took -->

The last is for figures: numbers are then compared by their places alone.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass


_BLOCK = re.compile(
    r"(?P<marks>(?:^<!--(?:(?!-->).)*-->\n+)*)"
    r"^(?P<fence>`{3,})(?P<language>python|bash|console)\n(?P<code>.*?)^(?P=fence)\n"
    r"(?:\n^(?P<shown_fence>`{3,})text\n(?P<shown>.*?)^(?P=shown_fence)\n)?",
    re.M | re.S,
)
_MARK = re.compile(r"<!-- (not run|tested by|first|output varies):?\s+(.*?)\s*-->", re.S)


@dataclass(frozen=True, slots=True)
class Block:
    """A code block of a page.

    Args:
        line: Where it begins.
        language: `"python"`, `"bash"` or `"console"`.
        code: Its text.
        shown: What it prints, as the page has it; None where the page does not say.
        marks: What comments before it say, by their first words.
    """

    line: int
    language: str
    code: str
    shown: str | None
    marks: dict[str, str]


@dataclass(frozen=True, slots=True)
class Command:
    """A command of a console block, on one line, and the output that the page shows of it."""

    words: str
    shown: str


def blocks(text: str) -> Iterator[Block]:
    """The code blocks of a page, in their order."""
    for found in _BLOCK.finditer(text):
        yield Block(
            line=text.count("\n", 0, found.start("fence")) + 1,
            language=found["language"],
            code=found["code"],
            shown=found["shown"],
            marks={mark[1]: mark[2].strip() for mark in _MARK.finditer(found["marks"])},
        )


def commands(block: Block) -> Iterator[Command]:
    """The commands of a console block, each after a `$`, or of a bash block, one a line."""
    code = re.sub(r"\\\n\s*", "", block.code)
    if block.language == "bash":
        code = re.sub(r"^(?=[^#\n])", "$ ", code, flags=re.M)
    for piece in re.split(r"^\$ ", code, flags=re.M)[1:]:
        words, _, shown = piece.partition("\n")
        yield Command(words, shown.strip("\n"))
