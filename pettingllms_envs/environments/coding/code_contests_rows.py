"""CodeContests (deepmind/code_contests): problems of Codeforces, CodeChef, AtCoder, Aizu and HackerEarth.

Tests are public, private and generated (inputs made by mutation, outputs on which right programs agreed), in columns
of lists. Source: Li et al. 2022, arXiv:2203.07814.
"""

from __future__ import annotations

from pettingllms_envs.datasets import judging, rows
from pettingllms_envs.datasets.code_problems import CodeProblem
from pettingllms_envs.datasets.rows import BadRow, DataRow, LeftOut
from pettingllms_envs.environments.coding.apps_rows import MAX_SOLUTIONS
from pettingllms_envs.sandbox.values import StdinTest


PYTHON3 = 3
"""The number of the language; programs in Python 2 (1) are ignored."""

MAX_WRONG = 32
"""Wrong programs of a problem that are kept, the first ones."""


def read(row: DataRow) -> CodeProblem:
    """A row of CodeContests as a problem."""
    statement = rows.statement(row, "description")
    reads = rows.text(row, "input_file", default="") or rows.text(row, "output_file", default="")
    said = judging.rules(statement)
    if reads:
        said = said._replace(unjudged=f"it reads or writes the file {reads}")
    public = _tests(row, "public_tests")
    tests = (*public, *_tests(row, "private_tests"), *_tests(row, "generated_tests"))
    if not tests:
        raise LeftOut("it has no tests")
    return CodeProblem(
        source="code_contests",
        id=rows.text(row, "name"),
        statement=statement,
        level=_level(row),
        tests=tests,
        num_public=len(public),
        solutions=_programs(row, "solutions")[:MAX_SOLUTIONS],
        wrong=_programs(row, "incorrect_solutions")[:MAX_WRONG],
        **said._asdict(),
        cpu=_seconds(row),
        memory=_memory(row),
    )


def _tests(row: DataRow, column: str) -> tuple[StdinTest, ...]:
    if row.get(column) is None:
        return ()
    lists = rows.table(row[column], f"{column!r}")
    found = rows.pairs(lists.get("input"), lists.get("output"), f"{column!r}")
    return tuple(StdinTest(*rows.texts(pair, repr(column))) for pair in found)


def _programs(row: DataRow, column: str) -> tuple[str, ...]:
    if row.get(column) is None:
        return ()
    lists = rows.table(row[column], f"{column!r}")
    languages = rows.items(lists.get("language"), f"the languages of {column!r}")
    programs = rows.texts(lists.get("solution"), f"the list of programs of {column!r}")
    if len(languages) != len(programs):
        raise BadRow(f"{column!r} has {len(languages)} languages for {len(programs)} programs; expected as many")
    return tuple(
        program for language, program in zip(languages, programs, strict=True) if language in (PYTHON3, "PYTHON3")
    )


def _level(row: DataRow) -> int:
    """From 1: a step for each 400 points of Codeforces' rating; without one, the problem's letter."""
    rating = row.get("cf_rating") or 0
    if not isinstance(rating, int):
        raise BadRow(f"'cf_rating' is a {type(rating).__name__}; expected a whole number")
    if rating > 0:
        return 1 + max(0, rating - 800) // 400
    letter = rows.text(row, "cf_index", default="")[:1].upper()
    return ord(letter) - ord("A") + 1 if "A" <= letter <= "Z" else 1


def _seconds(row: DataRow) -> float | None:
    if row.get("time_limit") is None:
        return None
    limit = rows.table(row["time_limit"], "'time_limit'")
    seconds, nanos = limit.get("seconds") or 0, limit.get("nanos") or 0
    if not (isinstance(seconds, int) and isinstance(nanos, int)) or not 0 <= seconds < 86_400 or nanos < 0:
        raise BadRow(f"'time_limit' is {dict(limit)!r}; expected whole seconds and nanoseconds")
    return seconds + nanos * 1e-9 or None


def _memory(row: DataRow) -> int | None:
    limit = row.get("memory_limit_bytes") or 0
    if not isinstance(limit, int) or limit < 0:
        raise BadRow(f"'memory_limit_bytes' is {limit!r}; expected a whole number of bytes")
    return limit or None
