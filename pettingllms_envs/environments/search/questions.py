"""Questions on passages, and what their layouts have in common: answers that can be compared, supporting passages."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from pettingllms_envs.datasets import normalization
from pettingllms_envs.datasets.problems import Problem
from pettingllms_envs.datasets.rows import LeftOut, texts
from pettingllms_envs.retrieval.passages import Passage


MAX_ANSWER = 300
"""Most characters of a golden answer, and of an answer."""


@dataclass(frozen=True, slots=True, kw_only=True, repr=False, eq=False)
class QuestionProblem(Problem):
    """A question whose answer is a few words that passages say; the question is its statement.

    Args:
        answers: The golden answer and its aliases, any of which is right; at least one.
        passages: Its own paragraphs, some of which say the answer and others do not; () if it has none.
        support: Indices of the passages that are needed to answer, in ascending order; () if that is not known.
    """

    unanswered: ClassVar[Mapping[str, Any] | None] = {"answers": ()}

    answers: tuple[str, ...]
    passages: tuple[Passage, ...] = ()
    support: tuple[int, ...] = ()


def question_problem(
    *,
    source: str,
    id: str,
    question: str,
    answers: Sequence[object],
    passages: Sequence[Passage] = (),
    support: Sequence[int] = (),
    level: int = 1,
    subject: str = "",
) -> QuestionProblem:
    """A problem; its arguments are those of `QuestionProblem`, as a row has them.

    Raises:
        LeftOut: It has no answer that can be compared.
    """
    written = [answer.strip() for answer in texts(answers, "the list of its answers")]
    kept = [each for each in dict.fromkeys(written) if each and len(each) <= MAX_ANSWER]
    if not kept:
        raise LeftOut("it has no answer" if not any(written) else "its answer is too long")
    return QuestionProblem(
        source=source,
        id=id or normalization.name(question),
        statement=question,
        level=level,
        subject=subject,
        answers=tuple(kept),
        passages=tuple(passages),
        support=tuple(sorted(set(support))),
    )


def text_of(sentences: object, what: str) -> str:
    """A paragraph from its sentences; `BadRow` if they are not texts."""
    return " ".join(each.strip() for each in texts(sentences, what)).strip()
