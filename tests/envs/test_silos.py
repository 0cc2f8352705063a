"""Silos: whose database a query reads, what it shows and finds, and the bounds that it shares with archives."""

from __future__ import annotations

import itertools
import math
import random
import re
from collections.abc import Callable
from fractions import Fraction
from functools import partial
from typing import Any

import pytest

import pettingllms_envs
from pettingllms_envs.core import Unreadable, best_reply
from pettingllms_envs.environments.archives import silos
from pettingllms_envs.environments.archives.librarians import WORKFLOWS
from pettingllms_envs.environments.archives.rules import ArchivesMove
from pettingllms_envs.environments.archives.silos import Silos
from pettingllms_envs.environments.archives.world import ARCHIVES, RELATIONS, archive_of
from pettingllms_envs.graders.inside.queries import FIRST_STEPS
from pettingllms_envs.graders.inside.queries import ask as ask_here
from pettingllms_envs.graders.queries import Graded, _graded
from pettingllms_envs.replies.fences import fence
from pettingllms_envs.testing import check
from pettingllms_envs.tools.queries import QueryTool


TINY: dict[str, Any] = {"size": 4, "wording": "symbols"}
BY_NAME = {each.name: each for each in WORKFLOWS}


def rows(task: Silos, archives: tuple[int, ...], query: str, seed: int = 0) -> str:
    _, passages = task.search(task.generate(seed), archives, query)
    return "\n".join(each.text for each in passages)


def test_a_query_reads_the_tables_of_its_own_database_and_shows_eight_rows() -> None:
    task = Silos()
    world = task.world(task.generate(0))
    for archive in ARCHIVES:
        for relation in task.tables(ARCHIVES):
            found = rows(task, (archive,), f"select * from {task.table(relation)}")
            if archive_of(relation) != archive:
                assert found == "It was stopped: it names a table that there is not."
                continue
            assert len(found.splitlines()) == 3 + 8
            for line in found.splitlines()[2:-1]:
                subject, other = line.split(" | ")
                assert world.objects[relation][subject] == other


def test_a_fact_is_found_by_a_row_of_its_table_and_not_by_the_name_alone() -> None:
    task = Silos()
    state = task.generate(0)
    chain = task.world(state).chain
    table, archive = task.table(chain.relations[0]), archive_of(chain.relations[0])
    start, end = chain.names[:2]

    def found(query: str, own: int = archive) -> bool:
        return task.search(state, (own,), query)[0].found[0]

    kinds = task._contents(archive).partition(f"{table}(")[2].partition(")")[0].split(", ")
    assert found(f"select {kinds[1]} from {table} where {kinds[0]} = '{start}'")
    assert not found(f"select '{end}'")
    assert not found(f"select '{end}' from {table} limit 1", 1 - archive)
    assert not found(f"select group_concat({kinds[1]}) from {table}")
    wide = ", ".join(f"(select {kinds[1]} from {table} limit 1 offset {at})" for at in range(40))
    assert not found(f"select {wide}")  # all entities in one row, whatever the question is
    assert not found(f"select * from {table} where {kinds[0]} = 'nobody'")


@pytest.mark.parametrize(
    ("reply", "kind", "expected"),
    [
        (fence("select 1", "sql"), "search", ArchivesMove("search", "select 1")),
        ("Say: Zulo", "say", ArchivesMove("say", "Zulo")),
        ("Say: Zulo", "search", "it has no block of SQL"),
        (fence("select 1", "sql"), "say", "it has a block of SQL"),
        ("Search: Zulo", "search", "it has no block of SQL"),
        (fence("select 1", "sql") * 1 + "\n" + fence("select 2", "sql"), "search", "it has 2 blocks of SQL"),
        (fence("select '\0'", "sql"), "search", "has a character that no query has"),
        (fence("select '\ud800'", "sql"), "search", "has a character that no query has"),
        (fence("x" * 1001, "sql"), "search", "longer than 1000 characters"),
        (fence("-- no query", "sql"), "search", "its query is empty"),
        (fence("/* no query", "sql"), "search", "its query is empty"),
        ("```sql\nselect 1", "search", "has no end"),
    ],
)
def test_a_reply_is_a_block_or_a_last_line(reply: str, kind: str, expected: Any) -> None:
    move, why = Silos().read(reply, kind)
    if isinstance(expected, str):
        assert move is None
        assert expected in why
    else:
        assert (move, why) == (expected, "")
    assert isinstance(Silos().parse(reply), ArchivesMove | Unreadable)


def test_the_bounds_are_those_of_archives() -> None:
    assert (Silos().lone_bound(), Silos().blind_bound()) == (Fraction(1, 40), Fraction(1, 4))


@pytest.mark.parametrize("workflow", ["team", "full"])
def test_the_oracle_is_always_right(workflow: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(QueryTool, "ask", asked_here)
    joined = BY_NAME[workflow](Silos(hops=3))
    for seed in range(15):
        state, over = joined.start(joined.task.generate(seed)), False
        while not over:
            state, _, over, _ = joined.step(state, joined.oracle(state))
        assert joined.task.solved(state.task)


def test_writing_the_best_move_is_read_again() -> None:
    task = Silos()
    assert task.parse(best_reply(task, task.generate(0))) == task.oracle(task.generate(0))


ABOUT = re.compile(r"select \* from (\w+) where \w+ = '(\w+)'")


def looked_up(task: Silos, split: str, seed: int, archives: tuple[int, ...], query: str) -> Graded:
    """What a query of everything about a name gives, read from the world: twenty thousand trials take a minute."""
    world = task.world(task.generate(seed, split))
    by_table = {task.table(each): each for each in task.tables(archives)}
    found = [(table, subject) for table, subject in ABOUT.findall(query) if subject in world.objects[by_table[table]]]
    rows = tuple((subject, world.objects[by_table[table]][subject]) for table, subject in found)
    return Graded(columns=("a", "b") if rows else (), rows=rows, num_rows=len(rows), reads=tuple(sorted(by_table)))


def test_what_is_looked_up_is_what_the_query_gives() -> None:
    task = Silos(**TINY)
    for seed, (archives, name) in enumerate(itertools.product(((0,), (1,), ARCHIVES), ("p0", "t1", "r2", "g3"))):
        request = f"Query {' and '.join(f'database {each}' for each in archives)} now."
        query = task.parse(task._about(name, request)).text  # type: ignore[union-attr]
        given = silos._rows(task, "train", seed, archives, query)
        assert sorted(given.rows) == sorted(looked_up(task, "train", seed, archives, query).rows)
        assert len(given.rows) == 2 * len(archives)


def asked_here(tool: QueryTool, query: str) -> Graded:
    """The same without a sandbox, for queries of our own."""
    return _graded(ask_here(tool.schema, tool.tables, query, tool.rows, FIRST_STEPS))


KIND_OF = {relation.symbol: relation.object[0] for relation in RELATIONS}


def guesser(task: Silos) -> Callable[[str, random.Random], str]:
    """Queries everything about the names that it sees, and answers with any name of the right kind."""
    copier = task.blind_policies["copier"]

    def policy(prompt: str, rng: random.Random) -> str:
        kind = KIND_OF[prompt.partition(" ?")[0].split()[-1]]
        is_answer = prompt.splitlines()[-1].startswith("Answer")
        return f"Answer: {kind}{rng.randrange(task.size)}" if is_answer else copier(prompt, rng)

    return policy


GUESSERS = [
    ("alone", {"archive": 0}, "guesser"),
    ("routed", {"order": "question"}, "copier"),
    ("full", {}, "copier of both archives"),
    ("alone", {"archive": 1}, "copier"),
    ("cut", {}, "guesser"),
    ("cut", {}, "copier"),
    ("full", {}, "copier"),
]


@pytest.mark.parametrize(
    ("workflow", "settings", "name", "trials"),
    [
        *((*each, 60) for each in GUESSERS[:2]),
        *(pytest.param(*each, 20_000, marks=pytest.mark.slow) for each in GUESSERS),
    ],
)
def test_who_reads_no_relation_stays_within_the_bounds(
    workflow: str, settings: dict[str, Any], name: str, trials: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(silos, "_rows", looked_up)
    task, rng, right = Silos(**TINY), random.Random(0), 0
    joined, policy = BY_NAME[workflow](task, **settings), {**task.blind_policies, "guesser": guesser(task)}[name]
    for seed in range(trials):
        state, over = joined.start(task.generate(seed)), False
        while not over:
            state, _, over, _ = joined.step(state, policy(joined.observe(state, joined.actor(state)), rng))
        right += task.solved(state.task)
    bound = float(task.blind_bound() if workflow in ("full", "routed") else task.lone_bound())
    margin = 3.3 * math.sqrt(bound * (1 - bound) / trials)
    print(f"{workflow}, {name}: {right} of {trials}, bound {bound:.3f}")
    assert right / trials < bound + margin
    assert (workflow, name) not in (("alone", "guesser"), ("routed", "copier")) or right / trials > bound - margin


@pytest.mark.slow
@pytest.mark.parametrize("settings", [{}, {"wording": "symbols", "hops": 3, "size": 8}], ids=str)
@pytest.mark.parametrize("workflow", BY_NAME)
def test_it_passes_every_check(workflow: str, settings: dict[str, Any]) -> None:
    report = check(partial(pettingllms_envs.make, "silos", workflow=workflow, **settings), seeds=range(6))
    assert report.ok, str(report)
