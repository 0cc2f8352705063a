"""Prompts: rows with a `prompt`, as data sets for TRL's trainers have them, to be answered by a team.

Rules: none but what the prompt says. A move is a whole reply; the last one is the answer.
Instances: the reset option `prompt`, a text or a list of chat messages, with perhaps the right `answer`, and pictures
(`pettingllms_envs.tasks.prompt_messages`); or else, by seed and split, a row of the file `data` with these columns
(`pettingllms_envs.tasks.rows` says how rows are divided).
Rewards: none, if they are left to a trainer's reward functions. With a `grader` an answer that equals the row's
`answer` pays `success` 1 and, times `alpha`, `progress` 1, 2 in all by default: `"exact"` compares the whole reply,
without case and white space, `"math"` what its last `\\boxed{}` holds, see `pettingllms_envs.graders.math`, unless it
is a formula of the prompt. Only then is there an outcome, `success`, for rows with an answer that is not blank.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from pettingllms_envs.core import SPLITS, check_choice
from pettingllms_envs.features import DataSet
from pettingllms_envs.graders import math
from pettingllms_envs.tasks.prompt_messages import PICTURES, PROMPT
from pettingllms_envs.tasks.rows import RowProblem, RowState, RowTask, described_rows, divided, problem_of, read_table


GRADERS = ("", "exact", "math")
SAMPLES = tuple(
    {PROMPT: f"What is {a} {sign} {b}?", "answer": str(answer), "split": split}
    for split, questions in zip(
        SPLITS,
        (
            ((2, "+", 3, 5), (17, "-", 9, 8), (12, "+", 19, 31), (30, "-", 4, 26)),
            ((6, "+", 7, 13), (21, "-", 5, 16)),
            ((9, "+", 8, 17), (40, "-", 11, 29)),
        ),
        strict=True,
    )
    for a, sign, b, answer in questions
)
"""Prompts where no others are given, with which the environment can be tried."""


@dataclass(frozen=True, slots=True)
class Prompts(RowTask):
    """The task.

    Args:
        data: A file of rows, see the head of this file; empty for `SAMPLES`.
        grader: `"exact"` or `"math"`; empty where rewards are left to reward functions.
    """

    data: str = ""
    grader: str = ""

    name: ClassVar[str] = "conversation"

    def __post_init__(self) -> None:
        check_choice("grader", self.grader, GRADERS)
        rows = [row for rows in self.table().values() for row in rows]
        if self.grader and not any(_answer(json.loads(row.written)) for row in rows):
            raise ValueError(
                f"grader is {self.grader!r}, but no row of {self.data} has an 'answer'; expected one to compare "
                "replies with. Add that column, or leave the grader out."
            )

    def table(self) -> Mapping[str, tuple[RowProblem, ...]]:
        return read_table(Path(self.data).absolute(), PROMPT) if self.data else divided(SAMPLES, "samples", PROMPT)

    @property
    def instance_fields(self) -> Mapping[str, tuple[object, ...]]:  # type: ignore[override]
        """The prompt, the pictures and the answer of a row, or the split of the file's rows."""
        return {**dict.fromkeys((PROMPT, *PICTURES, "answer"), ()), "split": tuple(self.table())}

    @property
    def required_options(self) -> tuple[str, ...]:
        """The prompt, where there is no file."""
        return () if self.data else (PROMPT,)

    @property
    def data_set(self) -> DataSet:
        """The file, and how many of its rows are in which split."""
        if self.data:
            return described_rows(self.data, self.table())
        return DataSet("samples", "a benchmark", "--set data=FILE")

    def generate(  # of a row, its columns are the options
        self, seed: int, *, split: str | None = None, prompt: Any = None, **columns: Any
    ) -> RowState:
        """The prompt that is given, or the row of a seed in a split."""
        if prompt is None:
            return RowTask.generate(self, seed, split=split)
        return RowState(problem_of({PROMPT: prompt, **columns}, "prompts", "the row", PROMPT))

    def rules(self) -> str:
        """The prompt says what to do."""
        return ""

    def show(self, state: RowState) -> str:
        """The prompt's last message."""
        return state.problem.statement

    def parse(self, reply: str) -> str:
        return reply

    def apply(self, state: RowState, move: str) -> RowState:
        """The row with an answer.

        Raises:
            GraderFailed: math-verify could not be asked, twice.
        """
        gold = _answer(state.row)
        if not self.grader or not gold:
            return RowState(state.problem, move)
        if self.grader == "exact":
            return RowState(state.problem, move, float(_plain(move) == _plain(gold)))
        boxed = math.boxed(move) or ""
        is_right = math.grade(boxed, gold).correct and not math.is_copy(boxed, gold, state.problem.statement)
        return RowState(state.problem, move, float(is_right))

    def ranges(self) -> Mapping[str, tuple[float, float]]:
        """The potential is the answer's score, if there is a grader."""
        return {"value": (0.0, 1.0 if self.grader else 0.0)}

    def outcome(self, state: RowState) -> Mapping[str, bool | int | float]:
        """Whether the answer is right, if there is a grader and the row has an answer."""
        return {"success": self.solved(state)} if self.grader and _answer(state.row) else {}


def _answer(row: Mapping[str, Any]) -> str:
    """The right answer of a row; empty if it has none, or a blank one."""
    gold = row.get("answer")
    return "" if gold is None else str(gold).strip()


def _plain(text: str) -> str:
    return " ".join(text.casefold().split())
