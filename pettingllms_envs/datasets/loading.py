"""`load`: loads the problems of a data set, and counts every row that is not among them, with the reason."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NoReturn

from pettingllms_envs.core import SPLITS, check_choice, check_whole
from pettingllms_envs.datasets import normalization
from pettingllms_envs.datasets.columns import Layout
from pettingllms_envs.datasets.files import read_rows
from pettingllms_envs.datasets.hub import HubFile, local
from pettingllms_envs.datasets.problems import MathProblem, Problem
from pettingllms_envs.datasets.rows import BadRow, DataRow, LeftOut, missing
from pettingllms_envs.datasets.sources import Source, find_source, verify


LOOKED_AT = 20
"""Rows at the start of a file that are checked: if none has the columns of a layout, the file has another one."""


@dataclass(frozen=True, slots=True)
class Bad:
    """A row that does not match its layout.

    Args:
        index: Index of the row in the file, from 0, without blank lines.
    """

    file: str
    index: int
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Loaded:
    """Problems, and why other rows are not among them.

    Args:
        left_out: Number of well-formed rows that are not among the problems, by reason.
        revision: The Hub's commit; `""` for other sources.
    """

    problems: tuple[Problem, ...]
    bad: tuple[Bad, ...]
    left_out: Mapping[str, int]
    source: str
    revision: str
    layout: str
    split: str | None


@dataclass(frozen=True, slots=True)
class Entry:
    """A row and the problem that it became, or why it did not."""

    file: str
    index: int
    row: DataRow
    outcome: Problem | BadRow | LeftOut


def load(
    data: str | Path,
    *,
    split: str | None = None,
    layout: str | Layout | None = None,
    revision: str | None = None,
    on_bad: str = "skip",
    include_unjudged: bool = False,
    limit: int | None = None,
) -> Loaded:
    """The problems of a data set.

    Args:
        data: `"own:apps"` for the rows that this package ships in a layout; a local file (.jsonl, .jsonl.gz, .json or
            .parquet) with the columns of its layout; a folder that `pettingllms data prepare` wrote; or a set of the
            Hub with its commit, `"codeparrot/apps@<40 hex digits>"`.
        split: `"train"`, `"validation"` or `"test"`; None for all rows. See `sources` for sets that lack one.
        layout: The rows' layout or its name; None if it is known from the name of the data.
        revision: The Hub's commit, instead of the `@` in `data`.
        on_bad: `"skip"`: malformed rows are listed in `bad`; `"raise"`: the first one is an error.
        include_unjudged: Whether to include problems that no comparison can judge; their `unjudged` says why.
        limit: Stop after this number of problems; the rows after them are not read.
    """
    check_choice("on_bad", on_bad, ("skip", "raise"))
    if limit is not None:
        check_whole("limit", limit, 1)
    source = find_source(data, layout=layout, revision=revision)
    problems: list[Problem] = []
    bad: list[Bad] = []
    left_out: Counter[str] = Counter()
    for entry in entries(source, split):
        outcome = entry.outcome
        if isinstance(outcome, BadRow):
            if on_bad == "raise":
                raise ValueError(
                    f"row {entry.index} of {entry.file}: {outcome}; expected the layout {source.layout.name!r}."
                    " Fix the row, or skip such rows with on_bad='skip'."
                )
            bad.append(Bad(entry.file, entry.index, str(outcome)))
        elif isinstance(outcome, LeftOut):
            left_out[str(outcome)] += 1
        elif outcome.unjudged and not include_unjudged:
            left_out[outcome.unjudged] += 1
        else:
            problems.append(outcome)
            if len(problems) == limit:
                break
    if bad and not problems:
        raise ValueError(
            f"{source.name} has no problem in the layout {source.layout.name!r}; its row {bad[0].index}:"
            f" {bad[0].reason}. Choose the layout that the rows have (layout=...), or fix the rows."
        )
    return Loaded(
        problems=tuple(problems),
        bad=tuple(bad),
        left_out=dict(left_out),
        source=source.name,
        revision=source.revision,
        layout=source.layout.name,
        split=split,
    )


def entries(source: Source, split: str | None, read: Callable[[int], None] | None = None) -> Iterator[Entry]:
    """Iterate over the rows of a split, each with its problem or why it has none.

    Args:
        split: The split; None for all rows.
        read: Called now and then with the number of bytes read since the last call.
    """
    if split is not None:
        check_split(source, split)
    if split is None:
        for has, files in source.files.items():
            yield from _of_files(source, files, frozenset(), unique=source.layout.repeats and has != "test", read=read)
    else:
        has, kept = source.shares[split]
        unique = source.layout.repeats and has != "test"
        yield from _of_files(source, source.files[has], kept, unique=unique, read=read)


def check_split(source: Source, split: str) -> None:
    """Raise `ValueError` if the source does not have the split."""
    if split not in source.shares:
        offered = " or ".join(map(repr, source.shares))
        known = "" if split in SPLITS else f" No split has the name {split!r}."
        raise ValueError(
            f"{source.name} has no {split!r} split; expected {offered}.{known} Name one, or load all rows."
        )


def _of_files(
    source: Source,
    files: tuple[Path | HubFile, ...],
    kept: frozenset[str],
    *,
    unique: bool,
    read: Callable[[int], None] | None,
) -> Iterator[Entry]:
    seen: dict[bytes, str] = {}
    ids: dict[str, tuple[str, str]] = {}
    for file in files:
        path = local(file)
        verify(source, path)
        for index, row in _fitting(source, file.name, read_rows(path, read)):
            if isinstance(row, BadRow):
                yield Entry(file.name, index, {}, row)
                continue
            row = {**source.gaps, **row}
            outcome = _outcome(source.layout, row)
            if isinstance(outcome, Problem):
                if kept and normalization.split(outcome.statement) not in kept:
                    continue
                outcome = _first(outcome, seen) if unique else outcome
            if isinstance(outcome, Problem):
                outcome = _of_its_own_name(outcome, ids)
            yield Entry(file.name, index, row, outcome)


def _fitting(source: Source, file: str, read: Iterator[DataRow | BadRow]) -> Iterator[tuple[int, DataRow | BadRow]]:
    """The rows of a file with their indices, once one of them has the columns of the layout.

    Raises:
        ValueError: None of the first `LOOKED_AT` rows has: it is another layout's file, and not a malformed row.
    """
    held: list[tuple[int, DataRow | BadRow]] = []
    strange: DataRow | None = None
    rows = enumerate(read)
    for index, row in rows:
        held.append((index, row))
        if isinstance(row, BadRow):
            continue
        if not missing(source.layout.columns, row):
            strange = None
            break
        strange = row if strange is None else strange
        if index + 1 >= LOOKED_AT:
            break
    if strange is not None:
        _refuse_columns(source, file, strange)
    yield from held
    yield from rows


def _outcome(layout: Layout, row: DataRow) -> Problem | BadRow | LeftOut:
    try:
        return layout.read(row)
    except (BadRow, LeftOut) as reason:
        return reason


def _first(problem: Problem, seen: dict[bytes, str]) -> Problem | LeftOut:
    """The problem, or `LeftOut` if an earlier row has the same statement."""
    key = hashlib.sha256(" ".join(problem.statement.split()).encode("utf-8", "surrogatepass")).digest()[:16]
    answer = problem.answer if isinstance(problem, MathProblem) else ""
    if key not in seen:
        seen[key] = answer
        return problem
    return LeftOut("an earlier row has its statement" + ("" if seen[key] == answer else " and another answer"))


def _of_its_own_name(problem: Problem, ids: dict[str, tuple[str, str]]) -> Problem | BadRow | LeftOut:
    """The problem, or `LeftOut` if an earlier row is the same, or `BadRow` if another problem has its id.

    An id that is made of the words of a statement gets a suffix where an earlier one differs in other signs alone, as
    `(8-3)-2` from `8-(3-2)`.
    """
    signs = normalization.form(problem.statement, signs=True).hex()
    digest, earlier = ids.setdefault(problem.id, ("", signs))
    if not digest:
        ids[problem.id] = problem.digest, signs
        return problem
    if digest == problem.digest:
        return LeftOut("an earlier row is the same")
    if earlier != signs and problem.id.endswith(normalization.name(problem.statement)):
        return _of_its_own_name(replace(problem, id=f"{problem.id}-{signs[:8]}"), ids)
    return BadRow(f"its id {problem.id!r} is an earlier row's; expected one of its own")


def _refuse_columns(source: Source, file: str, row: DataRow) -> NoReturn:
    lacking = missing(source.layout.columns, row)
    raise ValueError(
        f"{file} has the columns {', '.join(map(repr, row))} and lacks {', '.join(lacking)}; expected those of the"
        f" layout {source.layout.name!r}. Name its own layout, or another file."
    )
