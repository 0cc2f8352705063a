"""Write a program for a problem of CodeContests (Li et al., arXiv:2203.07814), as a coder and a tester or alone.

The programs read and print. The data set has wrong programs as well, which a tester's cases are tried on.

Roles and rewards: `pettingllms_envs.workflows.coder_tester` (the default), and for a coder alone
`pettingllms_envs.workflows.lone_coder` (`single`, `self_refine`). Settings: `pettingllms_envs.tasks.coding.Coding` and
`pettingllms_envs.assembly.assemble`. The problems are this package's own, in the columns of CodeContests; the data set
itself is `data="deepmind/code_contests"` with a `revision`.
"""

from dataclasses import dataclass
from typing import ClassVar

from pettingllms_envs.assembly import assemble
from pettingllms_envs.tasks.coding import Coding
from pettingllms_envs.workflows.coder_tester import CoderTester
from pettingllms_envs.workflows.lone_coder import SelfRefine, SingleCoder


@dataclass(frozen=True, slots=True)
class CodeContests(Coding):
    """The problems of CodeContests; see `pettingllms_envs.tasks.coding.Coding`."""

    data: str = "own:code_contests"

    name: ClassVar[str] = "code_contests"


raw_env, env, parallel_env = assemble(CodeContests, __name__, (CoderTester, SingleCoder, SelfRefine))
