"""Questions about a shop, answered by a query: an explorer looks around in the database, an answerer hands in a query.

Rules: a move is one query in a block ```sql. Success is that it returns the rows of the golden query. Instances:
sums over the orders of a person or of a city. The explorer's tool runs what it likes in the same database.
Queries are run in the sandbox, each in a process of its own with a copy of the database, so that none changes it for
another.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache, lru_cache
from typing import ClassVar, NamedTuple

from pettingllms_envs.assembly import assemble
from pettingllms_envs.core import SPLITS, Role, ToolResult, ToolSpec, Unreadable, check_choice
from pettingllms_envs.instances import seeded, split_of
from pettingllms_envs.replies.fences import fence, fenced_blocks
from pettingllms_envs.sandbox import Limits, Sandbox, SandboxFailed, Verdict
from pettingllms_envs.tasks.base import OpenTask
from pettingllms_envs.teams.base import TurnWorkflow


PEOPLE = tuple(zip(("Ann", "Bo", "Cy", "Di", "Ed", "Fay"), ("Rome", "Oslo", "Lima") * 2, strict=True))
ITEMS = ("tea", "pen", "hat", "map")
_rng = seeded("shop")
ORDERS = tuple((_rng.choice(PEOPLE)[0], _rng.choice(ITEMS), _rng.randrange(100, 1000)) for _ in range(150))
TABLES = "create table people(name text, city text);\ncreate table orders(name text, item text, cents int);"
LIMITS = Limits(cpu=2.0, output=1 << 12)


RESIDENT = f"""
import sqlite3, sys
database = sqlite3.connect(":memory:", isolation_level=None)
database.executescript({TABLES!r})
database.executemany("insert into people values(?, ?)", {PEOPLE!r})
database.executemany("insert into orders values(?, ?, ?)", {ORDERS!r})

def main():
    for row in database.execute(sys.stdin.read()):
        print(*row, sep="|")
"""


@cache
def shop() -> Sandbox:
    """The sandbox, whose processes begin with the database."""
    return Sandbox(imports=("sqlite3",), resident=RESIDENT)


@lru_cache(maxsize=1024)
def run_query(query: str) -> ToolResult:
    """What a query returns from a fresh copy of the database, or sqlite's message."""
    done = shop().run("import resident\nresident.main()", query.encode("utf-8", "replace"), limits=LIMITS)
    if done.verdict == Verdict.SANDBOX_ERROR:
        raise SandboxFailed(done.detail)
    error = done.stderr.rstrip().rpartition(b"\n")[2]
    text = (done.stdout + error).decode("utf-8", "replace")
    return ToolResult(text[:1000], "" if done.verdict == Verdict.FINISHED else "the query failed")


@dataclass(frozen=True, slots=True)
class ShopQuery:
    """The tool `sql`: runs one query."""

    digest: ClassVar[str] = "shop 1"
    deterministic: ClassVar[bool] = True
    spec: ClassVar[ToolSpec] = ToolSpec(
        "sql",
        f"Runs one query in sqlite and returns the rows. The tables:\n{TABLES}",
        {"type": "object", "properties": {"query": {"type": "string"}}, "required": ["query"]},
    )

    def __call__(self, query: str) -> ToolResult:
        return run_query(query)


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

    name: ClassVar[str] = "shop"
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
