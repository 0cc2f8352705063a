"""What a problem of our own is: the record that a file here fills in, from which the rows of every layout are made.

A problem of programming is a file in `stdin/` or `calls/` that ends in `PROBLEM = ...`: its statement, its tests, right
and wrong programs. Only the inputs of its private tests are written down: the outputs are what its first
golden program gives. Problems with an answer are in `aime.py`, `olympiad.py` and `arithmetic.py`, each with a
program that finds the answer by other means than its solution.
"""

from __future__ import annotations

import importlib.util
import json
import random
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

from pettingllms_envs.instances import seeded
from pettingllms_envs.sandbox import LEETCODE_PRELUDE, CallTest, Report, StdinTest, Task, Verdict, run_many


HERE = Path(__file__).parent
TRAIN, VALIDATION, TEST = SPLITS = ("train", "validation", "test")


def lines(*rows: object) -> str:
    """An input: a line for each argument, of which lists become their items with a space between."""
    return "".join(" ".join(map(str, row)) + "\n" if isinstance(row, list | tuple) else f"{row}\n" for row in rows)


@dataclass(frozen=True, kw_only=True)
class Wrong:
    """A program that passes some tests and must not pass all.

    Args:
        why: The mistake, in a few words.
        program: Its source.
        verdict: How its first failed test ends.
    """

    why: str
    program: str
    verdict: Verdict = Verdict.WRONG


def too_slow(program: str) -> Wrong:
    """A program that is right and takes far too long."""
    return Wrong(why="too slow", program=program, verdict=Verdict.TIMEOUT)


def crashes(why: str, program: str) -> Wrong:
    """A program that ends with an exception where another would give a wrong answer."""
    return Wrong(why=why, program=program, verdict=Verdict.RUNTIME_ERROR)


@dataclass(frozen=True, kw_only=True)
class CodingProblem:
    """A problem whose answer is a program.

    Args:
        number: Its own among all problems here, for ever: the id of its rows.
        title: Its own among all problems here.
        split: `"train"`, `"validation"` or `"test"`, in every layout the same.
        level: 1 (a beginner writes it in minutes), 2, or 3 (an algorithm has to be found).
        statement: What is asked. The examples are added to it.
        public: The tests that the statement shows, with their outcome.
        private: From seeded random numbers to the inputs of the other tests.
        golden: Right programs; the first one says what the private tests expect.
        wrong: Wrong programs.
        tolerance: How far decimal numbers may be off; the statement has to say so.
    """

    number: int
    title: str
    split: str
    level: int
    statement: str
    public: tuple[tuple[Any, Any], ...]
    private: Callable[[random.Random], Iterable[Any]]
    golden: tuple[str, ...]
    wrong: tuple[Wrong, ...]
    tolerance: float | None = None

    def inputs(self) -> list[Any]:
        """Of all tests, those that the statement shows first."""
        return [shown for shown, _ in self.public] + list(self.private(seeded("own", self.title)))


@dataclass(frozen=True, kw_only=True)
class StdinProblem(CodingProblem):
    """A program that reads and prints. A test's input is what it reads."""

    family: ClassVar[str] = "stdin"
    fn_name: ClassVar[None] = None
    prelude: ClassVar[str] = ""

    def test(self, read: str, expected: str) -> StdinTest:
        return StdinTest(read, expected)

    def printed(self, written: bytes) -> str:
        """A result's `stdout` as the test's output."""
        return written.decode("ascii").rstrip() + "\n"


@dataclass(frozen=True, kw_only=True)
class CallProblem(CodingProblem):
    """A function, or a method of `Solution` (LeetCode's form). A test's input is the list of its arguments.

    Args:
        signature: From its name to the type that it returns, `"total(numbers: List[int]) -> int"`.
        method: Whether the programs here define `class Solution`.
    """

    signature: str
    method: bool = False
    family: ClassVar[str] = "calls"

    @property
    def fn_name(self) -> str:
        return self.signature.partition("(")[0]

    @property
    def arguments(self) -> list[str]:
        """Their names. A name is what stands in front of a colon, which no type has."""
        return re.findall(r"(\w+):", self.signature)

    @property
    def prelude(self) -> str:
        return LEETCODE_PRELUDE if self.method else ""

    @property
    def starter(self) -> str:
        """As APPS has it: the head of the function or of the class."""
        if self.method:
            return self.solution_class
        return f"def {self.fn_name}({', '.join(self.arguments)}):\n\t"

    @property
    def solution_class(self) -> str:
        """As LeetCode and LiveCodeBench have it."""
        return f"class Solution:\n    def {self.signature.replace('(', '(self, ', 1)}:\n        "

    def test(self, arguments: Sequence[Any], expected: Any) -> CallTest:
        return CallTest(list(arguments), expected)

    def printed(self, written: bytes) -> Any:
        return json.loads(written)


@dataclass(frozen=True, kw_only=True)
class AnswerProblem:
    """A problem whose answer is written down.

    Args:
        problem: The statement.
        answer: As the rows have it, LaTeX without dollar signs. Of several answers one string, comma-joined.
        solution: Worked, in a few sentences; ends in the answer.
        found: Finds the answer by brute force: the answer itself (whatever its `str` is), or, where the answer is an
            expression, pairs of a value of its variables and the expression's value there.
        subject: As OlympiadBench names them: Algebra, Combinatorics, Geometry, Number Theory.
        level: From 1 (a word problem of two steps) to 5.
        split: `"train"`, `"validation"` or `"test"`.
    """

    problem: str
    answer: str
    found: Callable[[], Any]
    solution: str = ""
    subject: str = "Algebra"
    level: int = 5
    split: str


@dataclass(frozen=True, kw_only=True)
class OlympiadProblem(AnswerProblem):
    """A problem with what OlympiadBench says of an answer.

    Args:
        kind: Its `answer_type`: Numerical, Expression, Equation, Tuple or Interval.
        multiple: Its `is_multiple_answer`.
        unit: As written there; None for none.
        error: How far a number may be off, as written there; None for not at all.
    """

    kind: str = "Numerical"
    multiple: bool = False
    unit: str | None = None
    error: str | None = None


def coding_problems(folder: str) -> list[Any]:
    """The problems of `stdin/` or `calls/`, by number."""
    found = [_loaded(path).PROBLEM for path in sorted((HERE / folder).glob("*.py"))]
    return sorted(found, key=lambda problem: problem.number)


def _loaded(path: Path) -> Any:
    spec = importlib.util.spec_from_file_location(f"own_{path.parent.name}_{path.stem}", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@dataclass(frozen=True)
class Solved:
    """A problem with the outcomes of its tests, as its first golden program gives them."""

    problem: Any
    inputs: list[Any]
    outputs: list[Any]
    tests: list[Any] = field(init=False)

    def __post_init__(self) -> None:
        tests = [self.problem.test(*pair) for pair in zip(self.inputs, self.outputs, strict=True)]
        object.__setattr__(self, "tests", tests)

    @property
    def num_public(self) -> int:
        return len(self.problem.public)

    def task(self, program: str) -> Task:
        """A program on all tests."""
        return Task(
            program=program,
            tests=self.tests,
            fn_name=self.problem.fn_name,
            prelude=self.problem.prelude,
            tolerance=self.problem.tolerance,
        )


def solved(problems: Sequence[Any]) -> list[Solved]:
    """Every problem with its tests' outcomes.

    Raises:
        ValueError: A golden program fails, or does not give what the statement shows.
    """
    inputs = [problem.inputs() for problem in problems]
    asked = [
        Task(
            program=problem.golden[0],
            tests=[problem.test(each, "" if problem.fn_name is None else None) for each in given],
            fn_name=problem.fn_name,
            prelude=problem.prelude,
        )
        for problem, given in zip(problems, inputs, strict=True)
    ]
    reports = run_many(asked, isolation="per_solution")
    return [_solved(*each) for each in zip(problems, inputs, reports, strict=True)]


def _solved(problem: Any, inputs: list[Any], report: Report) -> Solved:
    for each in report.results:
        if each.verdict not in (Verdict.PASSED, Verdict.WRONG):
            raise ValueError(f"the first golden program of {problem.title!r}: {each.verdict}, {each.stderr!r}")
    outputs = [problem.printed(each.stdout) for each in report.results]
    for (shown, expected), output in zip(problem.public, outputs, strict=False):
        if expected != output:
            raise ValueError(
                f"{problem.title!r} shows {expected!r} for {shown!r}; its golden program gives {output!r}"
            )
    return Solved(problem, inputs, [shown for _, shown in problem.public] + outputs[len(problem.public) :])
