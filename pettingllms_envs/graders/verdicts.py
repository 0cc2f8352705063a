"""From an answer and a gold to a verdict, or to the questions that only math-verify can answer. Pure."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache
from typing import NamedTuple, TypedDict, Unpack

from pettingllms_envs.core import check_choice
from pettingllms_envs.failures import ServiceFailed
from pettingllms_envs.graders import numbers, shapes
from pettingllms_envs.graders.matching import Equal, agrees
from pettingllms_envs.graders.reading import Reading, read


KINDS = ("integer", "expression")
MAX_LENGTH = 2000
"""Characters; a longer answer is not read."""
MAX_DEPTH = 60
"""Of nested brackets."""


class GraderFailed(ServiceFailed):
    """The grader itself failed, twice: no fault of the answer's, and no reason to give it a reward of zero."""


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
        return self.verdict == Verdict.CORRECT


class Question(NamedTuple):
    """Whether an expression of the answer is the gold's, within `tolerance` if they are numbers and one is given."""

    gold: str
    answer: str
    tolerance: float | None


class Finding(StrEnum):
    """What came of a question."""

    EQUAL = "equal"
    DIFFERENT = "different"
    UNPARSED = "unparsed"
    TIMEOUT = "timeout"


class GoldSettings(TypedDict, total=False):
    """What a problem says of its gold: the keyword arguments of `MathGrader`'s methods, each of which may be left out.

    Args:
        kind: `"integer"`: both are integers, and nothing else will do (AIME). `"expression"`, the default: anything.
        multiple: Whether the gold lists several answers, comma-joined (False). All must be there, in any order, and
            no other; a tuple or an interval among them keeps its order.
        unit: In which the gold is given (none); an answer may repeat it or leave it out.
        tolerance: How far a number may be off, absolutely: () (the default) not at all, one for all, or one each.
    """

    kind: str
    multiple: bool
    unit: str
    tolerance: Sequence[float]


class Settings(NamedTuple):
    """`GoldSettings` of which none is left out."""

    kind: str = "expression"
    multiple: bool = False
    unit: str = ""
    tolerance: tuple[float, ...] = ()


def settings_of(**given: Unpack[GoldSettings]) -> Settings:
    """All of the settings, with the defaults of those that are not given."""
    settings = Settings(**given)  # type: ignore[arg-type]  # the tolerance may be any sequence
    return settings._replace(multiple=bool(settings.multiple), tolerance=tuple(settings.tolerance))


@dataclass(frozen=True, slots=True)
class AnswerCase:
    """An answer that is right if these questions find the right answers."""

    gold: Reading
    answer: Reading
    tolerance: tuple[float, ...]
    questions: tuple[Question, ...]

    def decide(self, findings: Sequence[Finding]) -> Grade:
        """The grade, given what came of each question."""
        known = dict(zip(self.questions, findings, strict=True))
        for verdict, doubts in _DOUBTS:
            if agrees(self.gold, self.answer, self.tolerance, _judged(known, {Finding.EQUAL, *doubts})):
                return Grade(verdict, "math_verify")
        return Grade(Verdict.INCORRECT, "math_verify")


_DOUBTS = (
    (Verdict.CORRECT, ()),
    (Verdict.TIMEOUT, (Finding.TIMEOUT,)),
    (Verdict.UNPARSED, (Finding.TIMEOUT, Finding.UNPARSED)),
)
"""What an answer is, if it would be right were these doubts resolved in its favour, but not without."""


def _judged(known: Mapping[Question, Finding], yes: set[Finding]) -> Equal:
    return lambda *question: known[Question(*question)] in yes


def look(answer: str, gold: str, settings: Settings) -> Grade | AnswerCase:
    """The grade, if spelling and arithmetic are enough; else what has to be asked."""
    if not is_readable(answer):
        return Grade(Verdict.UNPARSED, "exact")
    if settings.kind == "integer":
        return _grade_integer(answer, gold)
    wanted = read(gold, unit=settings.unit, multiple=settings.multiple)
    given = read(answer, multiple=settings.multiple)
    questions: dict[Question, None] = {}

    def note(*question: str | float | None) -> bool:
        questions[Question._make(question)] = None
        return True

    if not given.items:
        return Grade(Verdict.UNPARSED, "exact")
    if not agrees(wanted, given, settings.tolerance, note):
        return Grade(Verdict.INCORRECT, "exact")
    if not questions:
        return Grade(Verdict.CORRECT, "exact")
    return AnswerCase(wanted, given, settings.tolerance, tuple(questions))


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
    matches = [_INTEGER.fullmatch(shapes.shape(each).text) for each in values]
    found = {int(match.group(1)) for match in matches if match and len(match.group()) <= numbers.MAX_DIGITS}
    return found.pop() if all(matches) and len(found) == 1 else None


def is_readable(text: str) -> bool:
    """Whether a text is short and flat enough to be read, and not empty."""
    return len(text) <= MAX_LENGTH and bool(text.strip()) and shapes.depth(text) <= MAX_DEPTH


@lru_cache(1 << 12)
def check_gold(gold: str, settings: Settings) -> None:
    """Raise as `MathGrader.grade` does for what no answer can be graded against."""
    check_settings(settings)
    if not isinstance(gold, str):
        raise TypeError(f"the gold is {gold!r}; expected a text. Write the number as the data set does.")
    num_items = len(read(gold, multiple=settings.multiple).items) if is_readable(gold) else 0
    if not num_items:
        raise ValueError(
            f"the gold is {gold[:80]!r}; expected an answer of 1 to {MAX_LENGTH} characters. Leave it out."
        )
    if settings.kind == "integer" and _integer(gold) is None:
        raise ValueError(f"the gold is {gold!r}; expected an integer. Give kind='expression' for other answers.")
    if len(settings.tolerance) not in (0, 1, num_items):
        raise ValueError(
            f"there are {len(settings.tolerance)} tolerances; expected one for all or one for each of {num_items}"
            f" answers in {gold[:80]!r}. Give () for none."
        )


def check_settings(settings: Settings) -> None:
    """Raise as `MathGrader.grade` does for settings that mean nothing."""
    check_choice("kind", settings.kind, KINDS)
    if not isinstance(settings.unit, str):
        raise TypeError(f"the unit is {settings.unit!r}; expected a text. Give an empty one if there is none.")
    for each in settings.tolerance:
        if isinstance(each, bool) or not isinstance(each, int | float) or not 0 <= each < math.inf:
            raise ValueError(f"a tolerance is {each!r}; expected a number from 0 on. Give () for none.")
