"""Whether something that an agent wrote was copied from a statement: the same words, in the same order. Pure."""

from __future__ import annotations

import re
from collections.abc import Sequence

from pettingllms_envs.graders import numbers, shapes, spelling


CLOSE = 60
"""Characters of a statement between an example's input and its output."""
_AROUND = re.compile(r" ?([][{},:]) ?")
_DELIMITER = re.compile(r"(?<!\\)\$+|\\[()\[\]]")
_WORD = re.compile(r"(?<![A-Za-z\\])[A-Za-z]{2,}|[.,;:?](?=\s|$)")
_NAME = re.compile(r"\\?[A-Za-z]+(?:_\w)?")
_TOKEN = re.compile(r"\\[A-Za-z]+|\d+(?:\.\d+)?|\S")
_IDLE = frozenset(("0", "1", "+", "*", r"\cdot", r"\times", *"(){}"))


def stand_in_a_row(statement: str, pieces: Sequence[str]) -> bool:
    """Whether the pieces stand in the statement in this order, each as whole words and close to the one before.

    White space, capitals, and spaces next to the punctuation of lists do not matter. An empty piece stands nowhere.
    """
    bare = [_words(piece) for piece in pieces]
    return all(bare) and _in_a_row(_words(statement), bare)


def formulas_like(statement: str, answer: str) -> list[str]:
    """The formulas of the statement, and sides of them, that have what the answer, perhaps after a name, is made of.

    Order, brackets, zeros, ones and the signs of sums and products do not matter, so some may have another value. To a
    number or a name there are none: it may well be the answer, too.
    """
    pieces = [spelling.plain(piece) for piece in _DELIMITER.split(statement)]
    pieces += [spelling.plain(part) for piece in pieces for part in _WORD.split(piece)]
    formulas = set(map(spelling.tight, pieces))
    sides = {shapes.shape(side).text for formula in formulas for side in (formula, *shapes.split(formula, "="))}
    given = shapes.shape(spelling.tight(spelling.plain(answer))).text
    name, *values = given.split("=")
    said = [given, shapes.shape(values[0]).text] if len(values) == 1 and _NAME.fullmatch(name) else [given]
    made = [_tokens(each) for each in said if numbers.read(each) is None and not _NAME.fullmatch(each)]
    return sorted(side for side in sides if side and _tokens(side) in made)


def _tokens(text: str) -> list[str]:
    return sorted(each for each in _TOKEN.findall(text) if each not in _IDLE)


def _words(text: str) -> str:
    """The text with single spaces, none of them next to the punctuation of lists, and no capitals."""
    return _AROUND.sub(r"\1", " ".join(text.split())).lower()


def _in_a_row(text: str, pieces: Sequence[str]) -> bool:
    start = _find(text, pieces[0], 0, len(text))
    while start >= 0:
        end = start + len(pieces[0])
        for piece in pieces[1:]:
            place = _find(text, piece, end, end + CLOSE + len(piece))
            if place < 0:
                break
            end = place + len(piece)
        else:
            return True
        start = _find(text, pieces[0], start + 1, len(text))
    return False


def _find(text: str, piece: str, start: int, end: int) -> int:
    """Where the piece stands as whole words between two places of the text, or -1."""
    place = text.find(piece, start, end)
    while place >= 0:
        before, after = text[max(place - 1, 0) : place + 1], text[place + len(piece) - 1 : place + len(piece) + 1]
        if not (place and before.isalnum()) and not (len(after) == 2 and after.isalnum()):
            return place
        place = text.find(piece, place + 1, end)
    return -1
