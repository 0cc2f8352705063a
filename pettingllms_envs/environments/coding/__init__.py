"""Programs. Read `rules` and `text`, then `apps`, `code_contests` and `live_code_bench`, the same with other problems.

Then the workflows `coder_tester` and `lone_coder`, and the readers of data sets: `apps_rows` (with `examples`, tests
that a statement shows), `code_contests_rows`, `live_code_bench_rows` (with `blobs`, packed tests), `plain_code_rows`.
"""

from pettingllms_envs.teams import Later


WORKFLOWS = (
    Later("coder_tester", "pettingllms_envs.environments.coding.coder_tester", "CoderTester"),
    Later("single", "pettingllms_envs.environments.coding.lone_coder", "SingleCoder"),
    Later("self_refine", "pettingllms_envs.environments.coding.lone_coder", "SelfRefine"),
)
"""The workflows of all three, the default one first."""
