"""What a report is made of: headings, paragraphs, lists, tables and pictures, which are written as Markdown here."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple


_MARKDOWN = re.compile(r"([\\<*]|(?<=\])\()")


class Heading(NamedTuple):
    """A heading; level 1 is the title."""

    text: str
    level: int


class Paragraph(NamedTuple):
    """A paragraph."""

    text: str


class Items(NamedTuple):
    """A list."""

    texts: Sequence[str]


class Bold(str):
    """A cell in bold."""


class Table(NamedTuple):
    """A table of texts. Columns after the first are numbers, except those in `left`."""

    head: Sequence[str]
    rows: Sequence[Sequence[str]]
    left: Sequence[int] = ()


class Picture(NamedTuple):
    """A picture.

    Args:
        name: Of its files, without their endings.
        draw: Draws it: the contents of its files by their endings, `png` and `svg`.
    """

    name: str
    about: str
    caption: str
    draw: Callable[[], Mapping[str, bytes]]


Block = Heading | Paragraph | Items | Table | Picture


def markdown(report: Sequence[Block], *, has_pictures: bool = False) -> str:
    """The report as Markdown; with pictures, if their PNG files lie beside it."""
    return "\n\n".join(text for block in report if (text := _markdown(block, has_pictures))) + "\n"


def _markdown(block: Block, has_pictures: bool) -> str:
    if isinstance(block, Heading):
        return f"{'#' * block.level} {_escaped(block.text)}"
    if isinstance(block, Paragraph):
        return block.text
    if isinstance(block, Items):
        return "\n".join(f"* {_escaped(text)}" for text in block.texts)
    if isinstance(block, Table):
        rules = ["---" if i == 0 or i in block.left else "---:" for i in range(len(block.head))]
        head, *rows = [list(map(_cell, row)) for row in (block.head, *block.rows)]
        return "\n".join(f"| {' | '.join(row)} |" for row in (head, rules, *rows))
    return f"![{block.about}]({block.name}.png)" if has_pictures else ""


def _cell(text: str) -> str:
    escaped = _escaped(text).replace("|", "\\|")
    return f"**{escaped}**" if isinstance(text, Bold) else escaped


def _escaped(text: str) -> str:
    """A text in a line, in which names of models and folders are no markup."""
    return _MARKDOWN.sub(r"\\\1", one_line(text))


def one_line(text: str) -> str:
    """A text of a record in a line, with U+FFFD for what a terminal obeys, such as escapes and other directions."""
    line = " ".join(text.splitlines())
    return "".join(letter if letter.isprintable() else "\N{REPLACEMENT CHARACTER}" for letter in line)
