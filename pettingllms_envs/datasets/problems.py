"""Problems, which rows of data sets become: programs, answers, questions on passages, hidden profiles. Frozen values.

A problem may have megabytes of tests, and the states of an episode contain the problem. So two problems are equal if
their digests are, and `repr` shows only a problem's source and its digest.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field, fields

from pettingllms_envs.datasets.judging import verdict_words
from pettingllms_envs.retrieval.passages import Passage
from pettingllms_envs.sandbox.values import CallTest, StdinTest, ToleranceKind


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
class CodeProblem(Problem):
    """A problem whose answer is a Python program.

    Args:
        tests: The golden tests, all of one kind, those that the statement shows first.
        num_public: How many of them the statement shows.
        fn_name: The function, or method of `Solution`, that call tests call; None for programs that read and print.
        starter_code: What the program is to begin with; may be empty.
        prelude: Source that runs before the program, such as `sandbox.LEETCODE_PRELUDE`.
        solutions: Python 3 programs that the data set says are right.
        wrong: Python 3 programs that the data set says are wrong.
        tolerance: How far decimal numbers may be off; None for not at all. Two whole numbers are never close.
        tolerance_kind: Whether `tolerance` is `"absolute"`, `"relative"` to the expected number, or `"either"`, the
            larger of the two.
        ignore_case: Whether words may be printed in letters of any case; `case_free` says which.
        packages: What programs may import besides the standard library, such as `("numpy",)`.
        cpu: Seconds for a test; None where the data set does not say.
        memory: Bytes; None where the data set does not say.
        date: When it was first posed, `"YYYY-MM-DD"`; may be empty.
    """

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

    answer: str
    kind: str = "expression"
    multiple: bool = False
    unit: str = ""
    tolerance: tuple[float, ...] = ()
    solution: str = ""
    year: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True, repr=False, eq=False)
class QuestionProblem(Problem):
    """A question whose answer is a few words that passages say; the question is its statement.

    Args:
        answers: The golden answer and its aliases, any of which is right; at least one.
        passages: Its own paragraphs, some of which say the answer and others do not; () if it has none.
        support: Indices of the passages that are needed to answer, in ascending order; () if that is not known.
    """

    answers: tuple[str, ...]
    passages: tuple[Passage, ...] = ()
    support: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True, repr=False, eq=False)
class HiddenProfile(Problem):
    """A choice between at least two options for a group of agents, each of whom knows one fact that the others do not.

    Args:
        shared: The facts that all agents know.
        hidden: The facts that one agent knows, one for each agent.
    """

    shared: tuple[str, ...]
    hidden: tuple[str, ...]
    options: tuple[str, ...]
    answer: str
