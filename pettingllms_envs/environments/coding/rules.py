"""Write a program that passes all tests of a problem: the problems of a data set as a task.

State: the problem, the program so far, how many golden tests it passes, and what is known of test cases that a tester
wrote. Move: a program, which takes the place of the one before. Value: the share of golden tests passed; success is
all of them. No verdict of a golden test is ever shown to an agent, and no reward depends on how long an episode is.

Instances: the problems of a data set in the order of their digests; see `pettingllms_envs.datasets.sampling_order`.
Training may grade on a fixed sample of each problem's tests (`train_tests`); validation and test use all, public and
private.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar, NamedTuple

from pettingllms_envs.core import SPLITS, Unreadable, check_whole
from pettingllms_envs.datasets.code_problems import CodeProblem
from pettingllms_envs.environments.coding.text import (
    PROGRAM_FORMAT,
    RULES,
    answer_table,
    blind_replies,
    problem_text,
    write_program,
)
from pettingllms_envs.graders.cases import CodeCase, Review, Run, best_cases, review, run_cases
from pettingllms_envs.graders.code import golden, grade, limits_of
from pettingllms_envs.instances import seeded
from pettingllms_envs.quoting import quote_block
from pettingllms_envs.replies.fences import only_program
from pettingllms_envs.sandbox.values import Limits
from pettingllms_envs.tasks.data import DataTask


class CodingState(NamedTuple):
    """A problem and what was written for it.

    Args:
        num_tests: How many of its golden tests count.
    """

    problem: CodeProblem
    num_tests: int
    program: str = ""
    num_passed: int = 0
    review: Review = Review()
    sampled: bool = False


@dataclass(frozen=True, slots=True)
class Coding(DataTask[CodingState]):
    """The task; its state is a `CodingState`, its move a program.

    Args:
        include_unjudged: Whether to play problems, too, that comparing outputs cannot judge: those with several right
            answers, and those that ask for interaction.
        train_tests: On how many golden tests a program is graded in the split `train`, a fixed sample of each
            problem's; None for all of them. The other splits always use all.
        cpu: Seconds of CPU time for a test; None for the problem's own limit, at least 2 and at most 10.
        packages: What programs may import besides the standard library, such as `("numpy",)`: installed here, and
            imported once for each slot of the sandbox.
    """

    include_unjudged: bool = False
    train_tests: int | None = None
    cpu: float | None = None
    packages: tuple[str, ...] = ()

    single_agent: ClassVar[str] = "single"
    problem_kind: ClassVar[type[CodeProblem]] = CodeProblem
    blind_replies: ClassVar[tuple[str, ...]] = blind_replies()

    def __post_init__(self) -> None:
        if self.train_tests is not None:
            check_whole("train_tests", self.train_tests, 1)
        if self.cpu is not None:
            Limits(cpu=self.cpu)
        object.__setattr__(self, "packages", installed(self.packages))

    def narrowing(self) -> Mapping[str, Any]:
        return {"include_unjudged": self.include_unjudged}

    def begin(self, problem: CodeProblem, seed: int, split: str | None) -> CodingState:
        """The problem, and no program yet."""
        if self.packages:
            problem = replace(problem, packages=self.packages)
        counted = self.counted_tests(problem) if split == SPLITS[0] else None
        return CodingState(problem, len(problem.tests if counted is None else counted), sampled=counted is not None)

    def counted_tests(self, problem: CodeProblem) -> tuple[int, ...] | None:
        """Indices of the golden tests that count in training; None for all of them."""
        if self.train_tests is None or self.train_tests >= len(problem.tests):
            return None
        digest = replace(problem, packages=()).digest if problem.packages else problem.digest
        rng = seeded("coding", digest, self.train_tests)
        return tuple(sorted(rng.sample(range(len(problem.tests)), self.train_tests)))

    def parse(self, reply: str) -> str | Unreadable:
        """The text of the one block of Python."""
        program = only_program(reply)
        return program if isinstance(program, Unreadable) or program.strip() else Unreadable("its program is empty")

    def apply(self, state: CodingState, move: str) -> CodingState:
        """The program in place of the one before, graded; `SandboxFailed` if the sandbox failed, twice."""
        if not state.problem.has_answer:
            return state._replace(program=move)
        tests = self.counted_tests(state.problem) if state.sampled else None
        graded = grade(state.problem, move, tests=tests, limits=self.limits(state.problem))
        return state._replace(program=move, num_passed=graded.num_passed)

    def run(self, state: CodingState, cases: tuple[CodeCase, ...]) -> tuple[Run, ...]:
        """The program so far on test cases."""
        return run_cases(state.problem, state.program, cases, self.limits(state.problem))

    def judge(self, state: CodingState, cases: tuple[CodeCase, ...], *, right: str) -> CodingState:
        """With the review of test cases; see `pettingllms_envs.graders.cases.review`."""
        limits = self.limits(state.problem)
        return state._replace(review=review(state.problem, cases, right=right, limits=limits))

    def best_cases(self, state: CodingState, most: int) -> tuple[CodeCase, ...]:
        """What an oracle writes as test cases; see `pettingllms_envs.graders.cases.best_cases`."""
        return best_cases(state.problem, most, self.limits(state.problem))

    def limits(self, problem: CodeProblem) -> Limits:
        """What a program may use on the problem."""
        return limits_of(problem, self.cpu)

    def solved(self, state: CodingState) -> bool:
        return state.problem.has_answer and state.num_passed == state.num_tests

    def value(self, state: CodingState) -> float:
        """The share of golden tests that the program passes."""
        return state.num_passed / state.num_tests if state.problem.has_answer else 0.0

    def rules(self) -> str:
        """What counts, what a program may import, and how it gets its input and gives its output."""
        return RULES.format(besides=f" and {', '.join(self.packages)}" if self.packages else "")

    def reply_format(self) -> str:
        return PROGRAM_FORMAT

    def show(self, state: CodingState) -> str:
        """The problem, and the program so far."""
        text = problem_text(state.problem)
        return f"{text}\n\nThe program so far:\n{quote_block(state.program, 'python')}" if state.program else text

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
        """Success and pass rate of the program, golden tests that are not shown; what is known of a tester's cases."""
        if not state.problem.has_answer:
            return {}
        seen = state.review
        return {
            "success": self.solved(state),
            "pass_rate": self.value(state),
            "num_tests": state.num_tests,
            "num_passed": state.num_passed,
            "num_hidden": len(state.problem.tests) - state.problem.num_public,
            "num_cases": seen.num_cases,
            "num_judged": seen.num_judged,
            "num_valid": seen.num_valid,
            "num_wrong": seen.num_wrong,
            "num_told": seen.num_told,
        }


def installed(packages: object) -> tuple[str, ...]:
    """The names of packages that programs may import."""
    if not isinstance(packages, tuple | list) or not all(
        isinstance(name, str) and name.isidentifier() for name in packages
    ):
        raise ValueError(f"packages is {packages!r}; expected names of packages, such as ('numpy',). Give a tuple.")
    for name in packages:
        if importlib.util.find_spec(name) is None:
            raise ValueError(
                f"packages names {name!r}, which is not installed here; expected packages that programs can import."
                " Install it, or leave it out."
            )
    return tuple(packages)
