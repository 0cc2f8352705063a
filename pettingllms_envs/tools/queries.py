"""Queries in replies, and the tool `query`: one on a database that a role may look at, and its first rows.

tool = QueryTool(suite)                             # the shown database of a suite
tool = QueryTool(suite, tables, schema, rows=8)     # a database that is given
tool("select name from vessel").text
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pettingllms_envs.core import ToolResult, ToolSpec, Unreadable
from pettingllms_envs.replies.fences import fenced_blocks


if TYPE_CHECKING:
    from pettingllms_envs.graders.queries import Graded


_SPACE = re.compile(r"(?>\s+|;|--[^\n]*|/\*.*?\*/)*+", re.S)
_NO_TEXT = re.compile("[\0\ud800-\udfff]")


def query_of(reply: str, most: int) -> str | Unreadable | None:
    """The text of the one block of SQL in a reply, at most `most` characters; None where there is no block."""
    blocks = fenced_blocks(reply, {"sql": "SQL", "sqlite": "SQL"})
    if isinstance(blocks, Unreadable):
        return blocks
    if not blocks:
        return None
    if len(blocks) > 1:
        return Unreadable(f"it has {len(blocks)} blocks of SQL, and one is expected")
    query = blocks[0][1].strip()
    if len(query) > most:
        return Unreadable(f"its query is longer than {most} characters")
    if _NO_TEXT.search(query):
        return Unreadable("its query has a character that no query has")
    begin = _SPACE.match(query)
    rest = query[begin.end() :] if begin else query
    is_empty = not rest or rest.startswith("/*")  # of a comment that has no end
    return Unreadable("its query is empty") if is_empty else query


@dataclass(frozen=True, slots=True)
class QueryTool:
    """Runs queries in the sandbox, each within a budget of steps. Copies and pickles of it work the same way.

    Args:
        suite: Whose sandbox it uses, and whose shown database it queries, a `pettingllms_envs.graders.queries.Suite`.
        tables: The rows of each table of another database instead; with `schema`, which creates them.
        rows: Most rows that it shows.
    """

    suite: Any
    tables: Any = None
    schema: str = ""
    rows: int = 10

    @property
    def spec(self) -> ToolSpec:
        """Its name is `query`, its one argument the query."""
        query = {"type": "string", "description": "One query that begins with select, with or values."}
        description = f"Runs a query of SQLite on the database and returns its first {self.rows} rows."
        parameters = {"type": "object", "properties": {"query": query}, "required": ["query"]}
        return ToolSpec("query", description, parameters)

    @property
    def digest(self) -> str:
        """Of the suite's databases, with the version of SQLite."""
        return str(self.suite.digest)

    @property
    def deterministic(self) -> bool:
        """True: there is no clock, and steps are counted, not seconds."""
        return True

    def ask(self, query: str) -> Graded:
        """The first rows of a query as texts, and the tables that it reads; `SandboxFailed` if the sandbox failed."""
        from pettingllms_envs.graders.queries import ask  # no other tool needs the sandbox to be imported

        return ask(self.suite, query, self.rows, self.tables, self.schema)

    def __call__(self, request: str) -> ToolResult:
        """The names of the columns and the first rows, a line each; why there are none."""
        if _NO_TEXT.search(request):
            return ToolResult("", "it has a character that no query has")
        found = self.ask(request)
        if found.reason:
            return ToolResult("", found.reason)
        lines = [" | ".join(each) for each in (found.columns, *found.rows)] if found.rows else []
        return ToolResult("\n".join(lines))
