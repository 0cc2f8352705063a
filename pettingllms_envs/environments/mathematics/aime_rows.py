"""The American Invitational Mathematics Examination: answers are whole numbers from 0 to 999.

Five copies on the Hub have five sets of columns: the statement is `problem`, `Problem` or `question`, the answer a
number, text padded with zeros, with a degree sign, or in a box in `solution`.
"""

from __future__ import annotations

import re

from pettingllms_envs.datasets import normalization, rows
from pettingllms_envs.datasets.problems import MathProblem
from pettingllms_envs.datasets.rows import BadRow, DataRow
from pettingllms_envs.replies.boxes import boxed


_DRESSING = re.compile(r"\{,\}|[\s$,]|\^?\{?\\(?:circ|degree)\}?|°|\\text\{[^{}\n]*\}|\.0*$|\.$")
_ANSWER, _YEAR = re.compile("[0-9]{1,4}"), re.compile("[0-9]{4}")
_EXAM = re.compile(r"\b((?:19|20)\d\d)-(II?)-(\d{1,2})\b")
_AIME_URL = re.compile(r"\b((?:19|20)\d\d)_AIME_(II?)_Problems/Problem_(\d{1,2})\b")


def read(row: DataRow) -> MathProblem:
    """A row of any copy of AIME as a problem."""
    statement = rows.statement(row, "problem", "Problem", "question")
    solution = rows.text(row, "solution", "Solution", default="")
    answer = _answer(rows.words(row, "answer", "Answer") or boxed(solution) or "")
    name = rows.words(row, "ID", "id", "problem_idx")
    exam = _EXAM.search(name) or _AIME_URL.search(rows.text(row, "url", default=""))
    year = int(exam[1]) if exam else _year(row)
    number = int(exam[3]) if exam else 0
    if exam:
        name = f"{exam[1]}-{exam[2]}-{number}"
    else:
        name = f"{year or 'aime'}-{name or normalization.name(statement)}"
    return MathProblem(
        source="aime",
        id=name,
        statement=statement,
        level=1 + max(0, number - 1) // 5,
        answer=answer,
        kind="integer",
        solution=solution,
        year=year,
    )


def _answer(written: str) -> str:
    """`"25"` of `"025"`, `"25"`, `"25.0"`, `"$25$"`, `"25^\\circ"`."""
    digits = _DRESSING.sub("", boxed(written) or written)
    if not _ANSWER.fullmatch(digits) or int(digits) > 999:
        raise BadRow(f"the answer is {written!r}; expected a whole number from 0 to 999")
    return str(int(digits))


def _year(row: DataRow) -> int | None:
    year = rows.words(row, "year")
    return int(year) if _YEAR.fullmatch(year) else None
