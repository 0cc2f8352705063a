"""APPS: 10,000 problems of Codeforces, LeetCode, Codewars, AtCoder and Kattis, in three levels.

The programs read and print, or define a function; levels 1 to 3 are introductory, interview and competition. APPS has
golden solutions for most problems and no wrong ones.

Rules, state, value and outcome: `pettingllms_envs.tasks.coding`. Roles and rewards: `pettingllms_envs.workflows`, the
files `coder_tester` and `lone_coder` (for `single` and `self_refine`).
Data: problems of this package in the same columns, or with `data` the set itself, `codeparrot/apps@<revision>`.
Source: Hendrycks et al. 2021, arXiv:2105.09938.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from pettingllms_envs.tasks.coding import Coding


@dataclass(frozen=True, slots=True)
class Apps(Coding):
    """The task; its state is a `CodingState`, its move a program.

    Args:
        data: Where the problems are from: None for the rows that come with the package, a local file, a folder that
            `pettingllms data prepare` wrote, or an id of the Hub; see `pettingllms_envs.datasets.load`.
        layout: The columns of the rows; None to tell them by the name of the data set.
        include_unjudged: Whether to play problems, too, that comparing outputs cannot judge: those with several right
            answers, and those that ask for interaction.
        train_tests: On how many golden tests a program is graded in the split `train`, a fixed sample of each
            problem's; None for all of them. The other splits always use all.
        cpu: Seconds of CPU time for a test; None for the problem's own limit, at least 2 and at most 10.
    """

    name: ClassVar[str] = "apps"
    own: ClassVar[str] = "own:apps"
