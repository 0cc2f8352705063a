"""Reads `primary`, `primary_seeds` and `secondary` of a study file: the comparisons that are named before it runs.

primary:
  - {environment: archives, methods: [team, full]}   # team minus full
primary_seeds: [1, 2, 3, 4, 5, 6, 7, 8, 9, 10]       # of the methods that are named, in their environment
secondary:
  - {environment: archives, methods: [team, grpo]}   # corrected for the number of these alone
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from pettingllms_trl.research.study.plans.study_values import check_known, mapping, seeds_of


MOST_PRIMARY = 4
"""Comparisons that intervals are corrected for: with more, a study needs many seeds to show anything."""
EXAMPLE = "primary: [{environment: NAME, methods: [A, B]}]"
Primary = Mapping[str, Any]
"""`{"environment": NAME, "methods": [A, B]}`: A less B."""


def named_of(
    given: Mapping[str, Any], methods_of: Mapping[str, Sequence[str]]
) -> tuple[tuple[Primary, ...], tuple[Primary, ...]]:
    """The primary and the secondary comparisons, written in one way, as they are part of digests."""
    primary, secondary = (_comparisons(kind, given.get(kind), methods_of) for kind in ("primary", "secondary"))
    if secondary and not primary:
        raise ValueError(
            f"secondary is {given['secondary']!r}, but no comparison is primary; expected both, as secondary ones "
            f"come after what the study is made for. Add {EXAMPLE}, or name these as primary."
        )
    if both := [each for each in secondary if any(_same(each, other) for other in primary)]:
        raise ValueError(
            f"secondary compares {' and '.join(both[0]['methods'])} in {both[0]['environment']}, as primary does; "
            "expected each comparison in one of them. Remove one."
        )
    return primary, secondary


def _comparisons(kind: str, given: Any, methods_of: Mapping[str, Sequence[str]]) -> tuple[Primary, ...]:
    if given is None:
        return ()
    if not isinstance(given, list) or not 1 <= len(given) <= MOST_PRIMARY:
        raise ValueError(
            f"{kind} is {given!r}; expected a list of 1 to {MOST_PRIMARY} comparisons, which intervals are corrected "
            f"for. Write {EXAMPLE.replace('primary', kind)}, or leave it out to correct for all comparisons."
        )
    found: list[Primary] = []
    for number, each in enumerate(given):
        own = _comparison(f"{kind}[{number}]", each, methods_of)
        if any(_same(own, other) for other in found):
            raise ValueError(
                f"{kind}[{number}] compares {' and '.join(own['methods'])} in {own['environment']} again; expected "
                "each comparison once, as intervals are corrected for their number. Remove one."
            )
        found.append(own)
    return tuple(found)


def _comparison(where: str, given: Any, methods_of: Mapping[str, Sequence[str]]) -> Primary:
    check_known(where, mapping(where, given), {"environment", "methods"})
    environment, methods = given.get("environment"), given.get("methods")
    if environment not in [*methods_of]:
        raise ValueError(
            f"{where} has the environment {environment!r}; expected one of the study: {', '.join(methods_of)}. Write "
            f"{EXAMPLE}."
        )
    here = methods_of[environment]
    if not isinstance(methods, list) or len(methods) != 2 or any(each not in here for each in methods):
        raise ValueError(
            f"{where} has the methods {methods!r}; expected two of {environment}: {', '.join(here)}. Write {EXAMPLE}."
        )
    if methods[0] == methods[1]:
        raise ValueError(f"{where} compares {methods[0]} with itself; expected another method. Write {EXAMPLE}.")
    return {"environment": environment, "methods": methods}


def _same(one: Primary, other: Primary) -> bool:
    return one["environment"] == other["environment"] and {*one["methods"]} == {*other["methods"]}


def primary_seeds_of(given: Any, seeds: tuple[int, ...], *, has_primary: bool) -> tuple[int, ...]:
    """The seeds of the methods that primary comparisons name; those of the study by default, none without any."""
    if given is None:
        return seeds if has_primary else ()
    if not has_primary:
        raise ValueError(
            f"primary_seeds is {given!r}, but no comparison is primary; expected both or none. Add {EXAMPLE}, or "
            "name the seeds in seeds."
        )
    found = seeds_of("primary_seeds", given)
    if missing := sorted({*seeds}.difference(found)):
        raise ValueError(
            f"primary_seeds is {given}, without {missing} of seeds; expected all of these and more, as methods are "
            "compared on the seeds that both have. Add them."
        )
    return found
