"""Write a program for a problem of APPS (Hendrycks et al., arXiv:2105.09938), as a coder and a tester or alone.

The programs read and print, or define a function; levels 1 to 3 are introductory, interview and competition.

Roles and rewards: `pettingllms_envs.workflows.coder_tester` (the default), and for a coder alone
`pettingllms_envs.workflows.lone_coder` (`single`, `self_refine`). Settings: `pettingllms_envs.tasks.coding.Coding` and
`pettingllms_envs.assembly.assemble`. The problems are this package's own, in the columns of APPS; the data set
itself is `data="codeparrot/apps"` with a `revision`.
"""

from dataclasses import dataclass
from typing import ClassVar

from pettingllms_envs.assembly import assemble
from pettingllms_envs.tasks.coding import Coding
from pettingllms_envs.workflows.coder_tester import CoderTester
from pettingllms_envs.workflows.lone_coder import SelfRefine, SingleCoder


@dataclass(frozen=True, slots=True)
class Apps(Coding):
    """The problems of APPS; see `pettingllms_envs.tasks.coding.Coding`."""

    data: str = "own:apps"

    name: ClassVar[str] = "apps"


raw_env, env, parallel_env = assemble(Apps, __name__, (CoderTester, SingleCoder, SelfRefine))
