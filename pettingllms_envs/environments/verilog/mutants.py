"""Wrong designs: a golden form with one operator, constant or condition changed, proved to differ from it."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator
from functools import lru_cache

from pettingllms_envs.environments.verilog.designs import Design
from pettingllms_envs.graders.designs import DIFFERENT, prove


NUM_MUTANTS, MOST_TRIED = 6, 12
_TOKEN = re.compile(r"(?P<number>\b\d+'d\d+)|(?P<operator><=|[<>=!]=|<<|>>|[&|^+<>?~-])|(?P<gate>\bif \(\w+\) )")
_OTHER = {
    "&": "|",
    "|": "&",
    "^": "|",
    "+": "-",
    "-": "+",
    "~": "",
    "==": "!=",
    "!=": "==",
    "<": "<=",
    ">": ">=",
    "<<": ">>",
    ">>": "<<",
    "? ": "& ",
}


def mutants(source: str) -> list[str]:
    """A design with one token changed, each way once, in an order that mixes the places; some are no design."""
    begin = source.index(";") + 1
    found = [source[:at] + other + source[end:] for at, end, other in _changes(source) if at >= begin]
    return sorted(found, key=_digest)


def _digest(source: str) -> bytes:
    return hashlib.sha256(source.encode()).digest()


def _changes(source: str) -> Iterator[tuple[int, int, str]]:
    for token in _TOKEN.finditer(source):
        text = token[0]
        if token["number"]:
            width, number = map(int, text.split("'d"))
            yield *token.span(), f"{width}'d{number ^ 1}"
            yield *token.span(), f"{width}'d{number ^ 1 << width - 1}"
        elif token["gate"]:
            yield *token.span(), ""
        elif text in _OTHER:
            yield *token.span(), _OTHER[text]


@lru_cache(maxsize=2048)
def wrong_designs(design: Design) -> tuple[str, ...]:
    """Up to six mutants of the golden forms that are proved to differ; those that are equal are left out."""
    tried = [each for form in (design.golden, design.other) if form for each in mutants(form)[:MOST_TRIED]]
    found: list[str] = []
    for mutant in sorted(tried, key=_digest):
        if prove(design.golden, mutant, clocked=design.clocked).verdict == DIFFERENT:
            found.append(mutant)
            if len(found) == NUM_MUTANTS:
                break
    return tuple(found)
