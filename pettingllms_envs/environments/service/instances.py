"""Instances of `service`: the words, facts and tables of a seed, and the states in which its episode should end."""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping
from functools import lru_cache
from itertools import chain
from typing import NamedTuple

from pettingllms_envs.environments.service.domains import (
    DOMAINS,
    LABELS,
    MOST_VALUES,
    NO,
    NUM_KNOWN,
    YES,
    Call,
    DatabaseRow,
    Domain,
)
from pettingllms_envs.instances import seeded


ENGLISH, SYMBOLS = WORDINGS = ("english", "symbols")

Rows = tuple[tuple[str, ...], ...]
"""The provider's table: its rows, each with a word for each column."""
Things = tuple[tuple[str, str], ...]
"""What the user's tools change: names and values."""


class Instance(NamedTuple):
    """What a seed decides.

    Args:
        columns: Of the provider's table; the first one names the row.
        known: The user's facts, the first and the second of each kind.
        labels: Which fact of each kind the goal names, one of `LABELS`.
        facts: These facts, by kind: first those of the user, then those of the provider.
        golden: The pairs of states in which the episode succeeds, one for each outcome that the policy allows.
    """

    domain: Domain
    words: Mapping[str, tuple[str, ...]]
    columns: tuple[str, ...]
    known: Mapping[str, tuple[str, str]]
    labels: Mapping[str, str]
    facts: Mapping[str, str]
    accepts: tuple[str, ...]
    rows: Rows
    things: Things
    golden: tuple[tuple[Rows, Things], ...]

    @property
    def key(self) -> str:
        """The row that the goal means."""
        return next(iter(self.facts.values()))

    @property
    def user_kinds(self) -> tuple[str, ...]:
        return tuple(self.domain.kinds)[:NUM_KNOWN]

    @property
    def provider_kinds(self) -> tuple[str, ...]:
        return tuple(self.domain.kinds)[NUM_KNOWN:]

    def row(self, rows: Rows, key: str) -> dict[str, str]:
        return next(dict(zip(self.columns, row, strict=True)) for row in rows if row[0] == key)


@lru_cache(1024)
def instance_of(
    name: str, values: int, wording: str, split: str, seed: int, alike: tuple[int, ...] | None = None
) -> Instance:
    """The instance of a seed. With `alike`, numbers of words, the user's needed facts are these, and all else is as
    it was: the provider's table, and what the user accepts."""
    domain, rng = DOMAINS[name], seeded("service", "v0", name, values, wording, split, seed)
    words = words_of(name, values, wording)
    labels = {kind: rng.choice(LABELS) for kind in domain.kinds}
    drawn = [(rng.randrange(values), rng.randrange(1, values)) for _ in range(NUM_KNOWN)]
    accepts = tuple(rng.sample(tuple(domain.outcomes), rng.choice((1, 2))))
    columns, rows = _table(domain, words, accepts, rng)
    known, facts = dict[str, tuple[str, str]](), dict[str, str]()
    for at, kind in enumerate(tuple(domain.kinds)[:NUM_KNOWN]):
        right = drawn[at][0] if alike is None else alike[at]
        facts[kind] = words[kind][right]
        other = words[kind][(right + drawn[at][1]) % values]
        known[kind] = (facts[kind], other) if labels[kind] == LABELS[0] else (other, facts[kind])
    things = tuple(domain.begins(words).items())
    made = Instance(domain, words, columns, known, labels, facts, accepts, rows, things, ())
    row = made.row(rows, made.key)
    facts |= {kind: row[f"{kind} {labels[kind]}"] for kind in made.provider_kinds}
    return made._replace(golden=tuple(_golden(made, row)))


def applied(instance: Instance, rows: Rows, call: Call) -> Rows:
    """The table after a call of one of the provider's tools."""
    sets = instance.domain.tools[call[0]].sets
    values = {column: text.format(*call[1:]) for column, text in sets.items()}
    if not values:
        return rows
    at = next(number for number, row in enumerate(rows) if row[0] == call[1])
    row = tuple(values.get(column, cell) for column, cell in zip(instance.columns, rows[at], strict=True))
    return *rows[:at], row, *rows[at + 1 :]


def changed(instance: Instance, things: Things, call: Call) -> Things:
    """The user's things after a call of one of its tools."""
    sets = instance.domain.user_tools[call[0]].sets
    values = {name.format(*call[1:]): text.format(*call[1:]) for name, text in sets.items()}
    return tuple((name, values.get(name, value)) for name, value in things)


def _golden(instance: Instance, row: DatabaseRow) -> Iterator[tuple[Rows, Things]]:
    """The pairs of states that the planner's calls lead to, of each outcome that is accepted and allowed."""
    domain, things = instance.domain, instance.things
    for call in domain.user_plan(instance.facts):
        things = changed(instance, things, call)
    for outcome in instance.accepts:
        if domain.allows(outcome, row):
            rows = instance.rows
            for call in domain.plan(outcome, row, instance.facts):
                rows = applied(instance, rows, call)
            yield rows, things


def _table(
    domain: Domain, words: Mapping[str, tuple[str, ...]], accepts: tuple[str, ...], rng: random.Random
) -> tuple[tuple[str, ...], Rows]:
    """The columns and rows of a provider. Whichever row the goal means, the policy allows some accepted outcome."""
    key, *others = domain.kinds
    pairs = others[NUM_KNOWN - 1 :]
    named = [f"{kind} {label}" for kind in pairs for label in LABELS]
    columns = (key, *named, *domain.drawn, *domain.flags, *domain.starts)
    rows = []
    foreign = domain.kinds[key].words[MOST_VALUES:]
    for name in (*words[key], *foreign):
        flags: dict[str, str] = {}
        while not any(domain.allows(outcome, flags) for outcome in accepts if flags):
            flags = {flag: rng.choice((YES, NO)) for flag in domain.flags}
        facts = chain.from_iterable(rng.sample(words[kind], 2) for kind in pairs)
        drawn = (rng.choice(words[kind]) for kind in domain.drawn.values())
        rows.append((name, *facts, *drawn, *flags.values(), *domain.starts.values()))
    return columns, tuple(rows)


@lru_cache(64)
def words_of(name: str, values: int, wording: str) -> Mapping[str, tuple[str, ...]]:
    """The words of each kind; as symbols, a letter for each that is no number and no outcome."""
    domain, letters = DOMAINS[name], iter("abcdefghijklmnopqrstuvwxyz")
    words = {**{kind: each.words[:MOST_VALUES] for kind, each in domain.kinds.items()}, **domain.others}
    if wording != ENGLISH:
        for kind, each in words.items():
            if not each[0].isdigit() and each != tuple(domain.outcomes):
                words[kind] = tuple(next(letters) for _ in each)
    return {kind: each[:values] if kind in domain.kinds else each for kind, each in words.items()}
