"""Answering: a math problem, and the answer to it in a box. What `aime`, `olympiad_bench` and `math` share.

Rules: a move is an answer, the content of the last balanced `\\boxed{}` of a reply; a later one replaces it. Success
is that the answer is the golden one, as `pettingllms_envs.graders.math` judges it, whatever the notation; but where
that takes algebra, a formula of the problem is no answer.
Potential: 1 if the current answer is right, else 0 (also without an answer). No costs.
Nothing that is shown depends on the golden answer: not the prompts, not when an episode ends, not an error. Rewards
and the outcome do, and those are for the trainer.
Outcome: `success`; `answered`, whether there is an answer; `timeout`, whether it could not be judged in time, which
counts as wrong.
Instances: the problems of a data set in the order of their digests; seed s is problem s modulo their number, so the
seeds 0 to n - 1 are all of them once. See `pettingllms_envs.datasets.sampling_order`.
Source: the math tasks of arXiv:2510.11062, whose code hands gold and answer to the verifier the wrong way round and
has AIME 24 in a training set.
"""

from __future__ import annotations

import random
import re
import unicodedata
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

from pettingllms_envs.core import Unreadable
from pettingllms_envs.datasets.problems import MathProblem
from pettingllms_envs.environments.mathematics.answer_rows import MAX_ANSWER
from pettingllms_envs.graders import math
from pettingllms_envs.instances import seeded
from pettingllms_envs.quoting import quote_headings, quote_inline
from pettingllms_envs.replies.moves import last_line
from pettingllms_envs.tasks.data import DataTask


_NUMBER = re.compile(r"\d+", re.ASCII)


class AnswerState(NamedTuple):
    """A problem and the answer to it so far.

    Args:
        problem: The problem; in a `repr` its digest stands for it.
        answer: The content of the box that was given last; None if there was none.
        verdict: What the grader says of it. It is never shown.
    """

    problem: MathProblem
    answer: str | None = None
    verdict: math.Verdict | None = None


@dataclass(frozen=True, slots=True)
class Answering(DataTask[AnswerState]):
    """The task; its state is an `AnswerState`, its move the text of an answer."""

    single_agent: ClassVar[str] = "single"
    problem_kind: ClassVar[type[MathProblem]] = MathProblem
    golden_kind: ClassVar[str | None] = None

    @property
    def blind_replies(self) -> tuple[str, ...]:  # type: ignore[override]
        """Answers that are often right somewhere: small numbers, and some that look like one; also as programs."""
        plain = ("0", "1", "2", "3", "4", "5", "6", "10", "12", "42", "100", "-1", "1/2", r"\pi", r"\sqrt{2}")
        boxes = tuple(map(self.write, plain))
        return (*boxes, *(f"```python\nprint({number})\n```\n{self.write(number)}" for number in ("0", "1", "42")))

    def begin(self, problem: MathProblem, seed: int, split: str | None) -> AnswerState:
        if problem.has_answer and self.golden_kind not in (None, problem.kind):
            raise ValueError(f"{self.name} got data={self.data!r} with {problem}; expected problems of {self.name}.")
        return AnswerState(problem)

    def parse(self, reply: str) -> str | Unreadable:
        """The content of the last balanced box."""
        found = math.boxed(reply)
        if found is None:
            return Unreadable(r"it has no \boxed{} that is closed")
        return _answer(found, "its box")

    def read_output(self, printed: str) -> str | Unreadable:
        """The answer that a program printed: the box in the last line that is not empty, or else that line."""
        line = last_line(printed)
        return _answer(math.boxed(line) or line, "the last line that it printed")

    def agree(self, state: AnswerState, one: str, other: str) -> bool:
        """Whether two answers to the problem are the same, by the grader's rules, with no look at the golden one."""
        return math.same(one, other, **_how(state.problem))

    def apply(self, state: AnswerState, move: str) -> AnswerState:
        """With this answer, judged; `GraderFailed` if the grader itself failed, twice."""
        problem = state.problem
        if not problem.has_answer:
            return AnswerState(problem, move)
        grade = math.grade(move, problem.answer, **_how(problem))
        is_copy = math.is_copy(move, problem.answer, problem.statement, **_how(problem))
        return AnswerState(problem, move, math.Verdict.INCORRECT if is_copy else grade.verdict)

    def solved(self, state: AnswerState) -> bool:
        return state.verdict == math.Verdict.CORRECT

    def rules(self) -> str:
        """What an answer may be."""
        return (
            "Solve the problem of mathematics. Give its answer exactly, in LaTeX: a number, an expression, a tuple, an"
            " interval or an equation. Where there are several answers, give all of them, separated by commas, in any"
            " order. Leave units out."
        )

    def reply_format(self) -> str:
        return r"End your reply with the answer in a box, and nothing else in it, such as \boxed{\frac{-31}{97}t^5}."

    def show(self, state: AnswerState) -> str:
        """The problem, and the answer so far."""
        text = f"The problem:\n{quote_headings(state.problem.statement.strip())}"
        return text if state.answer is None else f"{text}\nThe answer so far: {quote_inline(self.write(state.answer))}"

    def disguised(self, state: AnswerState) -> str:
        """The problem with other digits, the same for the same number; nothing of it if it has none, or a `²`."""
        statement, rng = state.problem.statement.strip(), seeded("answering disguised", state.problem.digest)
        others = {number: _other_digits(rng, number) for number in dict.fromkeys(_NUMBER.findall(statement))}
        if not others or any(unicodedata.category(each)[0] == "N" for each in _NUMBER.sub("", statement)):
            return "A problem that is not shown."
        return f"The problem:\n{quote_headings(_NUMBER.sub(lambda found: others[found[0]], statement))}"

    def describe(self, before: AnswerState, move: str, after: AnswerState, *, proposed: bool = False) -> str:
        """The answer, and never whether it is right."""
        return f"The answer {'would be' if proposed else 'is'} {quote_inline(self.write(move))}."

    def oracle(self, state: AnswerState) -> str:
        return state.problem.answer

    def write(self, move: str) -> str:
        """`42` is written `\\boxed{42}`."""
        return f"\\boxed{{{move}}}"

    def outcome(self, state: AnswerState) -> Mapping[str, bool | int | float]:
        """`success`, `answered` and `timeout`; see the module."""
        if not state.problem.has_answer:
            return {"answered": state.answer is not None}
        return {
            "success": self.solved(state),
            "answered": state.answer is not None,
            "timeout": state.verdict == math.Verdict.TIMEOUT,
        }


def _other_digits(rng: random.Random, number: str) -> str:
    """A number of as many digits, every one of them another, and no 0."""
    return "".join(rng.choice("123456789".replace(digit, "")) for digit in number)


def _how(problem: MathProblem) -> math.GoldSettings:
    """How answers to a problem are compared; its golden answer is not among it."""
    return {"kind": problem.kind, "multiple": problem.multiple, "unit": problem.unit, "tolerance": problem.tolerance}


def _answer(text: str, where: str) -> str | Unreadable:
    if not text.strip():
        return Unreadable(f"{where} is empty")
    if len(text) > MAX_ANSWER:
        return Unreadable(f"{where} is longer than {MAX_ANSWER} characters")
    return text.strip()
