"""Files beside the project, and what the tests of this folder share."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from pettingllms_envs.graders.verdicts import Finding, Question


SHARED = Path(__file__).parents[3] / "shared" / "data"


def rows(name: str) -> list[dict[str, Any]]:
    """The rows of a file beside the project; the test is skipped where there is none."""
    path = SHARED / name
    if not path.exists():
        pytest.skip(f"{path} is not here: it lies beside the project, not in it")
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


class Asked:
    """Stands in for math-verify: says one thing to all, and keeps what it was asked."""

    def __init__(self, finding: Finding = Finding.DIFFERENT) -> None:
        self.finding = finding
        self.questions: list[Question] = []

    def __call__(self, answers: list[tuple[Question, ...]]) -> list[list[Finding]]:
        self.questions += [question for one in answers for question in one]
        return [[self.finding] * len(one) for one in answers]
