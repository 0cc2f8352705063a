"""Workflows of sql: `explorer_writer`, `linker_writer`, `writer_checker` and `single`.

In all of them a `writer` writes queries. It sees what its last query gave in the shown database, and hands it in by
writing it again; the last query of the last turn is handed in, too. Nobody is shown what it is worth.

* `explorer_writer`: in each turn an explorer queries the shown database and sees up to ten rows, then tells the writer
  what it needs, in at most `capacity` characters. The writer sees the names of the tables and columns, and no rows but
  those of its own query.
* `linker_writer`: in each turn a linker, who sees all tables, names at most `max_columns` columns. The writer sees
  these columns alone.
* `writer_checker`: in each turn a checker sees the writer's query and what it gave, and approves it, which ends the
  episode, or refuses it with a reason, which the writer reads.
* `single`: the writer alone, who sees all tables and their first rows.

Rewards: team, on the writer's step, `progress`, -1 to 1, and at the end `success`, see `rules`. To the writer `suite`,
the same change as `progress`. To the linker `linked`, -1 to 1, the change of the share of right columns in those that
it named and those that the golden query reads, together. To the checker `verdict`, -2 to 2, the change of 1 for a
right verdict and -1 for a wrong one. The explorer is paid later. To each `format`, -0.2, for an unreadable reply.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from pettingllms_envs.core import UNREADABLE_PENALTY, Role, ToolResult, Unreadable
from pettingllms_envs.environments.sql.rules import results_text
from pettingllms_envs.quoting import quote_block, quote_inline
from pettingllms_envs.replies.moves import match_last_line
from pettingllms_envs.teams.functions import Ask, Game, Questions, function_workflow
from pettingllms_envs.tools.queries import QueryTool


EXPLORER, LINKER, WRITER, CHECKER = "explorer", "linker", "writer", "checker"
HANDS_IN = "You see what it gives in a database like those that count. You hand it in by writing it again as it is."
WRITES = Role(WRITER, f"You are the writer. You write the query. {HANDS_IN}")
EXPLORES = Role(
    EXPLORER,
    "You are the explorer. You query a database like those that count, and see the first rows. Then you tell the"
    " writer, who sees the tables but no rows, what the query needs, such as how a value is written. Your own query is"
    " one block of SQL; your message is your whole reply.",
    delayed=True,
)
CHECKS = Role(
    CHECKER,
    "You are the checker. You see the writer's query and what it gives in a database like those that count, and decide"
    " whether it is right in all of them. If you approve it, it is handed in.",
    reply_format="End your reply with one line, Approve: yes, or Refuse: and in at most 200 characters what is wrong.",
)
LINKS = (
    "You are the linker. You name the columns that the query needs, those that connect tables as well. The writer sees"
    " no others."
)
COLUMNS_FORMAT = (
    "End your reply with one line: Columns: and at most {} columns as TABLE.COLUMN, with commas in between."
)
MOST_REASON = 200

CHANGE = (-1.0, 1.0)
COMMON: dict[str, Any] = {"num_turns": 3, "cyclic": True, "bonuses": (), "channel": None}

_VERDICT = re.compile(r"(approve): *yes\W*|refuse:(.*)", re.I)
_COLUMNS = re.compile(r"columns:(.*)", re.I)


def written(game: Game, shown: Callable[[], str], keeps: Any) -> Questions:
    """Ask the writer; returns whether it hands its query in."""
    reply = yield Ask(WRITER, shown, None, keeps)
    query, before = game.task.parse(reply), game.state.query
    if isinstance(query, Unreadable):
        game.pay(WRITER, "format", UNREADABLE_PENALTY)
        game.feedback = f"The writer's last reply was unreadable: {query.reason}."
        return False
    game.feedback = ""
    game.pay(WRITER, "suite", game.advance(game.once(game.task.apply, game.state, query)))
    return bool(query == before)


def last_query(game: Game) -> str:
    """The query so far, and what it gave."""
    if not game.state.query:
        return "There is no query yet."
    return f"The query so far:\n{quote_block(game.state.query, 'sql')}\n{results_text(game.state.graded)}"


def prompt(game: Game, tables: str, *notes: str) -> str:
    """The turn, the question and tables, what was unreadable, and the notes."""
    return "\n".join(filter(None, (f"Turn {game.turn} of {game.num_turns}.", tables, game.feedback, *notes)))


def schema_text(game: Game, columns: tuple[tuple[str, str], ...] | None = None) -> str:
    """The question and the tables without rows, or some of their columns."""
    suite = game.task.suite(game.state.problem)
    if columns is None:
        return f"{game.task.question(game.state)}\nThe tables:\n{quote_block(suite.schema, 'sql')}"
    by_table: dict[str, list[str]] = {}
    for table, column in columns:
        by_table.setdefault(table, []).append(column)
    listed = "\n".join(f"{table}: {', '.join(names)}" for table, names in by_table.items())
    return f"{game.task.question(game.state)}\nThe columns that the linker named:\n{quote_block(listed)}"


@function_workflow(WRITES, name="single", ranges={"suite": CHANGE}, **COMMON)
def SingleWriter(game: Game) -> Questions:
    """The writer alone; see the module."""
    for _ in game.turns():
        shown = partial(prompt, game, game.task.show(game.state), last_query(game))
        if game.closes((yield from written(game, shown, ()))):
            break
    return True


@function_workflow(
    lambda team: (Role(LINKER, LINKS, reply_format=COLUMNS_FORMAT.format(team.max_columns)), WRITES),
    name="linker_writer",
    ranges={"suite": CHANGE, "linked": CHANGE},
    legal={"max_columns": range(1, 41)},
    **COMMON,
)
def LinkerWriter(game: Game, max_columns: int = 12) -> Questions:
    """A linker and a writer; see the module.

    Args:
        max_columns: Columns that the linker may name, 1 to 40.
    """
    known, needed = _columns_of(game), _needed(game)
    named: tuple[tuple[str, str], ...] = ()
    worth = 0.0

    def oracle() -> str:
        return f"Columns: {', '.join('.'.join(each) for each in needed[:max_columns])}"

    for _ in game.turns():
        keeps = (named, worth)
        shown = partial(prompt, game, game.task.show(game.state), last_query(game))
        reply = yield Ask(LINKER, shown, oracle, keeps)
        found = _named(reply, known, max_columns)
        if isinstance(found, Unreadable):
            game.pay(LINKER, "format", UNREADABLE_PENALTY)
        else:
            named, before = found, worth
            worth = len({*named} & {*needed}) / max(1, len({*named} | {*needed}))
            game.pay(LINKER, "linked", worth - before)
        shown = partial(prompt, game, schema_text(game, named), last_query(game))
        if game.closes((yield from written(game, shown, (named, worth)))):
            break
    return True


@function_workflow(WRITES, CHECKS, name="writer_checker", ranges={"suite": CHANGE, "verdict": (-2.0, 2.0)}, **COMMON)
def WriterChecker(game: Game) -> Questions:
    """A writer and a checker; see the module."""
    worth, reason = 0.0, ""

    def oracle() -> str:
        return "Approve: yes" if game.solved else "Refuse: its rows are wrong."

    for _ in game.turns():
        note = f"The checker refused it:\n> {quote_inline(reason)}" if reason else ""
        shown = partial(prompt, game, game.task.show(game.state), last_query(game), note)
        yield from written(game, shown, (worth, reason))
        shown = partial(prompt, game, game.task.show(game.state), last_query(game))
        reply = yield Ask(CHECKER, shown, oracle, (worth, reason))
        verdict, approves = match_last_line(_VERDICT, reply, "'Approve: yes' or 'Refuse:' and a reason"), False
        if isinstance(verdict, Unreadable):
            game.pay(CHECKER, "format", UNREADABLE_PENALTY)
        else:
            approves = verdict[1] is not None
            reason = "" if approves else verdict[2].strip()[:MOST_REASON] or "no reason given"
            before, worth = worth, 1.0 if approves == game.solved else -1.0
            game.pay(CHECKER, "verdict", worth - before)
        if game.closes(approves):
            break
    return True


@function_workflow(EXPLORES, WRITES, name="explorer_writer", num_turns=2, ranges={"suite": CHANGE}, bonuses=())
def ExplorerWriter(game: Game, capacity: int = 300) -> Questions:
    """An explorer and a writer; see the module."""
    tool, note = QueryTool(game.task.suite(game.state.problem)), ""
    table = next(iter(game.task.suite(game.state.problem).columns))
    look, say = partial(game.task.write, f'select * from "{table}"'), partial(str, "The tables are as they are shown.")
    for _ in game.turns():
        asked = "Query the database now."
        shown = partial(prompt, game, schema_text(game), last_query(game), asked)
        reply = yield Ask(EXPLORER, shown, look, (note,))
        query, found = game.task.parse(reply), "Your query was unreadable."
        if isinstance(query, Unreadable):
            game.pay(EXPLORER, "format", UNREADABLE_PENALTY)
        else:
            found = _found(game.call(tool, query))
        asked = f"Tell the writer what the query needs now, in at most {capacity} characters: your whole reply."
        shown = partial(prompt, game, schema_text(game), last_query(game), found, asked)
        reply = yield Ask(EXPLORER, shown, say, (note, found))
        note = game.quote(EXPLORER, reply)
        shown = partial(prompt, game, schema_text(game), last_query(game), note)
        if game.closes((yield from written(game, shown, (note,)))):
            break
    return True


def _found(result: ToolResult) -> str:
    if result.error:
        return f"Your query was stopped: {result.error}."
    return f"Your query gave:\n{quote_block(result.text)}" if result.text else "Your query gave no rows."


def _columns_of(game: Game) -> Mapping[str, tuple[str, str]]:
    """Each column of the database by what a linker may call it."""
    columns = game.task.suite(game.state.problem).columns
    return {f"{table}.{column}".lower(): (table, column) for table, names in columns.items() for column in names}


def _needed(game: Game) -> tuple[tuple[str, str], ...]:
    """The columns that the golden query reads."""
    known = _columns_of(game)
    found = (f"{table}.{column}" for table, column in game.task.golden(game.state.problem).reads)
    return tuple(known[each] for each in found if each in known)


def _named(reply: str, known: Mapping[str, tuple[str, str]], most: int) -> tuple[tuple[str, str], ...] | Unreadable:
    """The columns that a reply names, in the order of the tables; those that there are not do not count."""
    found = match_last_line(_COLUMNS, reply, "'Columns:' and columns")
    if isinstance(found, Unreadable):
        return found
    words = [each.strip().strip('`"[]').lower() for each in found[1].split(",")]
    words = [each for each in dict.fromkeys(words) if each]
    if len(words) > most:
        return Unreadable(f"it names more than {most} columns")
    return tuple(column for name, column in known.items() if name in words)


WORKFLOWS = (ExplorerWriter, LinkerWriter, WriterChecker, SingleWriter)
"""The workflows of the environment, the default one first."""
