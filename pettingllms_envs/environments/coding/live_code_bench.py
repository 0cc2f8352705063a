"""LiveCodeBench: problems of contests that were held after most models were trained. A benchmark.

The programs read and print, or complete a class; levels 1 to 3 are easy, medium and hard. It has no golden solutions:
`coder_tester` says what a tester's cases are judged by instead, and the oracle is a table
of the tests' outputs, an upper bound that there is nothing to learn from.

Rules, state, value and outcome: `rules`. Roles and rewards: `coder_tester` and `lone_coder` (for
`single` and `self_refine`).
Data: problems of this package in the same columns, or with `data` the set itself,
`livecodebench/code_generation_lite@<revision>`, which has the split `test` only.
Source: Jain et al. 2024, arXiv:2403.07974.
"""

from pettingllms_envs.environments.coding.rules import Coding


class LiveCodeBench(Coding):
    """The task; its settings are those of `Coding`."""

    __slots__ = ()
    name, own, benchmark = "live_code_bench", "own:live_code_bench", "LiveCodeBench"
    remedy = (
        "pettingllms data prepare livecodebench/code_generation_lite and "
        "--set data=livecodebench__code_generation_lite for it"
    )
