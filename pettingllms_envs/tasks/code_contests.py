"""CodeContests: problems of Codeforces, AtCoder and others, with many tests each.

The programs read and print. The data set has wrong programs as well, which a tester's cases are tried on.

Rules, state, value and outcome: `pettingllms_envs.tasks.coding`. Roles and rewards: `pettingllms_envs.workflows`, the
files `coder_tester` and `lone_coder` (for `single` and `self_refine`).
Data: problems of this package in the same columns, or with `data` the set itself, `deepmind/code_contests@<revision>`.
Source: Li et al. 2022, arXiv:2203.07814.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from pettingllms_envs.tasks.coding import Coding


@dataclass(frozen=True, slots=True)
class CodeContests(Coding):
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

    name: ClassVar[str] = "code_contests"
    own: ClassVar[str] = "own:code_contests"
