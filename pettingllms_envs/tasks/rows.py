"""RowTask: a base class for tasks on the rows of a file, whose replies a function of yours grades.

A subclass needs three members: `name`, `file` and `grade`. `rules` and `show` are worth writing, too:

    @dataclass(frozen=True, slots=True)
    class Riddles(RowTask):
        name: ClassVar[str] = "riddles"
        file: ClassVar[Path] = Path(__file__).with_name("rows.jsonl")

        def grade(self, row: Mapping[str, Any], reply: str) -> float:
            return float(reply.strip().lower() == row["answer"].lower())

Rows are objects with a text `question` and whatever else `grade` reads. One with a `split` is in that split, all
others are divided by the words of their question (80% train, 10% validation, 10% test), so that no copy of a question
is in two splits. Seed s is row s modulo their number, in the order of their digests: the seeds 0 to n - 1 are all rows
of a split once.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

from pettingllms_envs.core import SPLITS, check_choice
from pettingllms_envs.datasets import BadRow, Problem, normalization
from pettingllms_envs.datasets.files import read_rows
from pettingllms_envs.datasets.rows import Row, words
from pettingllms_envs.quoting import quote_headings
from pettingllms_envs.tasks.base import OpenTask


@dataclass(frozen=True, slots=True, kw_only=True, repr=False, eq=False)
class RowProblem(Problem):
    """A row as a problem; its statement is the question.

    Args:
        written: The row as JSON.
    """

    written: str


class RowState(NamedTuple):
    """A moment of an episode.

    Args:
        problem: The row.
        answer: The last reply; None if there was none.
        score: Its score, in [0, 1].
    """

    problem: RowProblem
    answer: str | None = None
    score: float = 0.0

    @property
    def row(self) -> dict[str, Any]:
        """The row's columns."""
        columns: dict[str, Any] = json.loads(self.problem.written)
        return columns


@dataclass(frozen=True, slots=True)
class RowTask(OpenTask[RowState]):
    """A task on the rows of a file. It is solved by a reply with the score 1."""

    file: ClassVar[Path]

    def grade(self, row: Mapping[str, Any], reply: str) -> float:
        """The score of a reply in [0, 1]. The reply may be any text, and is only to be compared."""
        raise NotImplementedError

    @property  # which splits there are depends on the file
    def instance_fields(self) -> Mapping[str, tuple[object, ...]]:  # type: ignore[override]
        """`split`: those that have rows."""
        return {"split": tuple(read_table(self.file))}

    def generate(self, seed: int, *, split: str | None = None) -> RowState:
        """The row of a seed in a split, by default the first that has rows.

        Raises:
            ValueError: The split has no rows, or the file cannot be used.
        """
        table = read_table(self.file)
        split = next(iter(table)) if split is None else split
        check_choice("split", split, tuple(table))
        return RowState(table[split][seed % len(table[split])])

    def rules(self) -> str:
        """What to do, in a sentence."""
        return "Answer the question."

    def show(self, state: RowState) -> str:
        """The row's question."""
        return quote_headings(state.problem.statement)

    def apply(self, state: RowState, move: str) -> RowState:
        """The row with the reply's score.

        Raises:
            ValueError: The score is not in [0, 1].
        """
        score = float(self.grade(state.row, move))
        if not 0 <= score <= 1:
            raise ValueError(f"grade() of {self.name} returned {score}; expected a score from 0 to 1. Scale it.")
        return RowState(state.problem, move, score)

    def solved(self, state: RowState) -> bool:
        """Whether the score is 1."""
        return state.score == 1

    def value(self, state: RowState) -> float:
        """The score."""
        return state.score


@lru_cache(maxsize=16)
def read_table(file: Path) -> Mapping[str, tuple[RowProblem, ...]]:
    """The rows of a file by split, in the order of their digests, read once. Splits without rows are left out.

    Args:
        file: JSON lines, a JSON list, CSV or parquet, as `pettingllms_envs.datasets.load` reads them.

    Raises:
        ValueError: There are no rows, or a row has no question or an unknown split.
    """
    found: dict[str, set[RowProblem]] = {split: set() for split in SPLITS}
    for number, row in enumerate(read_rows(file)):
        where = f"row {number} of {file.name}"
        if isinstance(row, BadRow):
            raise ValueError(f"{where}: {row}; expected an object. Fix it.")
        question = row.get("question")
        if not isinstance(question, str) or not question.strip():
            raise ValueError(f"{where} has the question {question!r}; expected a text. Fix it.")
        split = row.get("split") or normalization.split(question)
        check_choice(f"the split of {where}", split, SPLITS)
        found[split].add(_problem(row, file.name))
    if not any(found.values()):
        raise ValueError(f"{file} has no rows; expected at least one with a 'question'. Add one.")
    return {split: tuple(sorted(rows, key=lambda row: row.digest)) for split, rows in found.items() if rows}


def _problem(row: Row, source: str) -> RowProblem:
    """A row as a problem; one without an `id` has that of its content."""
    written = json.dumps(row, ensure_ascii=False)
    name = words(row, "id") or hashlib.sha256(written.encode("utf-8", "surrogatepass")).hexdigest()[:12]
    return RowProblem(source=source, id=name, statement=str(row["question"]), written=written)
