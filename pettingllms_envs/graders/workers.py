"""The door to math-verify, which runs in the sandbox: a process for each question, forked from a warm server.

math-verify's own timeouts are alarms, which work in a main thread only and do not end one long operation of C. So they
are off; a question has `LIMITS` of CPU time, by which it is judged, and of time on the wall, after which it is killed.
"""

from __future__ import annotations

import importlib.util
import json
import logging
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from pettingllms_envs.graders.numbers import too_large
from pettingllms_envs.graders.verdicts import Finding, GraderFailed, Question
from pettingllms_envs.sandbox import MOST_WAITED, Limits, Sandbox, Verdict


logger = logging.getLogger(__name__)

LIMITS = Limits(cpu=1.5, wall=4.0, memory=1 << 30, output=1 << 16)
TOGETHER = 16
"""Questions that share a process, and with it the limit of time."""

_PROGRAM = "import resident\nresident.main()\n"
_RESIDENT = Path(__file__).parent / "inside" / "comparison.py"


class MathVerify:
    """math-verify in a sandbox of its own, started at the first question. Safe to call from any thread.

    Args:
        num_slots: Questions that are answered at a time; None is one for each core that this process may use.
        settings: Of the `Sandbox`, such as `confinement`.
    """

    def __init__(self, num_slots: int | None = None, **settings: Any) -> None:
        if importlib.util.find_spec("math_verify") is None:
            raise ImportError("math_verify is not installed; expected version 0.9. Run: pip install math-verify")
        resident = _RESIDENT.read_text(encoding="utf-8")
        self.sandbox = Sandbox(num_slots=num_slots, imports=("math_verify",), resident=resident, **settings)

    def __call__(self, answers: Sequence[Sequence[Question]]) -> list[list[Finding]]:
        """What math-verify says to the questions on each answer.

        All are asked in one process, at most `TOGETHER` at a time. Should it not end well, each answer's are asked in
        a process of their own, so that what one answer does to it is not another's verdict.

        Raises:
            GraderFailed: The sandbox failed twice, or a question waited a minute for a core.
            SandboxUnavailable: No isolation works on this machine.
        """
        findings: list[list[Finding]] = []
        for group in _portions(answers):
            questions = [question for one in group for question in one]
            found = self._ask(questions)
            if isinstance(found, Finding) and len(group) > 1:
                findings += [self([one])[0] for one in group]
            elif isinstance(found, Finding):
                findings.append([found] * len(questions))
            else:
                rest = iter(found)
                findings += [[next(rest) for _ in one] for one in group]
        return findings

    def _ask(self, questions: Sequence[Question]) -> list[Finding] | Finding:
        """What came of each question, or of all of them together if the process did not end well."""
        sensible = [each for each in questions if not (too_large(each.gold) or too_large(each.answer))]
        if not sensible:
            return Finding.UNPARSED
        text = json.dumps(sensible)
        result = self.sandbox.run(_PROGRAM, text, limits=LIMITS)
        if result.verdict == Verdict.SANDBOX_ERROR or result.waited >= MOST_WAITED:
            raise GraderFailed(
                f"math-verify could not be asked ({result.detail}, after {result.waited:.0f} s of waiting for a core);"
                " expected a verdict. Ask again; see the log."
            )
        if result.verdict == Verdict.TIMEOUT:
            return Finding.TIMEOUT
        known = {each.value: each for each in Finding}
        words = result.stdout.decode("ascii", "replace").split()
        if result.verdict != Verdict.FINISHED or len(words) != len(sensible) or not set(words) <= set(known):
            logger.info("math-verify ended without a verdict: %s, %s", result.verdict, result.detail)
            return Finding.UNPARSED  # too deep, or too large: the same every time
        found = dict(zip(sensible, (known[word] for word in words), strict=True))
        return [found.get(each, Finding.UNPARSED) for each in questions]

    @property
    def num_slots(self) -> int:
        """Questions that are answered at a time."""
        return self.sandbox.num_slots

    def close(self) -> None:
        """End its processes. The next question starts new ones."""
        self.sandbox.close()


def _portions(answers: Sequence[Sequence[Question]]) -> Iterator[list[Sequence[Question]]]:
    """The answers in groups of few questions, each answer's together."""
    portion: list[Sequence[Question]] = []
    for each in answers:
        if portion and sum(map(len, portion)) + len(each) > TOGETHER:
            yield portion
            portion = []
        portion.append(each)
    if portion:
        yield portion
