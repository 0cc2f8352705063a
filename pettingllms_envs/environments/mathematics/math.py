"""Math: any data set with a problem and its answer in each row.

The task, its rewards and outcome: `rules`.
Data: the problems of this package, from primary school to competitions, in three splits; or with `data` such sets as
Polaris (`POLARIS-Project/Polaris-Dataset-53K`), DAPO (`BytedTsinghua-SIA/DAPO-Math-17k`), DeepScaleR and MATH. A set
that has a training split only is divided by digests of the statements, so that no problem is in two splits.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from pettingllms_envs.environments.mathematics.rules import Answering


@dataclass(frozen=True, slots=True)
class Math(Answering):
    """The task; its settings are those of `Answering`."""

    name: ClassVar[str] = "math"
    own: ClassVar[str] = "own:polaris"
    benchmark: ClassVar[str] = "MATH or Polaris"
    remedy: ClassVar[str] = (
        "pettingllms data prepare HuggingFaceH4/MATH-500 and --set data=HuggingFaceH4__MATH-500 for MATH-500"
    )
