"""Questions about the tables of a family with their golden queries: 22 forms, each with values that a seed draws.

Each question says which columns are wanted and in which order, how often a row counts, what an unknown value stands
for, and where the order of the rows counts also how ties are broken. So one result is right, and all golden queries
give it whichever way tables are read. Levels are the number of tables that a form joins, 1 to 4.
"""

from __future__ import annotations

import itertools
import random
import re
from collections.abc import Sequence
from typing import Any, NamedTuple

from pettingllms_envs.environments.sql.families import AMOUNTS, DAYS, SIZES, Family, paragraphs


class Question(NamedTuple):
    """A question and its golden query; of a form both have places for words and values."""

    level: int
    ordered: bool
    text: str
    query: str


def _form(head: str, *lines: str) -> Question:
    level, *ordered = head.split()
    parts = [
        " ".join(each.strip() for each in lines if each.startswith(" ") == is_query) for is_query in (False, True)
    ]
    return Question(int(level), bool(ordered), *parts)


FORMS = tuple(_form(*lines) for lines in paragraphs("forms.txt"))
LEVELS = (1, 2, 3, 4)
_ARTICLE = re.compile(r"\b([Aa])n? (?=(\w))")


def draw(family: Family, rng: random.Random, level: int | None = None) -> Question:
    """A question of a level, or of any."""
    form = rng.choice([each for each in FORMS if level in (None, each.level)])
    return _filled(family, form, *map(rng.choice, _values(family)))


def every(family: Family) -> list[Question]:
    """Every question of a family that a seed can draw, each once."""
    values = list(itertools.product(*_values(family)))
    return list(dict.fromkeys(_filled(family, form, *each) for form in FORMS for each in values))


def _values(family: Family) -> tuple[Sequence[Any], ...]:
    """Of a kind, an area, a size, an amount and a day; the greatest size and amount have nothing above them."""
    return family.kinds, family.areas, SIZES[:-1], AMOUNTS[:-1], DAYS


def _filled(family: Family, form: Question, kind: str, area: str, size: int, amount: int, day: int) -> Question:
    words = {**family.words, "K": kind, "R": area, "S": size, "A": amount, "D": day, "C": 1 + day % 2}
    text = form.text.format(**words)
    text = _ARTICLE.sub(lambda found: f"{found[1]}n " if found[2] in "aeiou" else f"{found[1]} ", text)
    return Question(form.level, form.ordered, text, form.query.format(**words))
