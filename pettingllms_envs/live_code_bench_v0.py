"""Write a program for a problem of LiveCodeBench (Jain et al., arXiv:2403.07974), as a coder and a tester or alone.

The programs read and print, or complete a class; levels 1 to 3 are easy, medium and hard. It is a benchmark: all its
problems are in the split `test`. It has no golden solutions; what a tester's cases are judged by instead is said where
the rewards are, and the oracle is a table of the tests' outputs, an upper bound that there is nothing to learn from.

Roles and rewards: `pettingllms_envs.workflows.coder_tester` (the default), and for a coder alone
`pettingllms_envs.workflows.lone_coder` (`single`, `self_refine`). Settings: `pettingllms_envs.tasks.coding.Coding` and
`pettingllms_envs.assembly.assemble`. The problems are this package's own, in the columns of LiveCodeBench; the data
set itself is `data="livecodebench/code_generation_lite"` with a `revision`.
"""

from dataclasses import dataclass
from typing import ClassVar

from pettingllms_envs.assembly import assemble
from pettingllms_envs.tasks.coding import Coding
from pettingllms_envs.workflows.coder_tester import CoderTester
from pettingllms_envs.workflows.lone_coder import SelfRefine, SingleCoder


@dataclass(frozen=True, slots=True)
class LiveCodeBench(Coding):
    """The problems of LiveCodeBench; see `pettingllms_envs.tasks.coding.Coding`."""

    data: str = "own:live_code_bench"

    name: ClassVar[str] = "live_code_bench"
    splits: ClassVar[tuple[str, ...]] = ("test",)


raw_env, env, parallel_env = assemble(LiveCodeBench, __name__, (CoderTester, SingleCoder, SelfRefine))
