"""Problems whose answers are programs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

from pettingllms_envs.datasets.judging import verdict_words
from pettingllms_envs.datasets.problems import OPTIONAL, Problem
from pettingllms_envs.sandbox.values import CallTest, StdinTest, ToleranceKind


@dataclass(frozen=True, slots=True, kw_only=True, repr=False, eq=False)
class CodeProblem(Problem):
    """A problem whose answer is a Python program.

    Args:
        tests: The golden tests, all of one kind, those that the statement shows first.
        fn_name: The function, or method of `Solution`, that call tests call; None for programs that read and print.
        starter_code: What the program is to begin with; may be empty.
        prelude: Source that runs before the program, such as `sandbox.LEETCODE_PRELUDE`.
        solutions: Python 3 programs that the data set says are right.
        wrong: Python 3 programs that the data set says are wrong.
        tolerance: How far decimal numbers may be off; None for not at all. Two whole numbers are never close.
        tolerance_kind: `"absolute"`, `"relative"` to the expected number, or `"either"`, the larger of the two.
        ignore_case: Whether words may be printed in letters of any case; `case_free` says which.
        packages: What programs may import besides the standard library, such as `("numpy",)`.
        cpu: Seconds for a test; None where the data set does not say.
        memory: Bytes; None where the data set does not say.
        date: When it was first posed, `"YYYY-MM-DD"`; may be empty.
    """

    unanswered: ClassVar[Mapping[str, Any] | None] = {"tests": ()}
    simple: ClassVar[str] = "code"

    tests: tuple[StdinTest, ...] | tuple[CallTest, ...]
    num_public: int = 0
    fn_name: str | None = None
    starter_code: str = ""
    prelude: str = ""
    solutions: tuple[str, ...] = ()
    wrong: tuple[str, ...] = ()
    tolerance: float | None = None
    tolerance_kind: ToleranceKind = field(default="either", metadata=OPTIONAL)
    ignore_case: bool = field(default=False, metadata=OPTIONAL)
    packages: tuple[str, ...] = field(default=(), metadata=OPTIONAL)
    cpu: float | None = None
    memory: int | None = None
    date: str = ""

    @property
    def case_free(self) -> bool | frozenset[str]:
        """The words that may be in letters of any case: those the statement names, all (True), or none (False)."""
        return self.ignore_case and (verdict_words(self.statement) or True)
