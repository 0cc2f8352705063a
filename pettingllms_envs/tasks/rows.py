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
from pettingllms_envs.datasets import BadRow, normalization
from pettingllms_envs.datasets.files import read_rows
from pettingllms_envs.tasks.base import OpenTask


class RowState(NamedTuple):
    """A row, by its digest, and the score of the last reply, in [0, 1]."""

    row: str
    score: float = 0.0


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

    def row(self, state: RowState) -> Mapping[str, Any]:
        """The row of a state."""
        return next(rows[state.row] for rows in read_table(self.file).values() if state.row in rows)

    def generate(self, seed: int, *, split: str | None = None) -> RowState:
        """The row of a seed in a split, by default the first that has rows.

        Raises:
            ValueError: The split has no rows, or the file cannot be used.
        """
        table = read_table(self.file)
        split = next(iter(table)) if split is None else split
        check_choice("split", split, tuple(table))
        digests = list(table[split])
        return RowState(digests[seed % len(digests)])

    def rules(self) -> str:
        """What to do, in a sentence."""
        return "Answer the question."

    def show(self, state: RowState) -> str:
        """The row's question."""
        return str(self.row(state)["question"])

    def apply(self, state: RowState, move: str) -> RowState:
        """The row with the reply's score.

        Raises:
            ValueError: The score is not in [0, 1].
        """
        score = float(self.grade(self.row(state), move))
        if not 0 <= score <= 1:
            raise ValueError(f"grade() of {self.name} returned {score}; expected a score from 0 to 1. Scale it.")
        return RowState(state.row, score)

    def solved(self, state: RowState) -> bool:
        """Whether the score is 1."""
        return state.score == 1

    def value(self, state: RowState) -> float:
        """The score."""
        return state.score


@lru_cache(maxsize=16)
def read_table(file: Path) -> Mapping[str, Mapping[str, Mapping[str, Any]]]:
    """The rows of a file by split and digest, read once. Splits without rows are left out.

    Args:
        file: JSON lines, a JSON list, CSV or parquet, as `pettingllms_envs.datasets.load` reads them.

    Raises:
        ValueError: There are no rows, or a row has no question or an unknown split.
    """
    found: dict[str, dict[str, Mapping[str, Any]]] = {split: {} for split in SPLITS}
    for number, row in enumerate(read_rows(file)):
        where = f"row {number} of {file.name}"
        if isinstance(row, BadRow):
            raise ValueError(f"{where}: {row}; expected an object. Fix it.")
        question = row.get("question")
        if not isinstance(question, str) or not question.strip():
            raise ValueError(f"{where} has the question {question!r}; expected a text. Fix it.")
        split = row.get("split") or normalization.split(question)
        check_choice(f"the split of {where}", split, SPLITS)
        found[split][hashlib.sha256(json.dumps(row, sort_keys=True).encode()).hexdigest()[:16]] = row
    if not any(found.values()):
        raise ValueError(f"{file} has no rows; expected at least one with a 'question'. Add one.")
    return {split: dict(sorted(rows.items())) for split, rows in found.items() if rows}
