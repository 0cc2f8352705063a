"""Questions with golden queries as problems, and the readers of Spider, BIRD and SynSQL.

The columns are those of `xlangai/spider` (`db_id`, `query`, `question`), of `micpst/bird` (`db_id`, `question`,
`evidence`, `sql`, `difficulty`; other copies have `SQL`) and of `seeklhy/SynSQL-2.5M` (`db_id`, `sql_complexity`,
`question`, `external_knowledge`, `sql`). They were read in the descriptions of the sets; no file was loaded here. The
databases are no part of the rows.
Sources: Yu et al. 2018, arXiv:1809.08887; Li et al. 2023, arXiv:2305.03111; Li et al. 2025, arXiv:2503.02240.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from pettingllms_envs.datasets import normalization, rows
from pettingllms_envs.datasets.problems import Problem
from pettingllms_envs.datasets.rows import BadRow, DataRow, LeftOut
from pettingllms_envs.graders.inside.queries import MOST_QUERY


LEVELS = {"simple": 1, "moderate": 2, "challenging": 3, "complex": 3, "highly complex": 4}
_NAME = re.compile(r"[A-Za-z0-9][\w .-]*")
# Also what is not closed, to its end: else each of many beginnings would look for one.
_HIDDEN = re.compile(
    r"'(?:[^']|'')*+(?:'|\Z)|\"(?:[^\"]|\"\")*+(?:\"|\Z)|`[^`]*+(?:`|\Z)"
    r"|\[[^\]]*+(?:\]|\Z)|--[^\n]*|/\*.*?(?:\*/|\Z)",
    re.S,
)
_INNERMOST = re.compile(r"\([^()]*\)")
_ORDER = re.compile(r"\border\s+by\b", re.I)
_JOIN = re.compile(r"\bjoin\b", re.I)


@dataclass(frozen=True, slots=True, kw_only=True, repr=False, eq=False)
class QueryProblem(Problem):
    """A question about a database, with its golden query.

    Args:
        database: The name of the database: a family of ours, or that of a file.
        ordered: Whether the order of the rows counts.
        evidence: What the data set says to help, such as what a value means; may be empty.
    """

    database: str
    golden: str
    ordered: bool = False
    evidence: str = ""


def is_ordered(query: str) -> bool:
    """Whether a query orders its own rows, and not only those of a query in it."""
    bare = _HIDDEN.sub(" ", query)
    for _ in range(100):
        bare, inner = _INNERMOST.subn(" ", bare)
        if not inner:
            break
    return _ORDER.search(bare) is not None


def spider(row: DataRow) -> QueryProblem:
    """A row of Spider; its level is the number of tables that it joins, at most 4."""
    golden = rows.statement(row, "query")
    return _problem(row, "spider", golden, min(4, 1 + len(_JOIN.findall(_HIDDEN.sub(" ", golden)))))


def bird(row: DataRow) -> QueryProblem:
    """A row of BIRD, with its evidence."""
    level = LEVELS.get(rows.words(row, "difficulty").lower(), 1)
    return _problem(
        row,
        "bird",
        rows.statement(row, "SQL" if row.get("SQL") else "sql"),
        level,
        rows.text(row, "evidence", default=""),
    )


def synsql(row: DataRow) -> QueryProblem:
    """A row of SynSQL, with its external knowledge."""
    level = LEVELS.get(rows.words(row, "sql_complexity").lower(), 1)
    return _problem(row, "synsql", rows.statement(row, "sql"), level, rows.text(row, "external_knowledge", default=""))


def _problem(row: DataRow, source: str, golden: str, level: int, evidence: str = "") -> QueryProblem:
    database, question = rows.statement(row, "db_id"), rows.statement(row, "question")
    if not _NAME.fullmatch(database):
        raise BadRow(f"'db_id' is {database!r}; expected the name of a database")
    if len(golden) > MOST_QUERY:
        raise LeftOut(f"its golden query has more than {MOST_QUERY} characters")
    golden = golden.rstrip().rstrip(";").rstrip()
    return QueryProblem(
        source=source,
        id=rows.words(row, "question_id") or normalization.name(f"{database} {question} {golden}"),
        statement=question,
        level=level,
        subject=database,
        database=database,
        golden=golden,
        ordered=is_ordered(golden),
        evidence=evidence.strip(),
    )
