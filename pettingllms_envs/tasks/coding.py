"""Write a program that passes all tests of a problem: the problems of a data set as a task.

State: the problem, the program so far, how many golden tests it passes, and what is known of test cases that a tester
wrote. Move: a program, which takes the place of the one before. Value: the share of golden tests passed; success is
all of them. No verdict of a golden test is ever shown to an agent, and no reward depends on how long an episode is.

Instances: a seed picks a problem of the split, modulo their number, in an order of their digests, so that `range(n)`
plays every problem once. Training may grade on a fixed sample of the tests (`train_tests`); validation and test use
all, public and private.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import ClassVar, NamedTuple

from pettingllms_envs.core import SPLITS, Unreadable, check_choice
from pettingllms_envs.datasets import load
from pettingllms_envs.datasets.problems import CodeProblem
from pettingllms_envs.graders.cases import Case, Review, Run, review, run_cases
from pettingllms_envs.graders.code import golden, grade, limits_of
from pettingllms_envs.instances import seeded
from pettingllms_envs.replies import fenced_blocks
from pettingllms_envs.sandbox.values import Limits
from pettingllms_envs.tasks.coding_text import (
    PROGRAM_FORMAT,
    RULES,
    answer_table,
    blind_replies,
    fenced,
    problem_text,
    write_program,
)


MAX_PROGRAM = 20_000
PYTHON = {"python": "Python", "py": "Python", "python3": "Python"}


class CodingState(NamedTuple):
    """A problem and what was written for it.

    Args:
        problem: The problem.
        num_tests: How many of its golden tests count.
        program: The program so far; empty if there is none.
        num_passed: How many of those tests it passes.
        review: What is known of a tester's last cases.
        sampled: Whether the tests that count are a sample.
    """

    problem: CodeProblem
    num_tests: int
    program: str = ""
    num_passed: int = 0
    review: Review = Review()
    sampled: bool = False


@dataclass(frozen=True, slots=True)
class Coding:
    """The problems of a data set; see the module. Subclasses name a data set and its default.

    Args:
        data: The problems: `own:` and a layout for the rows of this package, a local file, a folder that
            `pettingllms data prepare` wrote, or a Hub id.
        revision: Of a Hub id: its 40 hex digits.
        include_unjudged: Also play problems that comparing outputs cannot judge (several right answers, interaction).
        train_tests: Golden tests on which a program is graded in the split `train`, a fixed sample of each problem's;
            None is all of them. The other splits always use all.
        cpu: Seconds of CPU time for a test; None is the problem's own limit, at least 2 and at most 10.

    Raises:
        ValueError: A value is out of its range.
    """

    data: str
    revision: str | None = None
    include_unjudged: bool = False
    train_tests: int | None = None
    cpu: float | None = None

    name: ClassVar[str]
    version: ClassVar[int] = 0
    splits: ClassVar[tuple[str, ...]] = SPLITS
    blind_replies: ClassVar[tuple[str, ...]] = blind_replies()

    def __post_init__(self) -> None:
        if self.train_tests is not None and (not isinstance(self.train_tests, int) or self.train_tests < 1):
            raise ValueError(
                f"train_tests is {self.train_tests!r}; expected a whole number of at least 1, or None for all tests."
            )
        if self.cpu is not None:
            Limits(cpu=self.cpu)

    @property
    def instance_fields(self) -> Mapping[str, tuple[object, ...]]:
        """The split, the first one if not given; a level or the id of a problem that the split has."""
        return {"split": self.splits, "level": (), "problem": ()}

    def problems(self, split: str) -> tuple[CodeProblem, ...]:
        """The problems of a split, in the order in which seeds play them."""
        return _loaded(self.data, split, self.revision, self.include_unjudged)

    def ranges(self) -> Mapping[str, tuple[float, float]]:
        """The share of golden tests passed; moves cost nothing."""
        return {"value": (0.0, 1.0)}

    def generate(
        self, seed: int, *, split: str | None = None, level: int | None = None, problem: str | None = None
    ) -> CodingState:
        """A problem of the split, the one of the id `problem` or of the level if given, and no program yet.

        Raises:
            ValueError: The split is unknown, or has no such problem.
        """
        split = self.splits[0] if split is None else split
        check_choice("split", split, self.splits)
        found = self.problems(split)
        if problem is not None:
            check_choice("problem", problem, [each.id for each in found])
            found = tuple(each for each in found if each.id == problem)
        if level is not None:
            check_choice("level", level, sorted({each.level for each in found}))
            found = tuple(each for each in found if each.level == level)
        chosen = found[seed % len(found)]
        counted = self.counted_tests(chosen) if split == SPLITS[0] else None
        return CodingState(chosen, len(chosen.tests if counted is None else counted), sampled=counted is not None)

    def counted_tests(self, problem: CodeProblem) -> tuple[int, ...] | None:
        """Indices of the golden tests that count in training; None for all of them."""
        if self.train_tests is None or self.train_tests >= len(problem.tests):
            return None
        rng = seeded("coding", problem.digest, self.train_tests)
        return tuple(sorted(rng.sample(range(len(problem.tests)), self.train_tests)))

    def parse(self, reply: str) -> str | Unreadable:
        """The text of the one block of Python."""
        blocks = fenced_blocks(reply, PYTHON)
        if isinstance(blocks, Unreadable):
            return blocks
        if len(blocks) != 1:
            return Unreadable(f"it has {len(blocks) or 'no'} blocks of Python, and one is expected")
        program = blocks[0][1]
        if not program.strip():
            return Unreadable("its program is empty")
        if len(program) > MAX_PROGRAM:
            return Unreadable(f"its program is longer than {MAX_PROGRAM} characters")
        return program

    def apply(self, state: CodingState, move: str) -> CodingState:
        """The program in place of the one before, graded.

        Raises:
            SandboxFailed: The sandbox failed, twice.
        """
        tests = self.counted_tests(state.problem) if state.sampled else None
        graded = grade(state.problem, move, tests=tests, limits=self.limits(state.problem))
        return state._replace(program=move, num_passed=graded.num_passed)

    def run(self, state: CodingState, cases: tuple[Case, ...]) -> tuple[Run, ...]:
        """The program so far on test cases."""
        return run_cases(state.problem, state.program, cases, self.limits(state.problem))

    def judge(
        self, state: CodingState, cases: tuple[Case, ...], *, failed: tuple[str, ...], right: str
    ) -> CodingState:
        """With the review of test cases; see `pettingllms_envs.graders.cases.review`."""
        limits = self.limits(state.problem)
        return state._replace(review=review(state.problem, cases, failed=failed, right=right, limits=limits))

    def limits(self, problem: CodeProblem) -> Limits:
        """What a program may use on the problem."""
        return limits_of(problem, self.cpu)

    def solved(self, state: CodingState) -> bool:
        """Whether the program passes all golden tests that count."""
        return state.num_passed == state.num_tests

    def value(self, state: CodingState) -> float:
        """The share of golden tests that the program passes."""
        return state.num_passed / state.num_tests

    def costs(self, before: CodingState, move: str, after: CodingState) -> Mapping[str, float]:
        """None."""
        return {}

    def rules(self) -> str:
        """What counts, and how a program gets its input and gives its output."""
        return RULES

    def reply_format(self) -> str:
        """One block of Python."""
        return PROGRAM_FORMAT

    def show(self, state: CodingState) -> str:
        """The problem, and the program so far."""
        text = problem_text(state.problem)
        return f"{text}\n\nThe program so far:\n{fenced(state.program, 'python')}" if state.program else text

    def describe(self, before: CodingState, move: str, after: CodingState, *, proposed: bool = False) -> str:
        """How long the program is; never what it is worth."""
        return f"a program of {move.count(chr(10)) + 1} lines."

    def oracle(self, state: CodingState) -> str:
        """The data set's golden solution, or without one a table of the golden tests' outputs."""
        return golden(state.problem) or answer_table(state.problem)

    def write(self, move: str) -> str:
        """A block of Python."""
        return write_program(move)

    def outcome(self, state: CodingState) -> Mapping[str, bool | int | float]:
        """Success and pass rate of the program; what is known of a tester's last cases."""
        seen = state.review
        return {
            "success": self.solved(state),
            "pass_rate": self.value(state),
            "num_tests": state.num_tests,
            "num_passed": state.num_passed,
            "num_cases": seen.num_cases,
            "num_judged": seen.num_judged,
            "num_valid": seen.num_valid,
            "num_wrong": seen.num_wrong,
            "num_told": seen.num_told,
        }


@lru_cache(maxsize=32)
def _loaded(data: str, split: str, revision: str | None, include_unjudged: bool) -> tuple[CodeProblem, ...]:
    """The code problems of a split by digest, read once in a process."""
    found = load(data, split=split, revision=revision, include_unjudged=include_unjudged).problems
    problems = [each for each in found if isinstance(each, CodeProblem) and each.tests]
    if not problems:
        raise ValueError(
            f"{data!r} has no code problems in the split {split!r}; expected one at least. Name other data, or"
            " another split."
        )
    return tuple(sorted(problems, key=lambda each: each.digest))
