"""Databases of data sets, from a folder: read only, cut to 2,000 rows a table, with hidden siblings made of them.

A data set has one database for a question, and a wrong query may be right on one. So eight more are made by changing
rows: some are left out, values change places within their column, some become unknown, and rows come twice. Keys
stay as they are, and a row whose key leads nowhere any more is left out, too. The database itself is what roles look
at.
"""

from __future__ import annotations

import json
import random
import re
import sqlite3
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import quote

from pettingllms_envs.caching import remembered
from pettingllms_envs.graders.inside.queries import open_database, quoted
from pettingllms_envs.graders.queries import MOST_POOLS, Suite
from pettingllms_envs.instances import seeded
from pettingllms_envs.sandbox.inside.wire import MAX_FRAME


MOST_BYTES, MOST_ROWS, MOST_TEXT = 16 << 20, 2_000, 4_000
MOST_SENT = MAX_FRAME - (1 << 20)
NUM_SIBLINGS = 8
ENDINGS = (".sqlite", ".db")
_HEADER = b"SQLite format 3\0"
_TYPE = re.compile(r"[A-Za-z][A-Za-z0-9 ]*(?:\([0-9, ]*\))?")
_GENERATED = re.compile(r"(?<!\s)\s*generated always$", re.I)
_VIRTUAL = re.compile(r"\s*create\s+virtual", re.I)
_PLAIN = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


class BadDatabase(ValueError):
    """A database cannot be played. The message is the reason, a clause."""


class Table(NamedTuple):
    """A table of a database.

    Args:
        columns: The name of each column, its type, and its place in the primary key, from 1; 0 if it has none.
        links: The column of each foreign key, the table that it refers to, and the column there.
    """

    name: str
    columns: tuple[tuple[str, str, int], ...]
    links: tuple[tuple[str, str, str], ...]
    rows: list[tuple[Any, ...]]

    def place(self, column: str) -> int:
        return [name.lower() for name, *_ in self.columns].index(column.lower())

    @property
    def key(self) -> int | None:
        """The place of the column that is its primary key alone, if that holds whole numbers."""
        own = [index for index, (_, kind, place) in enumerate(self.columns) if place and kind.lower() == "integer"]
        if not len(own) == 1 == sum(place > 0 for *_, place in self.columns):
            return None
        return own[0] if all(isinstance(row[own[0]], int) for row in self.rows) else None


def find_database(folder: Path, name: str) -> Path:
    """The file of a database, `NAME/NAME.sqlite` or `NAME.sqlite`; `BadDatabase` if there is none that may be read."""
    places = [folder / inner / f"{name}{ending}" for inner in (name, ".") for ending in ENDINGS]
    path = next((each for each in places if each.is_symlink() or each.is_file()), None)
    if path is None:
        raise BadDatabase("its database is missing")
    if path.is_symlink() or path.parent.is_symlink():
        raise BadDatabase("its database is a link")
    if path.stat().st_size > MOST_BYTES:
        raise BadDatabase(f"its database has more than {MOST_BYTES >> 20} MB")
    with path.open("rb") as file:
        if file.read(len(_HEADER)) != _HEADER:
            raise BadDatabase("its database is broken")
    return path


@remembered(MOST_POOLS)
def suite_in(folder: str, name: str) -> Suite:
    """The database of a name and its siblings; `BadDatabase` if it cannot be played."""
    tables = read_tables(find_database(Path(folder), name))
    siblings = [sibling(seeded("sql", "v0", "sibling", name, index), tables) for index in range(NUM_SIBLINGS)]
    suite = Suite(schema_of(tables), hidden=siblings, shown={each.name: each.rows for each in tables})
    try:
        open_database(suite.schema, suite.shown)[0].close()
    except sqlite3.Error as error:
        raise BadDatabase("its tables cannot be made again") from error
    if len(json.dumps(suite.resident)) > MOST_SENT:
        raise BadDatabase(f"its rows and those of its siblings have more than {MOST_SENT >> 20} MB")
    return suite


def read_tables(path: Path) -> list[Table]:
    """The tables of a file with the first rows of each, and the rows that those refer to."""
    try:
        database = sqlite3.connect(f"file:{quote(str(path.resolve()))}?mode=ro&immutable=1", uri=True)
        try:
            database.execute("pragma trusted_schema=0")
            found = database.execute("select name, sql from sqlite_master where type='table' order by name").fetchall()
            names = [name for name, sql in found if not (name.startswith("sqlite_") or _VIRTUAL.match(sql or ""))]
            tables = [_read(database, name, names) for name in names]
            for _ in tables:  # a row that is added may refer to another one
                if not sum(_add_referred(database, tables, table) for table in tables):
                    break
        finally:
            database.close()
    except (sqlite3.Error, UnicodeError) as error:
        raise BadDatabase("its database is broken, or has a text that is not UTF-8") from error
    if not any(table.rows for table in tables):
        raise BadDatabase("its database has no rows")
    return tables


def schema_of(tables: Sequence[Table]) -> str:
    """Statements that create tables with these columns and keys, and nothing else of the file's."""
    return "\n".join(f"create table {written(each.name)} ({', '.join(_parts(each))});" for each in tables)


def written(name: str) -> str:
    """A name as it is written in a query: quoted if it has other characters, or is a word of SQL."""
    if not _PLAIN.fullmatch(name):
        return quoted(name)
    try:
        with closing(sqlite3.connect(":memory:")) as database:
            database.execute(f"create table {name} ({name})")
    except sqlite3.Error:
        return quoted(name)
    return name


def sibling(rng: random.Random, tables: Sequence[Table]) -> dict[str, list[tuple[Any, ...]]]:
    """Another database with the same keys."""
    share = rng.choice((0.3, 0.6, 0.9, 1.0))
    keys = {(table.name.lower(), column.lower()) for table in tables for column, *_ in table.links}
    keys |= {(other.lower(), column.lower()) for table in tables for _, other, column in table.links}
    made = {table.name: _changed(rng, table, share, keys) for table in tables}
    for _ in tables:
        removed = 0
        for table in tables:
            for column, other, theirs in table.links:
                of = next(each for each in tables if each.name == other)
                there = {row[of.place(theirs)] for row in made[of.name]}
                at, before = table.place(column), len(made[table.name])
                made[table.name] = [row for row in made[table.name] if row[at] is None or row[at] in there]
                removed += before - len(made[table.name])
        if not removed:
            break
    return made


def _changed(rng: random.Random, table: Table, share: float, keys: set[tuple[str, str]]) -> list[tuple[Any, ...]]:
    rows = [list(row) for row in table.rows if rng.random() < share]
    free = [
        at
        for at, (name, _, place) in enumerate(table.columns)
        if not place and (table.name.lower(), name.lower()) not in keys
    ]
    for row in rows:
        for at in free:
            luck = rng.random()
            if luck < 0.25:
                row[at] = rng.choice(table.rows)[at]
            elif luck < 0.3:
                row[at] = None
    if table.key is not None and rows:
        most = max(row[table.key] or 0 for row in rows + [list(each) for each in table.rows])
        for number, row in enumerate(rng.sample(rows, max(1, len(rows) // 10)), 1):
            rows.append([*row[: table.key], most + number, *row[table.key + 1 :]])
    return [tuple(row) for row in rows]


def _read(database: sqlite3.Connection, name: str, names: Sequence[str]) -> Table:
    listed = {each: database.execute(f"pragma table_xinfo({quoted(each)})").fetchall() for each in names}
    kinds = [(own, _GENERATED.sub("", kind), key) for _, own, kind, _, _, key, _ in listed[name]]
    columns = tuple((str(own), kind if _TYPE.fullmatch(kind) else "", key) for own, kind, key in kinds)
    links = []
    for _, _, other, column, theirs, *_ in database.execute(f"pragma foreign_key_list({quoted(name)})").fetchall():
        of = next((each for each in names if each.lower() == other.lower()), None)
        keys = [own for _, own, _, _, _, key, _ in listed.get(of or "", ()) if key or theirs is not None]
        found = [own for own in keys if theirs is None or own.lower() == theirs.lower()]  # or the primary key
        if of is not None and len(found) == 1 and column.lower() in {own.lower() for own, *_ in columns}:
            links.append((str(column), of, found[0]))
    rows = database.execute(f"select * from {quoted(name)} limit {MOST_ROWS}").fetchall()
    return Table(name, columns, tuple(links), [_plain(row) for row in rows])


def _plain(row: Sequence[Any]) -> tuple[Any, ...]:
    """A row as JSON can carry it: long texts are cut, and bytes are unknown values."""
    cut = (cell[:MOST_TEXT] if isinstance(cell, str) else cell for cell in row)
    return tuple(None if isinstance(cell, bytes) else cell for cell in cut)


def _add_referred(database: sqlite3.Connection, tables: Sequence[Table], table: Table) -> int:
    """Add the rows that a table's rows refer to, where they are missing; returns how many."""
    added = 0
    for column, other, theirs in table.links:
        of = next(each for each in tables if each.name == other)
        if len(of.rows) < MOST_ROWS:
            continue  # all of them are there
        there = {row[of.place(theirs)] for row in of.rows}
        query = f"select * from {quoted(of.name)} where {quoted(theirs)} = ? limit 1"
        for value in dict.fromkeys(row[table.place(column)] for row in table.rows):
            found = None if value is None or value in there else database.execute(query, [value]).fetchone()
            if found is not None:
                of.rows.append(_plain(found))
                added += 1
    return added


def _parts(table: Table) -> list[str]:
    parts = []
    for at, (name, kind, place) in enumerate(table.columns):
        key = " primary key" if at == table.key else ""
        links = [
            f" references {written(other)}({written(theirs)})" for own, other, theirs in table.links if own == name
        ]
        parts.append(f"{' '.join(filter(None, [written(name), kind]))}{key}{links[0] if links and not place else ''}")
    return parts
