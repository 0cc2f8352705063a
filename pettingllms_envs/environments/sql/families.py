"""Six families of tables with their random databases. Four train, one validates, one tests; nothing is called alike.

All have the same form: places, items that have a place of their own or none, events of an item at a place, and details
of an event. Most databases are small, 0 to 24 rows a table: ties, unknown values, empty tables and names that several
rows have tell wrong queries from right ones sooner than many rows do. A few are larger, for queries with a limit.
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from pettingllms_envs.graders.queries import Suite
from pettingllms_envs.instances import seeded


NUM_HIDDEN = 64
SMALL, SHOWN, LARGE = 11, 14, 60

_WORDS = "place item event detail area real home kind size day amount fee flag".split()  # noqa: SIM905


@dataclass(frozen=True, slots=True, eq=False)
class Family:
    """The words of a family, its four tables and then columns, and the texts in them."""

    split: str
    words: Mapping[str, str]
    areas: tuple[str, ...]
    kinds: tuple[str, ...]
    names: tuple[str, ...]

    @property
    def name(self) -> str:
        """What its rows are called in a data set: the name of its first table."""
        return self.words["place"]


def paragraphs(name: str) -> list[list[str]]:
    """The lines of each paragraph of a file of this folder's data but the first, which says what it is."""
    text = (Path(__file__).parent / "data" / name).read_text(encoding="utf-8")
    return [each.splitlines() for each in text.strip().split("\n\n")[1:]]


def _family(split: str, tables: str, columns: str, *texts: str) -> Family:
    words = dict(zip(_WORDS, f"{tables} {columns}".split(), strict=True))
    return Family(split, words, *(tuple(each.split()) for each in texts))


FAMILIES = tuple(_family(*lines) for lines in paragraphs("families.txt"))
BY_NAME = {family.name: family for family in FAMILIES}
SIZES, DAYS, AMOUNTS = (100, 400, 401, 900), (1, 2, 3, 4), (0, 10, 20, 35)


def schema_of(family: Family) -> str:
    """The statements that create its tables."""
    return "\n".join(" ".join(lines) for lines in paragraphs("schema.txt")).format(**family.words)


def tables_of(family: Family, rng: random.Random, size: int) -> dict[str, list[tuple[object, ...]]]:
    """The rows of a random database: at most `size` places and items, and twice as many events and details.

    Above `SMALL + 1` there are at least half as many.
    """
    fewest = size // 2 if size > SMALL + 1 else 0

    def ids(least: int, most: int) -> range:
        return range(1, rng.randint(max(least, fewest), most) + 1)

    def name() -> str:
        return rng.choice(family.names)

    f, pick = family, rng.choice
    places = [(i, name(), pick(f.areas), pick((None, 4.5, 6.0, 9.25))) for i in ids(1, size)]
    homes = [None, *(place[0] for place in places)]
    items = [(i, name(), pick(f.kinds), pick(SIZES), pick(homes)) for i in ids(0, size)]
    events = [
        (i, pick(items)[0], pick(places)[0], pick(DAYS), pick((None, 10, *AMOUNTS)))
        for i in (ids(0, 2 * size) if items else ())
    ]
    details = [(i, pick(events)[0], pick((None, 0.0, 1.5, 2.0)), pick((0, 1))) for i in ids(0, 2 * size) if events]
    rows: list[list[tuple[object, ...]]] = [list(places), list(items), list(events), list(details)]
    return dict(zip(f.words.values(), rows, strict=False))


def databases(family: Family, purpose: str, number: int) -> list[dict[str, list[tuple[object, ...]]]]:
    """Random databases of up to 2 to 12 places, one in 16 of up to 60; those of another purpose are others."""
    sizes = [LARGE if index % 16 == 0 else 2 + index % SMALL for index in range(number)]
    return [
        tables_of(family, seeded("sql", "v0", family.name, purpose, index), size) for index, size in enumerate(sizes)
    ]


@cache
def suite_of(family: Family) -> Suite:
    """Its hidden databases, and another one that roles may look at."""
    shown = tables_of(family, seeded("sql", "v0", family.name, "shown"), SHOWN)
    return Suite(schema_of(family), hidden=databases(family, "hidden", NUM_HIDDEN), shown=shown)
