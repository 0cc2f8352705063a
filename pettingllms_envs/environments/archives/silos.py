"""Silos: the questions of `archives`, whose facts are tables of two databases, each of which one agent can query.

Rules: each relation is a table of two columns, the kind of its subject and that of its object. A query reads the
tables of one database, and shows at most 8 rows. Everything else is as in `rules`: the questions, the workflows (with
`analyst` in place of `librarian`), the rewards, the bounds and the oracle.
Replies: one block of SQL where an agent is asked to query, else the last line, `Say: a message` or `Answer: a name`.
Found: a hop's fact is found once a query of at most two columns, as a table has, reads its table, and a row that it
shows has the entity to which the hop leads in a column of its own. Wider rows could show all entities at once.
Bounds: `lone_bound` and `blind_bound` of `rules`. Their proofs give the lone agent all of one archive, and so whatever
a query could show it.
Source: our own.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import ClassVar

from pettingllms_envs.bounds import BlindPolicy
from pettingllms_envs.caching import remembered
from pettingllms_envs.core import Unreadable
from pettingllms_envs.environments.archives.blind import blind_policies
from pettingllms_envs.environments.archives.rules import SEARCH, Archives, ArchivesMove, ArchivesState, Words
from pettingllms_envs.environments.archives.world import ARCHIVES, RELATIONS, STEPS, Passage, archive_of
from pettingllms_envs.graders.queries import Graded, Suite
from pettingllms_envs.quoting import quote_block
from pettingllms_envs.replies.fences import fence
from pettingllms_envs.tools.queries import QueryTool, query_of


MOST_ROWS, MOST_COLUMNS, MOST_QUERY = 8, 2, 1_000


@dataclass(frozen=True, slots=True)
class Silos(Archives):
    """The task. Its settings are those of `Archives`; `results` is the most rows that a query shows, at most 10."""

    results: int = MOST_ROWS

    name: ClassVar[str] = "silos"
    words: ClassVar[Words] = Words(
        member="analyst",
        source="database",
        search="Query",
        job="First you query, then you see the rows, and tell in a message what is needed next.",
        answers="You are the answerer. You cannot query. The analysts tell you what they find, and you answer.",
        search_format=(
            "When you are asked to query, reply with exactly one block of SQL, for SQLite, like this:\n"
            f"{fence('select 6 * 7', 'sql')}"
        ),
        found="What came of your last query:",
        nothing="Your last query gave no rows.",
    )
    blind_replies: ClassVar[tuple[str, ...]] = (
        fence("select 1", "sql"),
        fence("select * from guild", "sql"),
        *Archives.blind_replies[2:],
    )

    @property
    def blind_policies(self) -> Mapping[str, BlindPolicy]:
        """See `blind`: they query all tables for a name."""
        return blind_policies(self.facts, self._about)

    def table(self, relation: int) -> str:
        each = RELATIONS[relation]
        return each.name.replace(" ", "_") if self.wording == "english" else each.symbol

    def tables(self, archives: Sequence[int]) -> tuple[int, ...]:
        """The relations that the databases have."""
        return tuple(each for each in range(self.facts * STEPS) if archive_of(each) in archives)

    def rules(self) -> str:
        """The game in about 110 words."""
        which = ", and the question says which of them counts" if self.facts > 1 else ""
        return (
            "You answer a question about people, towns, rivers and guilds of a fictional world. Its facts are in two"
            f" databases. {' '.join(map(self._contents, ARCHIVES))} A row says of the first column's entity what the"
            f" table's name says, such as somebody's birthplace{which}. A query shows at most {self.results} rows."
            " Each step of the question needs the other database than the step before."
        )

    def parse(self, reply: str) -> ArchivesMove | Unreadable:
        """The query in the one block of SQL; without a block the words after `Say:` or `Answer:` in the last line."""
        query = query_of(reply, MOST_QUERY)
        if query is not None:
            return query if isinstance(query, Unreadable) else ArchivesMove(SEARCH, query)
        move = super(Silos, self).parse(reply)
        is_search = isinstance(move, ArchivesMove) and move.kind == SEARCH
        return Unreadable("it has no block of SQL") if is_search else move

    def read(self, reply: str, kind: str) -> tuple[ArchivesMove | None, str]:
        """The move of a kind in a reply, or None and why there is none."""
        move = self.parse(reply)
        if isinstance(move, ArchivesMove) and SEARCH in (kind, move.kind) and kind != move.kind:
            return None, f"it has {'no' if kind == SEARCH else 'a'} block of SQL"
        return super(Silos, self).read(reply, kind)

    def search(
        self, state: ArchivesState, archives: Sequence[int], query: str
    ) -> tuple[ArchivesState, tuple[Passage, ...]]:
        """The state after a query of the databases, and its rows as one text."""
        world, own = self.world(state), tuple(archives)
        shown = _rows(self, state.split, state.seed, own, query)
        if shown.reason:
            return state, (Passage(f"It was stopped: {shown.reason}.", "", -1),)
        cells = {cell for row in shown.rows for cell in row if len(row) <= MOST_COLUMNS}
        hops = zip(world.chain.relations, world.chain.names[1:], strict=True)
        found = tuple(
            was or (self.table(relation).lower() in shown.reads and archive_of(relation) in own and name in cells)
            for was, (relation, name) in zip(state.found, hops, strict=True)
        )
        lines = [" | ".join(row) for row in (shown.columns, *shown.rows)]
        passages = (Passage(quote_block("\n".join(lines)), "", -1),) if shown.rows else ()
        return state._replace(found=found), passages

    def write(self, move: ArchivesMove) -> str:
        """A block of SQL, or such as `Say: Zulo`."""
        return fence(move.text, "sql") if move.kind == SEARCH else super(Silos, self).write(move)

    def wanted(self, state: ArchivesState, archives: Sequence[int], kind: str, hop: int) -> ArchivesMove:
        """What an agent with the databases had best query, or say, when a hop is due."""
        move, chain = super(Silos, self).wanted(state, archives, kind, hop), self.world(state).chain
        if kind != SEARCH:
            return move
        hops = zip(chain.names, chain.relations, strict=False)
        due = [relation for name, relation in hops if name == move.text and archive_of(relation) in archives]
        return ArchivesMove(SEARCH, self._select((*due, *self.tables(archives))[0], move.text))

    def _select(self, relation: int, name: str) -> str:
        return f"select * from {self.table(relation)} where {RELATIONS[relation].subject} = '{name}'"

    def _about(self, name: str, request: str) -> str:
        """A query for everything about a name in the databases whose numbers a request names."""
        own = [each for each in ARCHIVES if str(each) in request]
        return fence(" union all ".join(self._select(relation, name) for relation in self.tables(own)), "sql")

    def _contents(self, archive: int) -> str:
        listed = (f"{self.table(each)}({_columns(each)})" for each in self.tables((archive,)))
        return f"Database {archive} has the tables {', '.join(listed)}."


def _columns(relation: int) -> str:
    return f"{RELATIONS[relation].subject}, {RELATIONS[relation].object}"


@lru_cache(maxsize=1)
def _suite() -> Suite:
    """Without databases of its own: they come with each query, as each instance has others."""
    return Suite("", hidden=(), shown={})


@remembered(4096)
def _rows(task: Silos, split: str, seed: int, archives: tuple[int, ...], query: str) -> Graded:
    """What a query gives in the databases of an instance."""
    world, names = task.world(task.generate(seed, split)), task.tables(archives)
    schema = "\n".join(f"create table {task.table(each)} ({_columns(each)});" for each in names)
    rows: dict[str, list[tuple[str, str]]] = {task.table(each): [] for each in names}
    for passage in (each for archive in archives for each in world.passages[archive]):
        rows[task.table(passage.relation)].append((passage.subject, world.objects[passage.relation][passage.subject]))
    return QueryTool(_suite(), rows, schema, task.results).ask(query)
