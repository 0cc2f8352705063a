"""OlympiadBench: problems of mathematical olympiads, whose answers are numbers, expressions, tuples or intervals.

The task, its rewards and outcome: `rules`. Some problems have several answers, of which
none may be missing, a unit, which may be left out, or a numeric error that is allowed.
Data: the olympiad-like problems of this package, in three splits, or with `data` OlympiadBench itself
(`Hothan/OlympiadBench@<commit>`, OE_TO_maths_en_COMP), which has the split `test` only.
Source: He et al. 2024, arXiv:2402.14008.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from pettingllms_envs.environments.mathematics.rules import Answering


@dataclass(frozen=True, slots=True)
class OlympiadBench(Answering):
    """The task; its settings are those of `Answering`."""

    name: ClassVar[str] = "olympiad_bench"
    own: ClassVar[str] = "own:olympiad_bench"
    benchmark: ClassVar[str] = "OlympiadBench"
    remedy: ClassVar[str] = "pettingllms data prepare Hothan/OlympiadBench and --set data=Hothan__OlympiadBench for it"
