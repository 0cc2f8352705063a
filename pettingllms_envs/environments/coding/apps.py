"""APPS: 10,000 problems of Codeforces, LeetCode, Codewars, AtCoder and Kattis, in three levels.

The programs read and print, or define a function; levels 1 to 3 are introductory, interview and competition. APPS has
golden solutions for most problems and no wrong ones.

Rules, state, value and outcome: `rules`. Roles and rewards: `coder_tester` and `lone_coder` (for
`single` and `self_refine`).
Data: problems of this package in the same columns, or with `data` the set itself, `codeparrot/apps@<revision>`.
Source: Hendrycks et al. 2021, arXiv:2105.09938.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from pettingllms_envs.environments.coding.rules import Coding


@dataclass(frozen=True, slots=True)
class Apps(Coding):
    """The task; its settings are those of `Coding`."""

    name: ClassVar[str] = "apps"
    own: ClassVar[str] = "own:apps"
    benchmark: ClassVar[str] = "APPS"
    remedy: ClassVar[str] = "pettingllms data prepare codeparrot/apps and --set data=codeparrot__apps for it"
