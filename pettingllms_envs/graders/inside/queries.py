"""Runs queries on databases in memory: read only, and within a budget of the virtual machine's steps, not of seconds.

Runs in the sandbox as its module `resident`: see `queries.py` beside this folder. `load` opens the hidden databases
and the shown one before any layer holds; `main` reads one request as JSON from standard input and prints the answer.

A query can read the tables and call functions of a list. It cannot write, attach, ask for the schema or the clock, or
draw random numbers. Why it was stopped is said in fixed words, without any text of its own.
"""

from __future__ import annotations

import hashlib
import json
import re
import sqlite3
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple


Tables = Mapping[str, Sequence[Sequence[Any]]]
"""The rows of each table."""

FIRST_STEPS, TIMES = 5_000_000, 100
"""Steps that a golden query may take in each database, and how many times its steps a move may take."""
MOST_ROWS, MOST_CHARACTERS, MOST_CELL, MOST_QUERY = 10_000, 2_000_000, 20_000, 10_000
TICK = 1_000  # steps between two looks at the budget
SHOWN_CELL = 60

_FUNCTIONS = re.compile(
    "count|sum|avg|min|max|total|abs|round|coalesce|ifnull|nullif|iif|lower|upper|length|substr|substring|trim|ltrim"
    "|rtrim|instr|replace|cast|like|glob|group_concat|string_agg|row_number|rank|dense_rank|ntile|lag|lead|first_value"
    "|last_value|nth_value|percent_rank|cume_dist|sign|concat|unicode|typeof|mod|floor|ceil|ceiling|sqrt|power|pow"
)
_DATES = ("date", "time", "datetime", "julianday", "strftime", "unixepoch")
"""Functions that read the clock if they are asked to: those of SQLite, which are here asked for given times only."""
_READS = frozenset({sqlite3.SQLITE_SELECT, sqlite3.SQLITE_READ, sqlite3.SQLITE_FUNCTION, sqlite3.SQLITE_RECURSIVE})
_SPACE = re.compile(r"(?>\s+|--[^\n]*(?:\n|\Z)|/\*.*?(?:\*/|\Z))*+", re.S | re.A)
_KEY = re.compile(r"\binteger\s+primary\s+key(?:\s+(?:asc|desc))?(?:\s+autoincrement)?\b", re.I)
_FIRST = re.compile(r"(?:select|with|values)\b", re.I)
_REASONS = (
    ("no such table", "it names a table that there is not"),
    ("no such column", "it names a column that there is not"),
    ("ambiguous column", "it names a column that several tables have"),
    ("no such function", "it calls a function that there is not"),
    ("wrong number of arguments", "it calls a function with too few or too many arguments"),
    ("misuse of", "it uses an aggregate or a window where none may be"),
    ("not authorized", "it does what is not allowed"),
    ("prohibited", "it does what is not allowed"),
    ("vtable constructor", "it does what is not allowed"),
    ("user-defined function", "it does what is not allowed"),
    ("pattern too complex", "it has a pattern that is too long"),
    ("incomplete input", "it has no end"),
    ("expression tree is too large", "it is too deep"),
    ("parser stack overflow", "it is too deep"),
    ("too many", "it is too large"),
)
_CODES = {
    "SQLITE_INTERRUPT": "it takes too many steps",
    "SQLITE_AUTH": "it does what is not allowed",
    "SQLITE_TOOBIG": "it is too long, or makes a text that is",
    "SQLITE_NOMEM": "it needs too much memory",
}
_LIMITS = {
    "LENGTH": MOST_CELL,
    "SQL_LENGTH": MOST_QUERY,
    "EXPR_DEPTH": 100,
    "COMPOUND_SELECT": 50,
    "COLUMN": 200,
    "LIKE_PATTERN_LENGTH": 50,
    "ATTACHED": 0,
}
_CLOCK = sqlite3.connect(":memory:")

Opened = tuple[sqlite3.Connection, "Reads"]


class Ran(NamedTuple):
    """What came of a query: its rows, or the reason why it was stopped, a clause; steps to the next thousand."""

    rows: tuple[tuple[Any, ...], ...] = ()
    reason: str = ""
    steps: int = 0
    columns: tuple[str, ...] = ()


class Reads:
    """What may be read, and what was: SQLite asks before it prepares a query."""

    def __init__(self, tables: Sequence[str]) -> None:
        self._tables = frozenset(table.lower() for table in tables)
        self.columns: set[tuple[str, str]] = set()

    def __call__(self, action: int, one: str | None, two: str | None, schema: str | None, trigger: str | None) -> int:
        """Whether a query may do something."""
        if action == sqlite3.SQLITE_READ and one is not None:
            self.columns.add((one.lower(), (two or "").lower()))
            # Of a table that the query itself names, only the count of its rows is asked for.
            allowed = one.lower() in self._tables or not (two or one.lower().startswith("sqlite_"))
        elif action == sqlite3.SQLITE_FUNCTION and two is not None:
            allowed = _FUNCTIONS.fullmatch(two.lower()) is not None or two.lower() in _DATES
        else:
            allowed = action in _READS
        return sqlite3.SQLITE_OK if allowed else sqlite3.SQLITE_DENY


def open_database(schema: str, tables: Tables, *, is_reversed: bool = False, is_turned: bool = False) -> Opened:
    """A database that can only be read, whose tables may be read the other way round, with what watches it.

    Args:
        is_reversed: SQLite reads tables backwards, which it does only for a query that orders nothing.
        is_turned: The last row is stored first, and no key brings it back: ties in an order come the other way round.
    """
    database = sqlite3.connect(":memory:", isolation_level=None)
    database.executescript(_KEY.sub("integer unique", schema) if is_turned else schema)
    for table, rows in tables.items():
        if rows:
            marks = ",".join("?" * len(rows[0]))
            stored = reversed(rows) if is_turned else rows
            database.executemany(f"insert into {quoted(table)} values ({marks})", stored)
    for name in _DATES:
        database.create_function(name, -1, _given_time(name), deterministic=True)
    for limit, most in _LIMITS.items():
        database.setlimit(getattr(sqlite3, f"SQLITE_LIMIT_{limit}"), most)
    for pragma in ("query_only=1", "temp_store=2", "trusted_schema=0", "cache_size=-2000"):
        database.execute(f"pragma {pragma}")
    database.execute(f"pragma reverse_unordered_selects={int(is_reversed)}")
    reads = Reads([name for (name,) in database.execute("select name from sqlite_master where type='table'")])
    database.set_authorizer(reads)
    return database, reads


def quoted(name: str) -> str:
    """A name as SQL quotes it."""
    return '"' + name.replace('"', '""') + '"'


def run(database: sqlite3.Connection, query: str, most_steps: int) -> Ran:
    """The rows of a query, or why there are none: the same every time, with one version of SQLite."""
    begin = _SPACE.match(query)
    if begin is None or not _FIRST.match(query, begin.end()):  # the authorizer is not asked about `explain`
        return Ran(reason="it does not begin with select, with or values")
    ticks, size = 0, 0

    def tick() -> bool:
        nonlocal ticks
        ticks += 1
        return ticks * TICK > most_steps

    database.set_progress_handler(tick, TICK)
    rows: list[tuple[Any, ...]] = []
    try:
        cursor = database.execute(query)
        for row in cursor:
            rows.append(row)
            size += sum(len(cell) if isinstance(cell, str | bytes) else 8 for cell in row)
            if len(rows) > MOST_ROWS or size > MOST_CHARACTERS:
                return Ran(reason="it has too many rows")
        names = tuple(str(each[0]) for each in cursor.description or ())
        return Ran(tuple(rows), "", (ticks + 1) * TICK, names)
    except MemoryError:
        return Ran(reason="it needs too much memory")
    except (sqlite3.ProgrammingError, sqlite3.Warning):  # the latter is raised by Python 3.11
        return Ran(reason="it is more than one statement, or leaves a value open")
    except (sqlite3.Error, ValueError, OverflowError) as error:
        return Ran(reason=_reason(error))
    finally:
        database.set_progress_handler(None, 0)


def same_rows(ran: Ran, *, ordered: bool) -> str:
    """A digest that two results share if their rows are equal: as lists, or else as multisets."""
    rows = [repr(tuple(map(_cell, row))) for row in ran.rows]
    text = "\n".join([str(len(ran.columns)), *(rows if ordered else sorted(rows))])
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def _cell(value: Any) -> Any:
    """A value such that equal ones are written alike: 3 as 3.0, and a third however it was computed."""
    if not isinstance(value, float):
        return value
    if abs(value) < 2**53 and abs(value - round(value)) <= min(1e-3, 1e-12 * abs(value)):
        return round(value)  # of a sum, too, whose terms came in another order
    value = float(f"{value:.9g}")
    return int(value) if value.is_integer() and abs(value) < 2**53 else value


def _reason(error: Exception) -> str:
    words, code = str(error).lower(), str(getattr(error, "sqlite_errorname", ""))
    if code in _CODES:
        return _CODES[code]
    return next((reason for start, reason in _REASONS if start in words), "it is no valid query")


def _given_time(name: str) -> Callable[..., Any]:
    def function(*values: Any) -> Any:
        # SQLite reads bytes as a text, and a text up to a null character
        texts = [each.decode("utf-8", "replace") if isinstance(each, bytes) else each for each in values]
        words = {each.partition("\0")[0].strip().lower() for each in texts if isinstance(each, str)}
        if len(values) < 1 + (name == "strftime") or words & {"now", "subsec", "subsecond", "localtime", "utc"}:
            raise ValueError("the clock")
        marks = ",".join("?" * len(values))
        return _CLOCK.execute(f"select {name}({marks})", values).fetchone()[0]

    return function


_OPEN: list[list[Opened]] = []
"""The hidden databases, then the largest two again, each in both ways in which tables are read the other way round."""
_LARGEST: list[int] = []
_SHOWN: list[Opened] = []


def load(schema: str, hidden: Sequence[Tables], shown: Tables) -> None:
    """Open the databases, once. The largest two are opened a second time, to be read the other way round."""
    sizes = [sum(map(len, tables.values())) for tables in hidden]
    _LARGEST.extend(sorted(range(len(hidden)), key=lambda index: -sizes[index])[:2])
    _OPEN.extend([open_database(schema, each)] for each in hidden)
    for each in (hidden[index] for index in _LARGEST):
        _OPEN.append([open_database(schema, each, is_reversed=True), open_database(schema, each, is_turned=True)])
    _SHOWN.append(open_database(schema, shown))


def _run_all(opened: Sequence[Opened], query: str, most_steps: int, ordered: bool) -> tuple[Ran, str]:
    """What comes of a query in one of some databases, one where it is stopped if any, and a digest of all rows.

    The digest is that of `same_rows` if they are equal.
    """
    rans = [run(database, query, most_steps) for database, _ in opened]
    ran = max(rans, key=lambda each: (each.reason != "", each.steps))
    return ran, "".join(dict.fromkeys(same_rows(each, ordered=ordered) for each in rans))


def golden(query: str, ordered: bool) -> dict[str, Any]:
    """What the golden query gives: digests of its rows, its budget, what it reads, or why it cannot be a question."""
    _SHOWN[0][1].columns.clear()
    shown = run(_SHOWN[0][0], query, FIRST_STEPS)
    reads = sorted(_SHOWN[0][1].columns)
    rans, digests = zip(*(_run_all(each, query, FIRST_STEPS, ordered) for each in _OPEN), strict=True)
    why = next((ran.reason for ran in (shown, *rans) if ran.reason), "")
    num = len(_OPEN) - len(_LARGEST)
    if not why and [digests[index] for index in _LARGEST] != list(digests[num:]):
        why = "its rows depend on the order of storage"
    if not why and sum(bool(ran.rows) for ran in rans[:num]) < 2:
        why = "it has no rows but in one database"
    return {
        "why": why,
        "digests": digests,
        "steps": TIMES * max(ran.steps for ran in (shown, *rans)),
        "shown": _set_of(shown),
        "reads": [each for each in reads if each[1]],
    }


def grade(query: str, ordered: bool, digests: Sequence[str], steps: int, shown: str, most: int) -> dict[str, Any]:
    """In how many databases a query gives the golden rows, what it gives in the shown one, and whether those agree."""
    found = run(_SHOWN[0][0], query, steps)
    passed, reason = 0, found.reason
    for opened, digest in zip(_OPEN, digests, strict=True):
        ran, given = (found, "") if reason else _run_all(opened, query, steps, ordered)
        reason = ran.reason
        if reason:
            passed = 0
            break
        passed += given == digest
    return {"passed": passed, "one": not found.reason and _set_of(found) == shown, **_shown(found, reason, most)}


def ask(schema: str, tables: Tables | None, query: str, most: int, steps: int) -> dict[str, Any]:
    """The first rows of a query in the shown database, or in one that is given, and the tables that it reads."""
    database, reads = _SHOWN[0] if tables is None else open_database(schema, tables)
    ran = run(database, query, steps)
    return {**_shown(ran, ran.reason, most), "reads": sorted({table for table, _ in reads.columns})}


def _shown(ran: Ran, reason: str, most: int) -> dict[str, Any]:
    """The first rows as texts for a prompt."""
    rows = [[_text(cell) for cell in row] for row in ran.rows[:most]]
    return {
        "columns": list(map(_text, ran.columns)) if rows else [],
        "rows": rows,
        "num_rows": len(ran.rows),
        "reason": reason,
    }


def _text(value: Any) -> str:
    if isinstance(value, bytes):
        return f"{len(value)} bytes"
    text = "NULL" if value is None else str(value)
    return text if len(text) <= SHOWN_CELL else f"{text[:SHOWN_CELL]}..."


def _set_of(ran: Ran) -> str:
    """The rule of benchmarks that have one database: the rows as a set."""
    rows = "\n".join(sorted({repr(tuple(map(_cell, row))) for row in ran.rows}))
    return hashlib.sha256(rows.encode("utf-8", "surrogatepass")).hexdigest()


def main() -> None:
    """Answer the request on standard input."""
    request = json.loads(sys.stdin.read())
    kinds: dict[str, Callable[..., dict[str, Any]]] = {"golden": golden, "grade": grade, "ask": ask}
    sys.stdout.write(json.dumps(kinds[request.pop("kind")](**request)))
