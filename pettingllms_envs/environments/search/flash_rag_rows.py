"""FlashRAG's form of question answering (RUC-NLPIR/FlashRAG_datasets): a question and its golden answers.

Rows have no paragraphs: questions are answered from a corpus or a retriever of yours. The names of the files were read
in the Hub's card, the columns `id`, `question` and `golden_answers` in programs that load them. No file of it was
loaded here.
Source: Jin et al. 2024, arXiv:2405.13576 (CC BY-SA 4.0).
"""

from __future__ import annotations

from pettingllms_envs.datasets import rows
from pettingllms_envs.datasets.rows import DataRow
from pettingllms_envs.environments.search.questions import QuestionProblem, question_problem


def read(row: DataRow) -> QuestionProblem:
    """A row as a problem without passages."""
    return question_problem(
        source="flash_rag",
        id=rows.words(row, "id"),
        question=rows.statement(row, "question"),
        answers=rows.items(row.get("golden_answers"), "'golden_answers'"),
    )
