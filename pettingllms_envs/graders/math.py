r"""Whether an answer to a problem of mathematics is right.

    grade(r"\frac{2}{4}", "0.5").correct                                       # True
    grade("(2,1),(1,2)", "$(1,2)$,$(2,1)$", multiple=True).correct             # True: several answers, in any order
    grade("4.3", "4.2", unit="%", tolerance=(0.1,)).correct                    # True

First what needs no algebra, here and exactly; what is left, math-verify decides in the sandbox (`workers.py`). What
counts as the same answer is in docs/grading.md. The verdict is the same from every thread and process and under load.
"""

from __future__ import annotations

import asyncio
import math
import re
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache, partial

from pettingllms_envs.core import check_choice
from pettingllms_envs.graders import numbers, shapes
from pettingllms_envs.graders.boxes import boxed
from pettingllms_envs.graders.matching import agrees
from pettingllms_envs.graders.reading import read
from pettingllms_envs.graders.workers import Finding, GraderFailed, Question, ask, sandbox


__all__ = ["Grade", "GraderFailed", "Verdict", "agrade", "boxed", "grade", "grade_many", "same"]

KINDS = ("integer", "expression")
MAX_LENGTH = 2000
"""Characters; a longer answer is not read."""


class Verdict(StrEnum):
    """Only `CORRECT` is worth a reward."""

    CORRECT = "correct"
    INCORRECT = "incorrect"
    UNPARSED = "unparsed"
    """The answer, or a part of it that matters, cannot be read; or it is empty, too long, or too deep."""
    TIMEOUT = "timeout"
    """It took too much CPU time to compare."""


@dataclass(frozen=True, slots=True)
class Grade:
    """A verdict, and how it was found: `"exact"` by spelling and arithmetic, or `"math_verify"`."""

    verdict: Verdict
    found_by: str

    @property
    def correct(self) -> bool:
        """Whether it is worth a reward."""
        return self.verdict == Verdict.CORRECT


def grade(
    answer: str,
    gold: str,
    *,
    kind: str = "expression",
    multiple: bool = False,
    unit: str = "",
    tolerance: Sequence[float] = (),
) -> Grade:
    r"""Whether an answer is right. Safe to call from any thread.

    Args:
        answer: What the reply's box holds (`boxed`).
        gold: The right answer, as the data set writes it.
        kind: `"integer"`: both are integers, and nothing else will do (AIME). `"expression"`: anything.
        multiple: Whether the gold lists several answers, comma-joined. All must be there, in any order, and no other;
            a tuple or an interval among them keeps its order.
        unit: In which the gold is given; an answer may repeat it or leave it out.
        tolerance: How far a number may be off, absolutely: () for not at all, one for all, or one for each answer.

    Raises:
        ValueError: The gold is empty or, of kind `"integer"`, none; an unknown kind; tolerances that do not fit.
        TypeError: Something is not a text, such as a unit that is NaN.
        GraderFailed: math-verify could not be asked, twice. Not the answer's fault: do not make it a reward of zero.
        SandboxUnavailable: math-verify was needed, and this machine cannot hold it safely.
    """
    _check(gold, kind, unit, tolerance)
    if not isinstance(answer, str):
        raise TypeError(f"the answer is {answer!r}; expected a text. For a reply without a box, call nothing.")
    if not _is_readable(answer):
        return Grade(Verdict.UNPARSED, "exact")
    return _grade(answer, gold, kind, bool(multiple), unit, tuple(map(float, tolerance)))


def grade_many(
    answers: Sequence[str],
    gold: str,
    *,
    kind: str = "expression",
    multiple: bool = False,
    unit: str = "",
    tolerance: Sequence[float] = (),
) -> list[Grade]:
    """`grade` for each answer of a group, as many at a time as the sandbox has slots; equal answers once."""
    one = partial(grade, gold=gold, kind=kind, multiple=multiple, unit=unit, tolerance=tolerance)
    different = list(dict.fromkeys(answers))
    if len(different) < 2:
        return [one(answer) for answer in answers]
    with ThreadPoolExecutor(sandbox().num_slots, "grade") as threads:
        grades = dict(zip(different, threads.map(one, different), strict=True))
    return [grades[answer] for answer in answers]


async def agrade(
    answer: str,
    gold: str,
    *,
    kind: str = "expression",
    multiple: bool = False,
    unit: str = "",
    tolerance: Sequence[float] = (),
) -> Grade:
    """`grade`, to be awaited."""
    call = partial(grade, answer, gold, kind=kind, multiple=multiple, unit=unit, tolerance=tolerance)
    return await asyncio.to_thread(call)


def same(
    one: str,
    other: str,
    *,
    kind: str = "expression",
    multiple: bool = False,
    unit: str = "",
    tolerance: Sequence[float] = (),
) -> bool:
    """Whether two answers of models agree, by the rules of `grade`: each would be right if the other were the gold.

    Symmetric. Answers that cannot be read agree with none, not even with themselves.

    Raises:
        What `grade` raises, but for mistakes in the gold: there is none.
    """
    _check("0", kind, unit, tolerance)
    if not (_is_readable(one) and _is_readable(other)):
        return False
    settings = (kind, bool(multiple), unit, tuple(map(float, tolerance)))
    return _grade(one, other, *settings).correct and _grade(other, one, *settings).correct


def _check(gold: str, kind: str, unit: str, tolerance: Sequence[float]) -> None:
    check_choice("kind", kind, KINDS)
    for name, text in (("gold", gold), ("unit", unit)):
        if not isinstance(text, str):
            raise TypeError(f"the {name} is {text!r}; expected a text. Give an empty one if there is none.")
    if not _is_readable(gold):
        raise ValueError(
            f"the gold is {gold[:80]!r}; expected an answer of 1 to {MAX_LENGTH} characters. Leave it out."
        )
    if kind == "integer" and _integer(gold) is None:
        raise ValueError(f"the gold is {gold!r}; expected an integer. Give kind='expression' for other answers.")
    for each in tolerance:
        if isinstance(each, bool) or not isinstance(each, int | float) or not 0 <= each < math.inf:
            raise ValueError(f"a tolerance is {each!r}; expected a number from 0 on. Give () for none.")


MAX_DEPTH = 60


def _is_readable(text: str) -> bool:
    return len(text) <= MAX_LENGTH and bool(text.strip()) and shapes.depth(text) <= MAX_DEPTH


_CACHED = 1 << 14


@lru_cache(_CACHED)
def _grade(answer: str, gold: str, kind: str, multiple: bool, unit: str, tolerance: tuple[float, ...]) -> Grade:
    """Remembered: the answers of a group repeat. A failure is not."""
    if kind == "integer":
        return _grade_integer(answer, gold)
    wanted = read(gold, unit=unit, multiple=multiple)
    given = read(answer, unit="", multiple=multiple)
    if not given.items:
        return Grade(Verdict.UNPARSED, "exact")
    findings: dict[Question, Finding] = {}

    def judged_by(yes: frozenset[Finding]) -> Callable[[str, str, float | None], bool]:
        return lambda *question: findings.setdefault(Question(*question), Finding.EQUAL) in yes

    if not agrees(wanted, given, tolerance, judged_by(frozenset(Finding))):
        return Grade(Verdict.INCORRECT, "exact")
    if not findings:
        return Grade(Verdict.CORRECT, "exact")
    findings.update(zip(findings, ask(list(findings)), strict=True))
    for verdict, doubt in _DOUBTS:
        if agrees(wanted, given, tolerance, judged_by(frozenset({Finding.EQUAL, *doubt}))):
            return Grade(verdict, "math_verify")
    return Grade(Verdict.INCORRECT, "math_verify")


_DOUBTS = (
    (Verdict.CORRECT, ()),
    (Verdict.TIMEOUT, (Finding.TIMEOUT,)),
    (Verdict.UNPARSED, (Finding.TIMEOUT, Finding.UNPARSED)),
)
"""What an answer is, if it would be right were these doubts all resolved in its favour."""


def _grade_integer(answer: str, gold: str) -> Grade:
    given, wanted = _integer(answer), _integer(gold)
    if given is None or wanted is None:
        return Grade(Verdict.UNPARSED, "exact")
    return Grade(Verdict.CORRECT if given == wanted else Verdict.INCORRECT, "exact")


_INTEGER = re.compile(r"([+-]?\d+)(?:\.0*)?")


def _integer(text: str) -> int | None:
    r"""The integer that an answer says, such as `025`, `25.0`, `1{,}000`, `x=25`, `\text{25}` or `336^\circ`."""
    reading = read(text)
    if len(reading.items) != 1 or reading.percent:
        return None
    links = reading.items[0].links
    values = links[1:] if len(links) > 1 and shapes.names(links[0]) else links
    matches = [_INTEGER.fullmatch(each) for each in values]
    found = {int(match.group(1)) for match in matches if match and len(match.group()) <= numbers.MAX_DIGITS}
    return found.pop() if all(matches) and len(found) == 1 else None
