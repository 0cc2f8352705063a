"""Rows of public data sets, and what the tests of this folder share."""

from __future__ import annotations

import json
from typing import Any

from data_files import public
from pettingllms_envs.graders.verdicts import Finding, Question


def rows(name: str) -> list[dict[str, Any]]:
    """The rows of a file of a public data set; skips the test where no folder of them is named."""
    return [json.loads(line) for line in public(name).read_text(encoding="utf-8").splitlines()]


class Asked:
    """Stands in for math-verify: says one thing to all, and keeps what it was asked."""

    def __init__(self, finding: Finding = Finding.DIFFERENT) -> None:
        self.finding = finding
        self.questions: list[Question] = []

    def __call__(self, answers: list[tuple[Question, ...]]) -> list[list[Finding]]:
        self.questions += [question for one in answers for question in one]
        return [[self.finding] * len(one) for one in answers]
