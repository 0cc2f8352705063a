"""Sql: a question about a database, answered by one query, which is judged on many hidden databases.

Rules: the tables and some of their rows are shown, and a question says which columns are wanted, and where it counts
in which order. A query is right if it gives the golden rows in every hidden database of the same tables, and in the
largest two also where tables are read the other way round: duplicates and unknown values count, the order of rows
where the question says so. A database that roles look at is none of the hidden ones.
Replies: exactly one block of SQL. The agents are those of the workflows, see `writers`.
Rewards: team `progress`, -1 to 1, the change of the share of hidden databases in which the query is right beyond the
best query that always gives the same rows; `success`, 1 at the end if it is right in all. No verdict of a hidden
database is shown.
Limits: a query that writes, attaches, calls a function that is not on the list, or needs more than a hundred times the
golden query's steps of the virtual machine, is wrong, and is told so in fixed words. Nothing depends on a clock.
Outcome: `success`; `one_database`, the verdict of benchmarks that compare the rows in one database as a set; `passed`.
Instances: a seed draws a question about one of six families of tables: four train, one validates, one tests, and no
name of a table, a column or a text in it is in two splits. Levels 1 to 4 are the number of tables that are joined.
With `data` and `databases` Spider, BIRD and SynSQL. A seed whose row cannot be played (its database is missing, broken
or too large, or its golden query has no rows but in one hidden database, or depends on the order of storage) gets the
next row that can; `left_out` counts them.
Oracle: the golden query.
Source: our own. Why one database is too few: Zhong, Yu and Klein 2020 (arXiv:2010.02840).
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

from pettingllms_envs.core import SPLITS, Unreadable, check_choice
from pettingllms_envs.datasets.normalization import name
from pettingllms_envs.datasets.sampling_order import problems
from pettingllms_envs.environments.sql.databases import BadDatabase, suite_in
from pettingllms_envs.environments.sql.families import BY_NAME, FAMILIES, suite_of
from pettingllms_envs.environments.sql.questions import LEVELS, draw
from pettingllms_envs.environments.sql.rows import QueryProblem
from pettingllms_envs.features import DataSet
from pettingllms_envs.graders.inside.queries import MOST_QUERY
from pettingllms_envs.graders.queries import Golden, Graded, Suite, golden_of, grade
from pettingllms_envs.instances import seeded
from pettingllms_envs.quoting import quote_block, quote_headings
from pettingllms_envs.replies.fences import fence
from pettingllms_envs.tasks.data import DataTask
from pettingllms_envs.tools.queries import query_of


EXAMPLES = 3
OWN = "sql"

logger = logging.getLogger(__name__)


class SqlState(NamedTuple):
    """A question, and the query so far."""

    problem: QueryProblem
    query: str = ""
    graded: Graded = Graded()


@dataclass(frozen=True, slots=True)
class Sql(DataTask[SqlState]):
    """The task. Its state is a `SqlState`, its move a query.

    Args:
        data: The questions: None for those of our own, which a seed draws.
        databases: The folder of their databases, `NAME/NAME.sqlite` or `NAME.sqlite`; with `data` only.
    """

    databases: str | None = None

    name: ClassVar[str] = "sql"
    single_agent: ClassVar[str] = "single"
    problem_kind: ClassVar[type[QueryProblem]] = QueryProblem
    own: ClassVar[str] = "own:sql"
    benchmark: ClassVar[str] = "Spider or BIRD"
    remedy: ClassVar[str] = "--set data=xlangai__spider --set databases=FOLDER for them"
    blind_replies: ClassVar[tuple[str, ...]] = (
        *(fence(query, "sql") for query in ("select 1", "select 0", "select null where 0", "values (1, 0)")),
        *("Columns: id, name", "Approve: yes", "Refuse: It is wrong."),
    )

    def __post_init__(self) -> None:
        if (self.data is None) != (self.databases is None):
            raise ValueError(
                f"data is {self.data!r} and databases is {self.databases!r}; expected both, or neither for questions "
                "of our own. Name the folder in which the databases of the data set are, or leave both out."
            )
        if self.databases is not None and not Path(self.databases).expanduser().is_dir():
            raise ValueError(
                f"databases is {self.databases!r}; expected a folder with NAME/NAME.sqlite for each database of the "
                "data set. Unpack them there."
            )

    def generate(
        self,
        seed: int,
        split: str | None = None,
        level: int | None = None,
        problem: str | None = None,
        row: Mapping[str, Any] | None = None,
    ) -> SqlState:
        """The question of a seed in a split, and no query yet.

        Args:
            level: How many tables are joined, 1 to 4; None for any. Of a data set one of its own levels.
        """
        split = SPLITS[0] if split is None else split
        check_choice("split", split, SPLITS)
        if self.data is None:
            check_choice("level", level, (None, *LEVELS))
            if row is not None or problem is not None:
                raise ValueError(
                    f"problem is {problem!r} and row {row!r}; expected none. Give data and databases, too."
                )
            return SqlState(_own(seed, split, level))
        is_free, why, drawn = row is None and problem is None, "", None
        for at in range(len(problems(str(self.data), split, self.layout)) if is_free else 1):
            drawn = self.drawn(self.problem_kind, seed + at, split, row=row, level=level, problem=problem)
            if not (why := self.why_not(drawn)):
                return SqlState(drawn)
        raise ValueError(f"no question of {self.data!r} can be played; of {drawn} {why}. Choose others.")

    def suite(self, problem: QueryProblem) -> Suite:
        """The databases of a question; `BadDatabase` if they cannot be played."""
        if problem.source == OWN:
            return suite_of(BY_NAME[problem.database])
        if self.databases is None:
            raise BadDatabase("its database is missing")
        return suite_in(str(Path(self.databases).expanduser().resolve()), problem.database)

    def golden(self, problem: QueryProblem) -> Golden:
        return golden_of(self.suite(problem), problem.golden, problem.ordered)

    def why_not(self, problem: QueryProblem) -> str:
        """Why a question cannot be played, a clause, and a warning; empty if it can."""
        try:
            why = self.golden(problem).why
        except BadDatabase as error:
            why = str(error)
        if why:
            _warn(self.data, problem.id, why)
        return why

    def parse(self, reply: str) -> str | Unreadable:
        query = query_of(reply, MOST_QUERY)
        return Unreadable("it has no blocks of SQL, and one is expected") if query is None else query

    def apply(self, state: SqlState, move: str) -> SqlState:
        """The query in place of the one before, graded; `SandboxFailed` if the sandbox failed, twice."""
        asked = state.problem
        return state._replace(query=move, graded=grade(self.suite(asked), asked.golden, asked.ordered, move))

    def solved(self, state: SqlState) -> bool:
        """Whether the query gives the golden rows in all hidden databases."""
        return state.graded.right

    def value(self, state: SqlState) -> float:
        """The share of hidden databases in which it does, beyond that of the best constant rows."""
        return state.graded.share

    def rules(self) -> str:
        """What counts, in about 100 words."""
        return (
            "You answer a question about a database by one query in SQL, for SQLite. What counts are its rows, in "
            "other databases of the same tables, which you do not see: with the columns that are asked for in that "
            "order, each row as often as it is asked for. The order of rows counts where the question says so. "
            "Unknown values are NULL. The query is one statement that begins with select, with or values. It cannot "
            "change anything, nor ask for the current time, and a query that takes far too long is wrong."
        )

    def reply_format(self) -> str:
        return f"Write the query as exactly one block of SQL, like this:\n{fence('select 6 * 7', 'sql')}"

    def question(self, state: SqlState) -> str:
        lines = [f"Question: {quote_headings(state.problem.statement)}"]
        return "\n".join(lines + [f"Hint: {quote_headings(each)}" for each in (state.problem.evidence,) if each])

    def show(self, state: SqlState) -> str:
        """The question, the tables, and the first rows of each."""
        suite = self.suite(state.problem)
        tables = f"The tables:\n{quote_block(suite.schema, 'sql')}"
        return f"{self.question(state)}\n{tables}\nTheir first rows:\n{quote_block(_examples(suite))}"

    def oracle(self, state: SqlState) -> str:
        return state.problem.golden

    def write(self, move: str) -> str:
        """A block of SQL."""
        return fence(move, "sql")

    def outcome(self, state: SqlState) -> Mapping[str, bool | int | float]:
        """Both verdicts, and in how many hidden databases the query is right."""
        graded = state.graded
        return {"success": graded.right, "one_database": graded.one, "passed": graded.passed, "hidden": graded.num}

    @property
    def data_set(self) -> DataSet:
        return DataSet(str(self.data)) if self.data else DataSet(self.own, self.benchmark, self.remedy)


@lru_cache(maxsize=4096)
def _warn(data: str | None, id: str, why: str) -> None:
    logger.warning("%s: %r is not played: %s.", data, id, why)


def left_out(task: Sql, split: str) -> Counter[str]:
    """How many questions of a split cannot be played, by the reason. All of their golden queries are run."""
    return Counter(filter(None, map(task.why_not, problems(str(task.data), split, task.layout))))  # type: ignore[arg-type]


def results_text(graded: Graded) -> str:
    """What a query gave in the shown database, for a prompt."""
    if graded.reason:
        return f"It was stopped: {graded.reason}."
    if not graded.rows:
        return "It gave no rows."
    lines = [" | ".join(each) for each in (graded.columns, *graded.rows)]
    more = f"\nThese are the first of {graded.num_rows} rows." if graded.num_rows > len(graded.rows) else ""
    return f"It gave:\n{quote_block(chr(10).join(lines))}{more}"


def _own(seed: int, split: str, level: int | None) -> QueryProblem:
    rng = seeded(OWN, "v0", split, level, seed)
    family = rng.choice([each for each in FAMILIES if each.split == split])
    drawn = draw(family, rng, level)
    named = {"source": OWN, "id": f"{family.name} {name(drawn.text)}", "subject": family.name, "database": family.name}
    asked = {"statement": drawn.text, "level": drawn.level, "golden": drawn.query, "ordered": drawn.ordered}
    return QueryProblem(**named, **asked)  # type: ignore[arg-type]


def _examples(suite: Suite) -> str:
    lines = []
    for table, columns in suite.columns.items():
        rows = suite.shown[table][:EXAMPLES]
        lines += [f"{table}: {', '.join(columns)}", *(" | ".join(map(_text, row)) for row in rows)]
    return "\n".join(lines)


def _text(value: Any) -> str:
    text = "NULL" if value is None else str(value)
    return text if len(text) <= 60 else f"{text[:60]}..."
