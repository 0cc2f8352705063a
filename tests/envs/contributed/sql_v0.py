"""Questions about a shop, answered by a query: an explorer looks around in the database, an answerer hands in a query.

Rules: a move is one query in a block ```sql. Success is that it returns the rows of the golden query. Instances:
sums over the orders of a person or of a city. The explorer's tool runs what it likes in the same database.
Queries run in the sandbox, each on a database of its own in memory, which no query can change for others.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import ClassVar, NamedTuple

from pettingllms_envs.assembly import assemble
from pettingllms_envs.core import SPLITS, Role, ToolResult, ToolSpec, Unreadable, check_choice
from pettingllms_envs.instances import seeded, split_of
from pettingllms_envs.replies import fence, fenced_blocks
from pettingllms_envs.sandbox import ToolExecutor
from pettingllms_envs.tasks.base import OpenTask
from pettingllms_envs.workflows.base import TurnWorkflow


PEOPLE = tuple(zip(("Ann", "Bo", "Cy", "Di", "Ed", "Fay"), ("Rome", "Oslo", "Lima") * 2, strict=True))
ITEMS = ("tea", "pen", "hat", "map")
_rng = seeded("shop")
ORDERS = tuple((_rng.choice(PEOPLE)[0], _rng.choice(ITEMS), _rng.randrange(100, 1000)) for _ in range(150))
TABLES = "create table people(name text, city text);\ncreate table orders(name text, item text, cents int);"
PROGRAM = """
import sqlite3
shop = sqlite3.connect(":memory:")
shop.executescript({tables!r})
shop.executemany("insert into people values(?, ?)", {people!r})
shop.executemany("insert into orders values(?, ?, ?)", {orders!r})
try:
    for row in shop.execute({query!r}).fetchmany(20):
        print(*row, sep=" | ")
except (sqlite3.Error, sqlite3.Warning) as error:
    print("error:", error)
"""


@dataclass(frozen=True, slots=True)
class ShopQuery:
    """The tool `sql`: runs one query and returns up to 20 rows."""

    digest: ClassVar[str] = "shop 1"
    deterministic: ClassVar[bool] = True
    spec: ClassVar[ToolSpec] = ToolSpec(
        "sql",
        f"Runs one query in sqlite and returns up to 20 rows. The tables:\n{TABLES}",
        {"type": "object", "properties": {"query": {"type": "string"}}, "required": ["query"]},
    )

    def __call__(self, query: str) -> ToolResult:
        return run_query(query)


@lru_cache(maxsize=1024)
def run_query(query: str) -> ToolResult:
    return ToolExecutor()(PROGRAM.format(tables=TABLES, people=PEOPLE, orders=ORDERS, query=query))


class SqlState(NamedTuple):
    """A question, its golden query, and what the last query returned."""

    question: str
    golden: str
    returned: ToolResult | None = None


QUESTIONS = [
    (
        f"What do the orders of {item} {words} {name} cost together, in cents?",
        f"select sum(cents) from {tables} where {column} = '{name}' and item = '{item}'",
    )
    for words, tables, column, names in (
        ("by", "orders", "name", [name for name, _ in PEOPLE]),
        ("from", "orders join people using (name)", "city", ["Rome", "Oslo", "Lima"]),
    )
    for name in names
    for item in ITEMS
]


@dataclass(frozen=True, slots=True)
class Sql(OpenTask[SqlState]):
    """The task; its move is a query."""

    name: ClassVar[str] = "sql"
    blind_replies: ClassVar[tuple[str, ...]] = ("```sql\nselect 0\n```", "```sql\nselect sum(cents) from orders\n```")

    def generate(self, seed: int, *, split: str = "train") -> SqlState:
        check_choice("split", split, SPLITS)
        questions = [pair for pair in QUESTIONS if split_of(pair[0].encode()) == split]
        return SqlState(*seeded(self.name, split, seed).choice(questions))

    def rules(self) -> str:
        return f"Answer a question about a shop by one query to its sqlite database.\n{TABLES}"

    def reply_format(self) -> str:
        return "End your reply with the query in one block, ```sql ... ```."

    def show(self, state: SqlState) -> str:
        return f"The question: {state.question}"

    def parse(self, reply: str) -> str | Unreadable:
        blocks = fenced_blocks(reply, {"sql": "sql"})
        if isinstance(blocks, Unreadable):
            return blocks
        return blocks[0][1] if len(blocks) == 1 else Unreadable("it does not have exactly one block of SQL")

    def write(self, move: str) -> str:
        return fence(move, "sql")

    def apply(self, state: SqlState, move: str) -> SqlState:
        return state._replace(returned=run_query(move))

    def solved(self, state: SqlState) -> bool:
        return state.returned == run_query(state.golden)

    def oracle(self, state: SqlState) -> str:
        return state.golden


@dataclass(frozen=True, slots=True)
class Explore(TurnWorkflow):
    """An explorer with the tool, and an answerer whose query counts."""

    name: ClassVar[str] = "explore"
    roles: ClassVar[tuple[Role, ...]] = (
        Role("explorer", "You are the explorer. Run queries, and tell the answerer what you found.", delayed=True),
        Role("answerer", "You are the answerer. You read what the explorer found and hand in the query."),
    )


raw_env, env, parallel_env = assemble(Sql, __name__, (Explore,), role_tools={"explorer": [ShopQuery()]})
