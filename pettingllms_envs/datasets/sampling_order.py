"""Maps seeds to the problems of a data set, for all tasks on data sets.

The problems of a split are ordered by their digests, which is as good as shuffled, and does not depend on the source
of the rows. Seed s gives problem s modulo their number. So the seeds 0 to n - 1 give all n problems once, and the
first hundred are a fair sample.
"""

from __future__ import annotations

import logging
from collections.abc import Hashable, Mapping
from functools import lru_cache
from itertools import islice

from pettingllms_envs.datasets import load
from pettingllms_envs.datasets.problems import Problem
from pettingllms_envs.suggestions import did_you_mean


MOST_NAMED = 5

logger = logging.getLogger(__name__)


@lru_cache(maxsize=16)
def problems(data: str, split: str, layout: str | None = None, include_unjudged: bool = False) -> tuple[Problem, ...]:
    """The problems of a split in the order of their digests, cached in the process. Warns of malformed rows.

    Args:
        data: Argument of `pettingllms_envs.datasets.load`.
        split: `"train"`, `"validation"` or `"test"`.
    """
    loaded = load(data, split=split, layout=layout, include_unjudged=include_unjudged)
    if loaded.bad:
        first = loaded.bad[0]
        logger.warning(
            f"{data}: malformed rows are not played, {len(loaded.bad)} in all; the first is row {first.index} of"
            f" {first.file}: {first.reason}. datasets.load() lists them."
        )
    found = sorted(loaded.problems, key=lambda problem: problem.digest)
    if not found:
        raise ValueError(f"{data!r} has no problem in its split {split!r}; expected one at least. Take another split.")
    return tuple(found)


def draw(
    data: str,
    layout: str | None,
    seed: int,
    *,
    split: str,
    problem: str | None = None,
    include_unjudged: bool = False,
    **fields: object,
) -> Problem:
    """The problem of a seed or of an id; see `problems`.

    Args:
        seed: Any whole number.
        problem: The id of a problem; seed and fields are ignored then.
        **fields: Only use problems with these values, such as `level=2`; None means any value.
    """
    for name, value in {"problem": problem, **fields}.items():
        if not isinstance(value, Hashable):
            raise ValueError(f"{name} is {value!r}; expected a number or a text, such as one that the data has.")
    if problem is None:
        wanted = tuple((name, value) for name, value in fields.items() if value is not None)
        chosen = _with(data, split, layout, include_unjudged, wanted)
        return chosen[seed % len(chosen)]
    known = _by_id(data, split, layout, include_unjudged)
    if problem not in known:
        some = ", ".join(map(repr, islice(known, MOST_NAMED)))
        raise ValueError(
            f"problem is {problem!r}; expected the id of one of {len(known)} in {data!r}, split {split!r}, such as"
            f" {some}.{did_you_mean(problem, known)}"
        )
    return known[problem]


@lru_cache(maxsize=64)
def _with(
    data: str, split: str, layout: str | None, include_unjudged: bool, fields: tuple[tuple[str, object], ...]
) -> tuple[Problem, ...]:
    """The problems of a split that have these values."""
    found = problems(data, split, layout, include_unjudged)
    for name, value in fields:
        there = sorted({getattr(problem, name) for problem in found} - {None})
        if value not in there:
            named = ", ".join(map(repr, there))
            raise ValueError(f"{name} is {value!r}; expected one of those in {data!r}, split {split!r}: {named}.")
        found = tuple(problem for problem in found if getattr(problem, name) == value)
    return found


@lru_cache(maxsize=16)
def _by_id(data: str, split: str, layout: str | None, include_unjudged: bool) -> Mapping[str, Problem]:
    return {problem.id: problem for problem in problems(data, split, layout, include_unjudged)}
