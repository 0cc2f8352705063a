"""Problems, which rows of data sets become: what all have in common, and those with an answer. Frozen values.

A problem may have megabytes of tests, and the states of an episode contain the problem. So two problems are equal if
their digests are, and `repr` shows only a problem's source and its digest.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any, ClassVar


NO_ANSWER = "it has no answer"
"""Why a question is `unjudged` that was given without one."""

OPTIONAL = {"optional": True}
"""Of fields that are part of the digest only where they are set, so that adding one leaves every instance in place."""


@dataclass(frozen=True, slots=True, kw_only=True, repr=False, eq=False)
class Problem:
    """The fields that problems of all kinds have.

    Args:
        source: The data set, such as `"apps"`.
        id: The row's name, unique within its source.
        statement: The text of the problem, without instructions on how to reply.
        level: Difficulty, from 1 (easiest).
        subject: The data set's name of its subject; may be empty.
        unjudged: Why no grader can judge an answer (it needs a checker, it is interactive, it asks for a proof); empty
            if one can. Such problems are left out unless asked for.
    """

    unanswered: ClassVar[Mapping[str, Any] | None] = None
    """The fields of a problem that was given without an answer; None if there can be none such."""
    simple: ClassVar[str] = ""
    """A layout whose columns a row that a user gives by itself may have, too."""

    source: str
    id: str
    statement: str
    level: int = 1
    subject: str = ""
    unjudged: str = ""
    digest: str = field(init=False)
    """SHA-256 of the other fields (of some only where they are set), 64 hex digits, the same in every process."""

    def __post_init__(self) -> None:
        values = ((each, getattr(self, each.name)) for each in fields(self) if each.init)
        whole = [
            (each.name, value) for each, value in values if not each.metadata.get("optional") or value != each.default
        ]
        object.__setattr__(self, "digest", hashlib.sha256(repr(whole).encode("utf-8", "surrogatepass")).hexdigest())

    @property
    def has_answer(self) -> bool:
        """Whether there is anything that a reply can be compared with."""
        return self.unjudged != NO_ANSWER

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.source!r}, {self.id!r}, {self.digest[:16]!r})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Problem) and self.digest == other.digest

    def __hash__(self) -> int:
        return hash(self.digest)


@dataclass(frozen=True, slots=True, kw_only=True, repr=False, eq=False)
class MathProblem(Problem):
    """A problem whose answer is a number, an expression, a tuple, an interval, or several of them.

    Args:
        answer: The golden answer as the data set writes it, LaTeX without dollar signs or a box.
        kind: `"integer"` (AIME: from 0 to 999), or `"expression"`.
        multiple: Whether `answer` has several answers, comma-joined, in any order, of which none may be missing.
        unit: In which the answer is given; may be empty. An answer may repeat it or leave it out.
        tolerance: How far a number may be off, absolutely, each of several where there are several; () for not at all.
        solution: A worked solution, where the data set has one. It never reaches an observation.
        year: In which it was first posed; None where the data set does not say.
    """

    unanswered: ClassVar[Mapping[str, Any] | None] = {"answer": ""}
    simple: ClassVar[str] = "math:question,answer"

    answer: str
    kind: str = "expression"
    multiple: bool = False
    unit: str = ""
    tolerance: tuple[float, ...] = ()
    solution: str = ""
    year: int | None = None
