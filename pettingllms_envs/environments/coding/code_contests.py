"""CodeContests: problems of Codeforces, AtCoder and others, with many tests each.

The programs read and print. The data set has wrong programs as well, which a tester's cases are tried on.

Rules, state, value and outcome: `rules`. Roles and rewards: `coder_tester` and `lone_coder` (for
`single` and `self_refine`).
Data: problems of this package in the same columns, or with `data` the set itself, `deepmind/code_contests@<revision>`.
Source: Li et al. 2022, arXiv:2203.07814.
"""

from pettingllms_envs.environments.coding.rules import Coding


class CodeContests(Coding):
    """The task; its settings are those of `Coding`."""

    __slots__ = ()
    name, own, benchmark = "code_contests", "own:code_contests", "CodeContests"
    remedy = "pettingllms data prepare deepmind/code_contests and --set data=deepmind__code_contests for it"
