"""The one filter of foreign text on its way to a terminal: names, errors, replies, paths."""

from __future__ import annotations


UNPRINTABLE = "\N{REPLACEMENT CHARACTER}"


def printable(text: str, most: int | None = None) -> str:
    """A text without control characters, shortened if it has more than `most`."""
    text = "".join(letter if letter.isprintable() or letter in "\n\t" else UNPRINTABLE for letter in text)
    return text if most is None or len(text) <= most else f"{text[:most]} ... ({len(text)} characters)"
