"""MuSiQue (dgslibisey/MuSiQue): questions of two to four hops, each with twenty paragraphs of Wikipedia.

The columns were read in github.com/StonyBrookNLP/musique (README, `evaluate_v1.0.py`), whose files the Hub's copies
are: `id`, `question`, `answer`, `answer_aliases`, `answerable`, `question_decomposition`,
`paragraphs: [{idx, title, paragraph_text, is_supporting}]`. No file of it was loaded here.
Source: Trivedi et al. 2022, arXiv:2108.00573 (CC BY 4.0).
"""

from __future__ import annotations

from pettingllms_envs.datasets import rows
from pettingllms_envs.datasets.rows import BadRow, DataRow, LeftOut
from pettingllms_envs.environments.search.questions import QuestionProblem, question_problem
from pettingllms_envs.retrieval.passages import Passage


def read(row: DataRow) -> QuestionProblem:
    """A row of MuSiQue as a problem; its level is the number of hops, less one.

    Raises:
        LeftOut: It has no answer, or cannot be answered from its paragraphs (in MuSiQue-Full).
    """
    question = rows.statement(row, "question")
    if row.get("answer") is None:
        raise LeftOut("it has no answer")
    if not _flag(row, "answerable", default=True):
        raise LeftOut("it cannot be answered from its paragraphs")
    paragraphs = [rows.table(each, "a paragraph") for each in rows.items(row.get("paragraphs"), "'paragraphs'")]
    support = [index for index, each in enumerate(paragraphs) if _flag(each, "is_supporting")]
    if not support:
        raise LeftOut("it lacks a paragraph that it needs")
    hops = rows.items(row.get("question_decomposition") or [], "'question_decomposition'")
    return question_problem(
        source="musique",
        id=rows.words(row, "id"),
        question=question,
        answers=[row["answer"], *rows.items(row.get("answer_aliases") or [], "'answer_aliases'")],
        passages=[Passage(rows.text(each, "title"), rows.text(each, "paragraph_text")) for each in paragraphs],
        support=support,
        level=max(1, (len(hops) or len(support)) - 1),
    )


def _flag(row: DataRow, column: str, *, default: bool = False) -> bool:
    value = row.get(column, default)
    if not isinstance(value, bool):
        raise BadRow(f"{column!r} is a {type(value).__name__}; expected true or false")
    return value
