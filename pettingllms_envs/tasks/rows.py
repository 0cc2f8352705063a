"""RowTask: a base class for tasks on rows of your own, whose replies a function of yours grades.

A subclass needs three members: `name`, `file` and `grade`. `rules` and `show` are worth writing, too:

    @dataclass(frozen=True, slots=True)
    class Riddles(RowTask):
        name: ClassVar[str] = "riddles"
        file: ClassVar[Path] = Path(__file__).with_name("rows.jsonl")

        def grade(self, row: Mapping[str, Any], reply: str) -> float:
            return float(reply.strip().lower() == row["answer"].lower())

Instead of a `file`, a class may have `rows`: a list of dicts, or a `datasets.Dataset`. Rows are objects with a text
`question` and whatever else `grade` reads. One with a `split` is in that split, all others are divided by the words of
their question (80% train, 10% validation, 10% test), so that no copy of a question is in two splits. Seed s is row s
modulo their number, in the order of their digests: the seeds 0 to n - 1 are all rows of a split once.

Pictures, of Pillow or `observations.Image`s, are kept as data URLs, and take part in a row's digest and split.
"""

from __future__ import annotations

import hashlib
import json
import re
import reprlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import islice
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

from pettingllms_envs.core import SPLITS, check_choice
from pettingllms_envs.datasets import BadRow, Problem, normalization
from pettingllms_envs.datasets.files import read_rows
from pettingllms_envs.datasets.problems import NO_ANSWER
from pettingllms_envs.datasets.rows import words
from pettingllms_envs.features import DataSet
from pettingllms_envs.observations import DATA_URL
from pettingllms_envs.prompts import text_of
from pettingllms_envs.quoting import quote_headings
from pettingllms_envs.tasks.base import OpenTask
from pettingllms_envs.tasks.prompt_messages import PROMPT, messages_of


ENOUGH_ROWS = 50
"""Rows of a split whose answers are compared, to find out whether they are right by a reward."""
_URL = re.compile(rf"{DATA_URL}[\w+/=]*")


@dataclass(frozen=True, slots=True, kw_only=True, repr=False, eq=False)
class RowProblem(Problem):
    """A row, written as JSON, as a problem; its statement is the question."""

    written: str


class RowState(NamedTuple):
    """A moment of an episode: the last reply, None if there was none, and its score in [0, 1]."""

    problem: RowProblem
    answer: str | None = None
    score: float = 0.0

    @property
    def row(self) -> dict[str, Any]:
        columns: dict[str, Any] = json.loads(self.problem.written)
        return columns


@dataclass(frozen=True, slots=True)
class RowTask(OpenTask[RowState]):
    """A task on rows of your own. It is solved by a reply with the score 1."""

    file: ClassVar[Path | None] = None
    rows: ClassVar[Iterable[Mapping[str, Any]] | None] = None

    def grade(self, row: Mapping[str, Any], reply: str) -> float:
        """The score of a reply in [0, 1]. The reply may be any text, and is only to be compared."""
        raise NotImplementedError

    @property  # which splits there are depends on the file
    def instance_fields(self) -> Mapping[str, tuple[object, ...]]:  # type: ignore[override]
        """`split`: those that have rows; `row`: the row itself."""
        return {"split": tuple(self.table()), "row": ()}

    def table(self) -> Mapping[str, tuple[RowProblem, ...]]:
        """The rows by split, see `read_table`."""
        return _table_of(type(self))  # type: ignore[arg-type]  # mypy takes a class's hash for its instances'

    @property
    def data_set(self) -> DataSet:
        """The rows, and how many are in which split."""
        return described_rows(str(self.file or "rows"), self.table())

    def generate(self, seed: int, *, split: str | None = None, row: Mapping[str, Any] | None = None) -> RowState:
        """The row of a seed in a split, by default the first that has rows; or the row that is given.

        That is not graded if it lacks a column that all rows of the table have, such as the answer.
        """
        table = self.table()
        if row is not None:
            problem = problem_of(row, self.name, "the row")
            columns = set.intersection(*({*json.loads(each.written)} for own in table.values() for each in own))
            return RowState(problem if columns <= {*row, "id", "split"} else replace(problem, unjudged=NO_ANSWER))
        split = next(iter(table)) if split is None else split
        check_choice("split", split, tuple(table))
        return RowState(table[split][seed % len(table[split])])

    def rules(self) -> str:
        """What to do, in a sentence."""
        return "Answer the question."

    def show(self, state: RowState) -> str:
        return quote_headings(state.problem.statement)

    def apply(self, state: RowState, move: str) -> RowState:
        if not state.problem.has_answer:
            return RowState(state.problem, move)
        score = float(self.grade(state.row, move))
        if not 0 <= score <= 1:
            raise ValueError(f"grade() of {self.name} returned {score}; expected a score from 0 to 1. Scale it.")
        return RowState(state.problem, move, score)

    def solved(self, state: RowState) -> bool:
        return state.score == 1

    def value(self, state: RowState) -> float:
        return state.score

    def outcome(self, state: RowState) -> Mapping[str, bool | int | float]:
        """Whether it is solved, if it is graded."""
        return {"success": self.solved(state)} if state.problem.has_answer else {}


def described_rows(name: str, table: Mapping[str, Sequence[RowProblem]]) -> DataSet:
    """Rows by split as a data set, with how many there are in each."""
    counts = ", ".join(f"{len(rows)} in {split}" for split, rows in table.items())
    return DataSet(name, remedy=f"{counts} (--split NAME, or a column split in the rows)")


def graded_rows(
    name: str,
    rows: str | Path | Iterable[Mapping[str, Any]],
    grade: Callable[[Mapping[str, Any], str], float],
    module: str = __name__,
) -> type[RowTask]:
    """A task on rows, made of a function. If rows have an `answer` that is right by the function, it is the oracle's.

    Args:
        rows: A file, a list of dicts, or a `datasets.Dataset`.
        grade: From a row and a reply to a score in [0, 1].
        module: Whose documentation says what the task is.
    """
    source = {"file": Path(rows)} if isinstance(rows, str | Path) else {"rows": rows}
    members = {"name": name, "grade": lambda self, row, reply: grade(row, reply), "rules": lambda self: ""}
    task: type[RowTask] = type(name, (RowTask,), {"__slots__": (), "__module__": module, **source, **members})
    samples = [row for own in task().table().values() for row in islice(own, ENOUGH_ROWS)]
    answers = [(row, row.get("answer")) for row in (json.loads(sample.written) for sample in samples)]
    if all(answer is not None and grade(row, str(answer)) == 1 for row, answer in answers):
        task.oracle = lambda self, state: str(state.row["answer"])  # type: ignore[attr-defined]  # not of every class
    return task


@lru_cache(maxsize=16)
def _table_of(task: type[RowTask]) -> Mapping[str, tuple[RowProblem, ...]]:
    """The rows of a task's class, read once."""
    if (task.file is None) == (task.rows is None):
        raise ValueError(
            f"{task.__name__} has file={task.file!r} and {'no' if task.rows is None else 'also'} rows; expected one "
            "of them: a file, a list of dicts or a datasets.Dataset. Give the class `file` or `rows`."
        )
    return read_table(task.file) if task.rows is None else divided(task.rows, "rows")


@lru_cache(maxsize=16)
def read_table(file: Path, column: str = "question") -> Mapping[str, tuple[RowProblem, ...]]:
    """The rows of a file by split, in the order of their digests, read once. Splits without rows are left out.

    Args:
        file: JSON lines, a JSON list, CSV or parquet, as `pettingllms_envs.datasets.load` reads them.
        column: Of the question, a text; of prompts also a list of chat messages.
    """
    return divided(read_rows(file), file.name, column)


def divided(
    rows: Iterable[Mapping[str, Any] | BadRow], source: str, column: str = "question"
) -> Mapping[str, tuple[RowProblem, ...]]:
    """Rows by split, see `read_table`."""
    found: dict[str, set[RowProblem]] = {split: set() for split in SPLITS}
    for number, row in enumerate(rows):
        where = f"row {number} of {source}"
        if not isinstance(row, Mapping):
            raise ValueError(f"{where}: {str(row)[:100]}; expected an object. Fix it.")
        problem = problem_of(row, source, where, column)
        pictures = [hashlib.sha256(url.encode()).hexdigest() for url in _URL.findall(problem.written)]
        split = row.get("split") or normalization.split(" ".join([problem.statement, *pictures]))
        check_choice(f"the split of {where}", split, SPLITS)
        found[split].add(problem)
    if not any(found.values()):
        raise ValueError(f"{source} has no rows; expected at least one with a {column!r}. Add one.")
    return {split: tuple(sorted(rows, key=lambda row: row.digest)) for split, rows in found.items() if rows}


def problem_of(row: Mapping[str, Any], source: str, where: str, column: str = "question") -> RowProblem:
    """A row as a problem; one without an `id` has that of its content. Pictures are kept as data URLs."""
    question: Any = row.get(column)
    is_chat = column == PROMPT and isinstance(question, list) and question and isinstance(question[-1], Mapping)
    question = question[-1].get("content") if is_chat else question
    try:
        written = json.dumps(dict(row), ensure_ascii=False, default=_data_url)
    except (TypeError, ValueError) as error:
        expected = "what JSON has, and pictures"
        raise ValueError(f"{where} cannot be kept ({error}); expected {expected}. Remove that column.") from None
    if is_chat and isinstance(question, list):
        try:
            question = text_of(messages_of(json.loads(written))[-1]["content"])
        except ValueError as error:
            raise ValueError(f"{where}: {error}") from None
    if not isinstance(question, str) or not question.strip():
        expected = "a text, or chat messages of which the last one is a text" if column == PROMPT else "a text"
        raise ValueError(f"{where} has the {column} {reprlib.repr(row.get(column))}; expected {expected}. Fix it.")
    name = words(row, "id") or hashlib.sha256(written.encode("utf-8", "surrogatepass")).hexdigest()[:12]
    return RowProblem(source=source, id=name, statement=question, written=written)


def _data_url(value: Any) -> str:
    from pettingllms_envs.pictures import image_of  # Pillow is loaded only by those who look

    return image_of(value).url
