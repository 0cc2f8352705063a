"""AIME: problems of the American Invitational Mathematics Examination, each answered by a whole number from 0 to 999.

The task, its rewards and outcome: `rules`. Answers are compared as whole numbers (`025` and
`25` are the same), never by algebra.
Data: the AIME-like problems of this package, in three splits; with `year`, an exam from the Hub, 30 problems in two
papers; with `data`, any data set in one of AIME's layouts. An exam has the split `test` only: it must be asked for, as
the reset option `split`, and whoever asks for training problems is refused.
Levels: by the number of the problem in its paper, 1 to 5 is level 1, 6 to 10 level 2, 11 to 15 level 3.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from pettingllms_envs.environments.mathematics.rules import Answering


EXAMS = {
    2024: "HuggingFaceH4/aime_2024@2fe88a2f1091d5048c0f36abc874fb997b3dd99a",
    2025: "math-ai/aime25@563bb8404243c5f09de6ec262f2db674fe5bce9b",
}
"""The exams of `year`, 30 problems each, at the commits that others pin too."""


@dataclass(frozen=True, slots=True)
class Aime(Answering):
    """The task; its other settings are those of `Answering`.

    Args:
        year: Only the exam of this year, such as 2024 or 24, from the Hub where there are no `data`; None for all.
    """

    year: int | None = None

    name: ClassVar[str] = "aime"
    own: ClassVar[str] = "own:aime"
    benchmark: ClassVar[str] = "AIME"
    remedy: ClassVar[str] = "--set year=2024 for the exam"
    golden_kind: ClassVar[str] = "integer"

    def __post_init__(self) -> None:
        if self.year is None:
            return
        if not isinstance(self.year, int) or not (0 <= self.year <= 99 or 1983 <= self.year <= 2099):
            raise ValueError(f"year is {self.year!r}; expected the year of an exam, such as 2024 or 24.")
        object.__setattr__(self, "year", self.year if self.year > 99 else 2000 + self.year)
        if self.data is None:
            if self.year not in EXAMS:
                known = ", ".join(map(str, EXAMS))
                raise ValueError(f"year is {self.year}; expected one of {known}. For another give its `data` as well.")
            object.__setattr__(self, "data", EXAMS[self.year])

    def rules(self) -> str:
        return "Solve the problem of mathematics. Its answer is a whole number from 0 to 999."

    def reply_format(self) -> str:
        return r"End your reply with the answer in a box, and nothing else in it: \boxed{N}, where N is the number."

    def narrowing(self) -> Mapping[str, Any]:
        """Only problems of the year."""
        return {"year": self.year}
