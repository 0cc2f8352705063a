"""Finds test problems in a training set: statements with the same words, and near copies of them.

The similarity of two statements is the share of the shorter one's runs of three words that both have. Runs that occur
in many test statements ("the number of positive ...") do not count. An index from runs to test statements makes this
linear in the training set: each of its statements is compared only with the few that share a run with it.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from pettingllms_envs.datasets import normalization


RUN = 3
"""Words in a run. Thirteen, as in GPT-3's check of web pages, would miss one copy in two whose wording was edited."""

FEWEST_SHARED = 10
"""Fewest runs that near copies share: with fewer, phrases common to all problems would count as a copy."""

COMMON = 0.01
"""A run that more than this share of the test statements have, and more than ten of them, does not count."""


@dataclass(frozen=True, slots=True)
class Statement:
    """A problem's statement and its source."""

    data: str
    id: str
    text: str


@dataclass(frozen=True, slots=True)
class Overlap:
    """A statement of the training set and its copy in a test set.

    Args:
        similarity: 1 if the words are the same; else the share of common runs, from the threshold to 1.
    """

    train: Statement
    test: Statement
    similarity: float
    exact: bool


def overlaps(train: Iterable[Statement], tests: Sequence[Statement], threshold: float = 0.5) -> Iterator[Overlap]:
    """Every pair of a training and a test statement that are copies, in the order of the training set.

    Args:
        tests: Test statements; kept in memory, with an index.
        threshold: Least similarity of near copies, above 0, at most 1.
    """
    if not 0 < threshold <= 1:
        raise ValueError(f"threshold is {threshold}; expected above 0 and at most 1.")
    same: defaultdict[bytes, list[int]] = defaultdict(list)
    index: dict[int, list[int]] = {}
    sizes, common = _indexed(tests, same, index)
    for each in train:
        exact = same.get(normalization.form(each.text), [])
        for number in exact:
            yield Overlap(each, tests[number], 1.0, True)
        runs = _runs(each.text) - common
        shared = Counter(number for run in runs for number in index.get(run, ()))
        for number, count in sorted(shared.items()):
            shorter = min(len(runs), sizes[number])
            if count >= max(FEWEST_SHARED, threshold * shorter) and number not in exact:
                yield Overlap(each, tests[number], count / shorter, False)


def _indexed(
    tests: Sequence[Statement], same: defaultdict[bytes, list[int]], index: dict[int, list[int]]
) -> tuple[list[int], set[int]]:
    """Fill both indices. Returns the number of counted runs of each test statement, and the runs that do not count."""
    runs = [_runs(each.text) for each in tests]
    for number, each in enumerate(tests):
        same[normalization.form(each.text)].append(number)
        for run in runs[number]:
            index.setdefault(run, []).append(number)
    most = max(10, COMMON * len(tests))
    common = {run for run, numbers in index.items() if len(numbers) > most}
    for run in common:
        del index[run]
    return [len(each - common) for each in runs], common


def _runs(statement: str) -> set[int]:
    words = normalization.words(statement)
    return {hash(run) for run in zip(*(words[start:] for start in range(RUN)), strict=False)}
