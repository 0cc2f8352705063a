"""Agents of archives that never read a relation: they see names alone, and pass on the other name of a passage.

With one fact of a name in each archive they are always right, since the order of the archives does the rest.
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Mapping
from functools import partial

from pettingllms_envs.bounds import BlindPolicy


Search = Callable[[str, str], str]
_NAME = re.compile(r"\b(?:[ptrg]\d+|[BDFGKLMNPRSTVZ][aeiou][bdfgklmnprstvz][aeiou][lmnrs])\b")
"""A name, in symbols or in English."""


def blind_policies(facts: int, search: Search | None = None) -> Mapping[str, BlindPolicy]:
    """The policies: of who searches one archive, or both, and of who lets the first turn pass, which is the best where
    the seed draws who begins. Each archive has `facts` of a name. `search` is as in `copier`."""
    searching = partial(copier, search=search or _search)
    return {
        "copier": partial(searching, most=facts),
        "copier of both archives": partial(searching, most=2 * facts),
        "patient copier": partial(searching, most=facts, is_patient=True),
    }


def _search(name: str, request: str) -> str:
    return f"Search: {name}"


def copier(prompt: str, rng: random.Random, *, most: int, is_patient: bool = False, search: Search = _search) -> str:
    """Searches the last name that it was told, or the question's, and tells the other name of a passage about it.

    Args:
        most: Passages of which one is chosen: those about the name that was searched come first.
        is_patient: Whether the first message passes on the question's name.
        search: Writes a search for everything about a name, given what the agent is asked to do.
    """
    question, *rest = prompt.splitlines()
    told = [name for line in rest if line.startswith("> ") for name in _NAME.findall(line)]
    known = [*_NAME.findall(question), *told][-1]
    if rest[-1].startswith(("Search", "Query")):
        return search(known, rest[-1])
    is_answer = rest[-1].startswith("Answer")
    passages = [names for line in rest if not line.startswith("> ") and len(names := _NAME.findall(line)) == 2]
    others = [name for names in passages[:most] if known in names for name in names if name not in (known, *told)]
    if not others or (is_patient and not told and not is_answer):
        others = [known]
    return f"{'Answer' if is_answer else 'Say'}: {rng.choice(others)}"
