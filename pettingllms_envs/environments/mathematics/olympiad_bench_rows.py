"""OlympiadBench (Hothan/OlympiadBench), the open-ended problems in English without images.

Answers are numbers, expressions, tuples and intervals, several of them comma-joined in `is_multiple_answer` rows, with
a unit or a numeric error that is allowed. Source: He et al. 2024, arXiv:2402.14008.
"""

from __future__ import annotations

import math

from pettingllms_envs.datasets import normalization, rows
from pettingllms_envs.datasets.problems import MathProblem
from pettingllms_envs.datasets.rows import BadRow, DataRow, LeftOut
from pettingllms_envs.environments.mathematics.answer_rows import gradable, plain
from pettingllms_envs.graders.numbers import without_thousands


def read(row: DataRow) -> MathProblem:
    """A row of OlympiadBench as a problem.

    Raises:
        LeftOut: It asks for a proof, shows an image, or has an answer that cannot be graded.
    """
    asked = rows.statement(row, "question", "problem")
    statement = f"{rows.text(row, 'context', default='').strip()}\n\n{asked}".strip()
    if "proof" in rows.text(row, "question_type", default="").lower() or row.get("final_answer") is None:
        raise LeftOut("it asks for a proof")
    if any(row.get(f"image_{number}") is not None for number in range(1, 6)):
        raise LeftOut("it shows an image")
    answers = rows.items(row["final_answer"], "'final_answer'")
    golds = [plain(answer) for answer in answers if isinstance(answer, str)]
    if not all(golds) or len(golds) != (len(answers) or 1):
        raise BadRow(f"'final_answer' is {answers!r}; expected a list of texts")
    many = row.get("is_multiple_answer")
    if not isinstance(many, bool | None):
        raise BadRow(f"'is_multiple_answer' is a {type(many).__name__}; expected true or false")
    solutions = rows.items(row.get("solution") or [], "'solution'")
    return MathProblem(
        source="olympiad_bench",
        id=rows.words(row, "id") or normalization.name(statement),
        statement=statement,
        subject=rows.text(row, "subfield", default=""),
        answer=gradable(",".join(map(without_thousands, golds)) if golds[1:] else golds[0]),
        multiple=bool(many) or len(golds) > 1,
        unit=_named(row, "unit").strip("$"),
        tolerance=_tolerance(_named(row, "error")),
        solution="\n\n".join(each for each in solutions if isinstance(each, str)).strip(),
    )


def _named(row: DataRow, column: str) -> str:
    """A text that some copies have as null, NaN or `"None"`; these are `""`."""
    text = rows.words(row, column)
    return "" if text.lower() in ("none", "nan") else text


def _tolerance(error: str) -> tuple[float, ...]:
    """`(0.1, 0.01)` of `"1e-1,1e-2"`."""
    try:
        allowed = tuple(float(each) for each in error.split(",") if each.strip())
    except ValueError as wrong:
        raise BadRow(f"'error' is {error!r}; expected numbers, comma-joined") from wrong
    if not all(0 < each < math.inf for each in allowed):
        raise BadRow(f"'error' is {error!r}; expected numbers above 0")
    return allowed
