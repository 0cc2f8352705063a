"""APPS: 10,000 problems of Codeforces, LeetCode, Codewars, AtCoder and Kattis, in three levels.

The programs read and print, or define a function; levels 1 to 3 are introductory, interview and competition. APPS has
golden solutions for most problems and no wrong ones.

Rules, state, value and outcome: `rules`. Roles and rewards: `coder_tester` and `lone_coder` (for
`single` and `self_refine`).
Data: problems of this package in the same columns, or with `data` the set itself, `codeparrot/apps@<revision>`.
Source: Hendrycks et al. 2021, arXiv:2105.09938.
"""

from pettingllms_envs.environments.coding.rules import Coding


class Apps(Coding):
    """The task; its settings are those of `Coding`."""

    __slots__ = ()
    name, own, benchmark = "apps", "own:apps", "APPS"
    remedy = "pettingllms data prepare codeparrot/apps and --set data=codeparrot__apps for it"
