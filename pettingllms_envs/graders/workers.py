"""The door to math-verify, which runs in the sandbox: a process for each question, forked from a warm server.

math-verify's own timeouts are alarms, which work in a main thread only and do not end one long operation of C. So they
are off; a question has `LIMITS` of CPU time, by which it is judged, and of time on the wall, after which it is killed.
"""

from __future__ import annotations

import importlib.util
import json
import logging
from collections.abc import Sequence
from enum import StrEnum
from functools import cache
from pathlib import Path
from typing import NamedTuple

from pettingllms_envs.graders.numbers import too_large
from pettingllms_envs.sandbox import Limits, Result, Sandbox, Verdict


logger = logging.getLogger(__name__)

LIMITS = Limits(cpu=1.5, wall=4.0, memory=1 << 30, output=1 << 16)
_PATIENT = Limits(cpu=1.5, wall=60.0, memory=1 << 30, output=1 << 16)
_PROGRAM = "import resident\nresident.main()\n"
_RESIDENT = Path(__file__).parent / "inside" / "comparison.py"


class GraderFailed(RuntimeError):
    """The grader itself failed, twice: no fault of the answer's, and no reason to give it a reward of zero."""


class Question(NamedTuple):
    """Whether an answer is the gold, within `tolerance` if it is a number and one is given."""

    gold: str
    answer: str
    tolerance: float | None


class Finding(StrEnum):
    """What came of a question."""

    EQUAL = "equal"
    DIFFERENT = "different"
    UNPARSED = "unparsed"
    TIMEOUT = "timeout"


@cache
def sandbox() -> Sandbox:
    """The process's own sandbox for math-verify, started at the first question."""
    if importlib.util.find_spec("math_verify") is None:
        raise ImportError("math_verify is not installed; expected version 0.9. Run: pip install math-verify")
    return Sandbox(imports=("math_verify",), resident=_RESIDENT.read_text(encoding="utf-8"))


def ask(questions: Sequence[Question]) -> list[Finding]:
    """What math-verify says to each question, all in one process. If they take too long, none has an answer.

    Of towers of powers and the like it is not asked: they count as unparsed.

    Raises:
        GraderFailed: The sandbox failed twice, or the machine is so busy that a minute was not enough.
        SandboxUnavailable: This machine cannot hold a program.
    """
    if any(too_large(text) for question in questions for text in question[:2]):
        return [Finding.UNPARSED] * len(questions)
    text = json.dumps(questions)
    result = sandbox().run(_PROGRAM, text, limits=LIMITS)
    if _waited(result):  # a busy machine: what counts is CPU time, and it has not had its share
        result = sandbox().run(_PROGRAM, text, limits=_PATIENT)
    if result.verdict == Verdict.SANDBOX_ERROR or _waited(result):
        raise GraderFailed(
            f"math-verify could not be asked, twice ({result.detail}); expected a verdict. Ask again, or see the log."
        )
    if result.verdict == Verdict.TIMEOUT:
        return [Finding.TIMEOUT] * len(questions)
    if result.verdict != Verdict.FINISHED:  # too deep, or too large: the same every time
        logger.info("math-verify ended without a verdict: %s, %s", result.verdict, result.detail)
        return [Finding.UNPARSED] * len(questions)
    return _findings(result.stdout, len(questions))


def _waited(result: Result) -> bool:
    return (
        result.verdict == Verdict.TIMEOUT and result.cpu == 0.0
    )  # of what the clock on the wall ended, none is known


def _findings(output: bytes, num_questions: int) -> list[Finding]:
    """What the program printed; text of a model may have broken it: anything but findings counts as unparsed."""
    known = {each.value: each for each in Finding}
    words = output.decode("ascii", "replace").split()
    if len(words) != num_questions or not set(words) <= set(known):
        return [Finding.UNPARSED] * num_questions
    return [known[word] for word in words]
