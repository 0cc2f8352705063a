"""Grades queries in the sandbox: on hidden databases that were opened before it was confined. See `inside/queries.py`.

    suite = Suite(schema, hidden=[tables, ...], shown=tables)
    golden_of(suite, "select name from vessel", False).why          # "": it can be a question
    grade(suite, "select name from vessel", False, "select 1")      # Graded(passed=0, num=66, ...)

A query is right if it gives the golden rows in each hidden database, and in the largest two also where tables are read
the other way round. The golden rows are computed in the sandbox once for each question; what leaves it are digests.
Each suite has servers of its own; at most `MOST_POOLS` have some, and those of the suite used longest ago are ended.

Verdicts hold for one version of SQLite, which is in `Suite.digest`.
"""

from __future__ import annotations

import hashlib
import json
import sqlite3
import threading
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

from pettingllms_envs.caching import Memo
from pettingllms_envs.graders.inside.queries import FIRST_STEPS, MOST_QUERY, Tables, quoted
from pettingllms_envs.sandbox import Limits, Sandbox, SandboxFailed, Verdict
from pettingllms_envs.sandbox.pool import after_fork
from pettingllms_envs.sandbox.sandbox import num_cores
from pettingllms_envs.sandbox.values import ENDINGS


MOST_POOLS, MOST_SLOTS = 8, 4
ROWS_SHOWN = 10
LIMITS = Limits(cpu=4.0, memory=1 << 28, output=1 << 20)
GOLDEN_LIMITS = Limits(cpu=30.0, memory=1 << 29, output=1 << 20)
SQLITE = sqlite3.sqlite_version

_GOLDEN: Memo[tuple[str, str, bool], Golden] = Memo(4096)
_GRADED: Memo[tuple[str, str, bool, str], Graded] = Memo(8192)
_PROGRAM = "import resident\nresident.main()\n"
_RESIDENT = Path(__file__).parent / "inside" / "queries.py"


class Suite:
    """Databases of the same tables, created by trusted statements: hidden ones, and one to show."""

    def __init__(self, schema: str, *, hidden: Sequence[Tables], shown: Tables) -> None:
        self.schema = schema
        self.shown = shown
        self.num_hidden = len(hidden)
        self._data = json.dumps([schema, hidden, shown])

    @cached_property
    def columns(self) -> Mapping[str, tuple[str, ...]]:
        database = sqlite3.connect(":memory:")
        database.executescript(self.schema)
        names = [name for (name,) in database.execute("select name from sqlite_master where type='table'")]
        asked = {name: database.execute(f"pragma table_info({quoted(name)})").fetchall() for name in names}
        return {name: tuple(column[1] for column in found) for name, found in asked.items()}

    @cached_property
    def resident(self) -> str:
        """The source of the sandbox's module, with all databases."""
        return f"{_RESIDENT.read_text(encoding='utf-8')}\nload(*json.loads({self._data!r}))\n"

    @cached_property
    def digest(self) -> str:
        """Of the databases, of how queries are run, and the version of SQLite."""
        return f"{hashlib.sha256(self.resident.encode()).hexdigest()[:16]}-sqlite-{SQLITE}"


class Golden(NamedTuple):
    """What is known of a golden query: digests of its rows, as in `inside/queries.py`, and the budget of a move.

    Args:
        why: Why it cannot be a question, a clause; empty if it can.
        reads: The tables and columns that it reads, in lower case.
    """

    why: str
    digests: tuple[str, ...] = ()
    steps: int = 0
    shown: str = ""
    reads: tuple[tuple[str, str], ...] = ()

    @property
    def constant(self) -> int:
        """In how many databases the best query is right that gives the same rows in all of them."""
        return max(Counter(self.digests).values(), default=0)


class Graded(NamedTuple):
    """What came of a query.

    Args:
        passed: In how many hidden databases it gives the golden rows; 0 if it was stopped in one.
        num: How many there are, those counted twice that are read both ways.
        constant: In how many of them a query that always gives the same rows is right at best.
        one: Whether it gives the set of the golden rows in the shown database.
        rows: Its first rows there, as texts.
        reason: Why it was stopped, a clause; empty if it was not.
    """

    passed: int = 0
    num: int = 0
    constant: int = 0
    one: bool = False
    columns: tuple[str, ...] = ()
    rows: tuple[tuple[str, ...], ...] = ()
    num_rows: int = 0
    reason: str = ""
    reads: tuple[str, ...] = ()

    @property
    def right(self) -> bool:
        """Whether it gives the golden rows everywhere."""
        return 0 < self.num == self.passed

    @property
    def share(self) -> float:
        """Of the databases in which it is right, what exceeds the best constant; in [0, 1], and 1 if it is right."""
        return max(0, self.passed - self.constant) / max(1, self.num - self.constant)


def golden_of(suite: Suite, query: str, ordered: bool) -> Golden:
    """What is known of a golden query; `SandboxFailed` if the sandbox failed twice."""
    key = suite.digest, query, ordered
    if (known := _GOLDEN.get(key)) is not None:
        return known
    found = _answer(suite, {"kind": "golden", "query": query, "ordered": ordered}, GOLDEN_LIMITS)
    if isinstance(found, str):
        golden = Golden(found)
    else:
        reads = tuple(map(tuple, found["reads"]))
        golden = Golden(**{**found, "digests": tuple(found["digests"]), "reads": reads})
    _GOLDEN.put(key, golden)
    return golden


def grade(suite: Suite, golden: str, ordered: bool, query: str) -> Graded:
    """What came of a query; `SandboxFailed` if the sandbox failed twice.

    Args:
        golden: The golden query; `ValueError` if it can be no question.
        query: Without lone surrogates.
    """
    key = suite.digest, golden, ordered, query
    if (known := _GRADED.get(key)) is not None:
        return known
    due = golden_of(suite, golden, ordered)
    if due.why:
        raise ValueError(f"the golden query {golden!r} is no question: {due.why}. Ask `golden_of` first.")
    told = {"ordered": ordered, "digests": due.digests, "steps": due.steps, "shown": due.shown, "most": ROWS_SHOWN}
    found = _graded(_answer(suite, {"kind": "grade", "query": query, **told}, LIMITS))
    graded = found._replace(num=len(due.digests), constant=due.constant)
    _GRADED.put(key, graded)
    return graded


def ask(suite: Suite, query: str, most: int, tables: Tables | None = None, schema: str = "") -> Graded:
    """The first rows of a query in the suite's shown database, or in one of a schema and tables, and what it reads."""
    request = {"kind": "ask", "schema": schema, "tables": tables, "query": query, "most": most, "steps": FIRST_STEPS}
    return _graded(_answer(suite, request, LIMITS))


def _graded(found: dict[str, Any] | str) -> Graded:
    if isinstance(found, str):
        return Graded(reason=found)
    listed = {name: tuple(found.get(name, ())) for name in ("columns", "reads")}
    return Graded(**{**found, **listed, "rows": tuple(map(tuple, found["rows"]))})


def _answer(suite: Suite, request: dict[str, Any], limits: Limits) -> dict[str, Any] | str:
    """What the sandbox answers, or in fixed words why a query did not end."""
    if len(request["query"]) > MOST_QUERY:
        return "it is too long, or makes a text that is"
    with _POOLS.lend(suite) as sandbox:
        result = sandbox.run(_PROGRAM, json.dumps(request), limits=limits)
    if result.verdict == Verdict.SANDBOX_ERROR:
        raise SandboxFailed(f"the sandbox failed twice ({result.detail}); expected the rows of a query. See the log.")
    if result.verdict != Verdict.FINISHED:
        return ENDINGS[result.verdict]
    answer: dict[str, Any] = json.loads(result.stdout)
    return answer


class _Pools:
    """A sandbox for each suite in play; the one that was used longest ago is closed when there are too many."""

    def __init__(self) -> None:
        self._renew()
        after_fork(self, _Pools._renew)

    def _renew(self) -> None:
        self._lock = threading.Lock()
        self._sandboxes: dict[str, Sandbox] = {}
        self._users: Counter[str] = Counter()

    @contextmanager
    def lend(self, suite: Suite) -> Iterator[Sandbox]:
        """The suite's sandbox, which is not closed meanwhile."""
        with self._lock:
            sandbox = self._sandboxes.pop(suite.digest, None) or _sandbox(suite)
            self._sandboxes[suite.digest] = sandbox
            self._users[suite.digest] += 1
        try:
            yield sandbox
        finally:
            with self._lock:
                self._users[suite.digest] -= 1
                idle = [digest for digest in self._sandboxes if not self._users[digest]]
                closed = [self._sandboxes.pop(digest) for digest in idle[: max(0, len(self._sandboxes) - MOST_POOLS)]]
            for each in closed:
                each.close()

    def __len__(self) -> int:
        return len(self._sandboxes)


def _sandbox(suite: Suite) -> Sandbox:
    slots = min(MOST_SLOTS, num_cores())
    return Sandbox(imports=("sqlite3",), resident=suite.resident, num_slots=slots)


_POOLS = _Pools()
