r"""Whether an answer to a problem of mathematics is right.

    grade(r"\frac{2}{4}", "0.5").correct                                       # True
    grade("(2,1),(1,2)", "$(1,2)$,$(2,1)$", multiple=True).correct             # True: several answers, in any order
    grade("4.3", "4.2", unit="%", tolerance=(0.1,)).correct                    # True

First what needs no algebra, here and exactly; what is left, math-verify decides in the sandbox (`workers.py`). What
counts as the same answer is in docs/grading.md. The verdict is the same from every thread and process and under load.

From the outside in: `pettingllms_envs.replies.boxes` (where a reply says its answer), `verdicts.py` (from two texts
to a verdict), `reading.py` with `spelling.py`, `units.py` and `shapes.py` (what a text says), `matching.py` and
`numbers.py` (what is equal), `workers.py` and `inside/` (math-verify).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from typing import Unpack

from pettingllms_envs.caching import Memo
from pettingllms_envs.graders import copies
from pettingllms_envs.graders.verdicts import (
    MAX_LENGTH,
    AnswerCase,
    Finding,
    GoldSettings,
    Grade,
    GraderFailed,
    Question,
    Settings,
    Verdict,
    check_gold,
    check_settings,
    is_readable,
    look,
    settings_of,
)
from pettingllms_envs.replies.boxes import boxed


__all__ = [
    "GoldSettings",
    "Grade",
    "GraderFailed",
    "MathGrader",
    "Verdict",
    "boxed",
    "default",
    "grade",
    "grade_many",
    "is_copy",
    "same",
]

Ask = Callable[[Sequence[Sequence[Question]]], list[list[Finding]]]
"""What came of the questions on each of several answers."""


class MathGrader:
    """Grades answers. What it has graded it remembers, for the answers of a group repeat.

    Args:
        ask: Decides where spelling and arithmetic cannot; None is `workers.MathVerify()`, with a slot for each core.
    """

    def __init__(self, ask: Ask | None = None, num_remembered: int = 1 << 14) -> None:
        if ask is None:
            from pettingllms_envs.graders.workers import MathVerify  # only those pay for the sandbox who grade

            ask = MathVerify()
        self._ask = ask
        self._memo: Memo[tuple[str, str, Settings], Grade] = Memo(num_remembered)

    def grade(self, answer: str, gold: str, **settings: Unpack[GoldSettings]) -> Grade:
        r"""Whether an answer is right. Safe to call from any thread.

        Args:
            answer: What the reply's box holds (`boxed`).
            **settings: `kind`, `multiple`, `unit` and `tolerance`, see `GoldSettings`.

        Raises:
            ValueError: The gold is empty or too long or, of kind `"integer"`, no integer; an unknown kind; tolerances
                that are no sizes, or too many or few.
            GraderFailed: math-verify could not be asked, twice. Not the answer's fault: no reason for a reward of 0.
            SandboxUnavailable: math-verify was needed, and this machine cannot hold it safely.
        """
        return self.grade_many([answer], gold, **settings)[0]

    def grade_many(self, answers: Sequence[str], gold: str, **settings: Unpack[GoldSettings]) -> list[Grade]:
        """`grade` for each answer of a group: the same verdicts, sooner. math-verify reads the gold only once."""
        given = settings_of(**settings)
        check_gold(gold, given)
        grades = self._grades(answers, gold, given)
        return [grades[answer] for answer in answers]

    def same(self, one: str, other: str, **settings: Unpack[GoldSettings]) -> bool:
        """Whether two answers of models agree, by the rules of `grade`: each would be right, were the other the gold.

        Symmetric. An answer that cannot be read agrees with none, not even with itself.

        Raises:
            As `grade` does, but for mistakes in the gold: there is none.
        """
        given = settings_of(**settings)
        given = given._replace(tolerance=given.tolerance[:1])
        check_settings(given)
        if not (is_readable(one) and is_readable(other)):
            return False
        return all(
            self._grades([answer], gold, given)[answer].correct for answer, gold in ((one, other), (other, one))
        )

    def _grades(self, answers: Sequence[str], gold: str, settings: Settings) -> dict[str, Grade]:
        """The grade of each different answer."""
        grades: dict[str, Grade] = {}
        cases: dict[str, AnswerCase] = {}
        for answer in answers:
            if answer in grades or answer in cases:
                continue
            if not isinstance(answer, str):
                raise TypeError(f"an answer is {answer!r}; expected a text. A reply without a box has none to grade.")
            if len(answer) > MAX_LENGTH:  # nothing that long is worth remembering
                grades[answer] = Grade(Verdict.UNPARSED, "exact")
                continue
            found = self._memo.get((answer, gold, settings)) or look(answer, gold, settings)
            if isinstance(found, AnswerCase):
                cases[answer] = found
            else:
                grades[answer] = found
                self._memo.put((answer, gold, settings), found)
        if cases:
            findings = self._ask([case.questions for case in cases.values()])
            for (answer, case), found_out in zip(cases.items(), findings, strict=True):
                grades[answer] = case.decide(found_out)
                self._memo.put((answer, gold, settings), grades[answer])
        return grades


@cache
def default() -> MathGrader:
    """The process's own grader."""
    return MathGrader()


def grade(answer: str, gold: str, **settings: Unpack[GoldSettings]) -> Grade:
    """`MathGrader.grade` of the process's own grader."""
    return default().grade(answer, gold, **settings)


def grade_many(answers: Sequence[str], gold: str, **settings: Unpack[GoldSettings]) -> list[Grade]:
    """`MathGrader.grade_many` of the process's own grader."""
    return default().grade_many(answers, gold, **settings)


def same(one: str, other: str, **settings: Unpack[GoldSettings]) -> bool:
    """`MathGrader.same` of the process's own grader."""
    return default().same(one, other, **settings)


def is_copy(answer: str, gold: str, statement: str, **settings: Unpack[GoldSettings]) -> bool:
    """Whether an answer is right only as math-verify solves it: a formula of the statement, or a side of one."""
    solved = Grade(Verdict.CORRECT, "math_verify")
    return grade(answer, gold, **settings) == solved and any(
        grade(each, gold, **settings) == solved for each in copies.formulas_like(statement, answer)
    )
