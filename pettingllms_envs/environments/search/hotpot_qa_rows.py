"""HotpotQA in the distractor setting (hotpotqa/hotpot_qa), and 2WikiMultihopQA, which has the same columns.

A row has ten paragraphs of Wikipedia, of which two to four are needed. Paragraphs and supporting facts are lists in a
mapping on the Hub, and lists of pairs in the sets' own releases; xanhho/2WikiMultihopQA has those pairs as JSON text.
The columns were read in the Hub's card of hotpotqa/hotpot_qa (`id`, `question`, `answer`, `type`, `level`,
`supporting_facts: {title, sent_id}`, `context: {title, sentences}`), in the README of
github.com/Alab-NII/2wikimultihop (`_id`, `question`, `answer`, `type`, `supporting_facts`, `context`, `evidences`) and
in loaders of xanhho's parquet files. No file of the Hub was loaded here.
Sources: Yang et al. 2018, arXiv:1809.09600 (CC BY-SA 4.0); Ho et al. 2020, arXiv:2011.01060 (Apache-2.0).
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

from pettingllms_envs.datasets import rows
from pettingllms_envs.datasets.rows import BadRow, DataRow, LeftOut
from pettingllms_envs.environments.search.questions import QuestionProblem, question_problem, text_of
from pettingllms_envs.retrieval.passages import Passage


LEVELS = {"easy": 1, "medium": 2, "hard": 3}


def read(row: DataRow, *, source: str = "hotpot_qa") -> QuestionProblem:
    """A row of either set as a problem; all rows of 2WikiMultihopQA are of level 1.

    Raises:
        LeftOut: It has no answer, as the rows of the sets' own test files, or a paragraph that it needs is missing.
    """
    question = rows.statement(row, "question")
    if row.get("answer") is None:
        raise LeftOut("it has no answer")
    passages = [
        Passage(title, text_of(sentences, "a paragraph of 'context'"))
        for title, sentences in _pairs(row, "context", "sentences", "content")
    ]
    titles = [passage.title for passage in passages]
    needed = dict.fromkeys(title for title, _ in _pairs(row, "supporting_facts", "sent_id"))
    if not needed or not set(titles) >= needed.keys():
        raise LeftOut("it lacks a paragraph that it needs")
    return question_problem(
        source=source,
        id=rows.words(row, "id", "_id"),
        question=question,
        answers=[row["answer"]],
        passages=passages,
        support=[titles.index(title) for title in needed],
        level=LEVELS.get(rows.text(row, "level", default=""), 1),
        subject=rows.text(row, "type", default=""),
    )


two_wiki = partial(read, source="two_wiki")


def _pairs(row: DataRow, column: str, *names: str) -> list[tuple[str, object]]:
    """Titles with what belongs to them, from any form of a column; `names` are its names where that is a mapping."""
    value = row.get(column)
    if isinstance(value, str):
        value = rows.parsed(value, repr(column))
    if isinstance(value, Mapping):
        found = next((value[name] for name in names if name in value), None)
        pairs = rows.pairs(value.get("title"), found, repr(column))
    else:
        lists = [rows.items(each, f"an entry of {column!r}") for each in rows.items(value, repr(column))]
        if any(len(each) != 2 for each in lists):
            raise BadRow(f"{column!r} has an entry that is no pair; expected a title and what belongs to it")
        pairs = [(title, other) for title, other in lists]
    if not all(isinstance(title, str) for title, _ in pairs):
        raise BadRow(f"{column!r} has a title that is no text")
    return pairs
