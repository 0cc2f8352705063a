"""What a training prints, and the file with all that it logs."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from pettingllms_trl.console import TrainingTable, clock, functions_of, heading, line, roles_of
from pettingllms_trl.records import NEVER


AGENTS = ["librarian_0", "librarian_1", "answerer_0"]
LOG = {
    "outcome/success": 0.125,
    "agent/librarian_0/return": 0.5,
    "agent/librarian_1/return": -0.1,
    "agent/answerer_0/return": 1.0,
    "agent/librarian_0/frac_reward_zero_std": 1.0,
    "agent/answerer_0/frac_reward_zero_std": 0.5,
    "completions/mean_length": 38.25,
    "loss": 0.1,
}


def test_a_line_has_the_mean_of_each_role_and_leaves_out_what_was_not_logged() -> None:
    assert heading(roles_of(AGENTS)) == "  step  success librarian  answerer  tokens   flat   tok/s      left"
    assert line(LOG, AGENTS, step=7, speed=1234.5, left=7265) == (
        "     7    12.5%      0.20      1.00    38.2    75%   1,234   2:01:05"
    )
    assert line({"eval_outcome/success": 1.0}, AGENTS, step=7, prefix="eval_") == (
        "     7   100.0%" + 20 * " " + 15 * " " + 18 * " " + "  eval"
    )
    # Of several data sets each has a line of its own, all with the same keys.
    assert line({"eval_outcome/success": 0.5}, AGENTS, step=7, prefix="eval_near_") == (
        "     7    50.0%" + 20 * " " + 15 * " " + 18 * " " + "  eval_near"
    )


def test_reward_functions_have_columns_after_those_of_the_roles() -> None:
    logs = {"agent/solver_0/return": 0.5, "rewards/exact/mean": 0.25, "rewards/a_long_name/mean": 1.0,
            "rewards/exact/std": 0.1, "rewards/environment/mean": 7.0}  # fmt: skip
    names = functions_of(logs)
    assert names == ["exact", "a_long_name"]
    assert (
        heading(["solver"], names) == "  step  success    solver     exact a_long_n…  tokens   flat   tok/s      left"
    )
    assert line(logs, ["solver_0"], step=3, functions=names) == "     3" + 9 * " " + "      0.50      0.25      1.00"
    assert functions_of({"eval_rewards/exact/mean": 0.5}) == ["exact"]


@pytest.mark.parametrize(("seconds", "shown"), [(0, "0:00"), (65.4, "1:05"), (3600, "1:00:00"), (90061, "25:01:01")])
def test_a_clock_has_hours_only_where_there_are_some(seconds: float, shown: str) -> None:
    assert clock(seconds) == shown


class Run:
    """A training whose clock and tokens are set by hand."""

    def __init__(self, folder: Path, *, most_tokens: int | None = None) -> None:
        self.now, self.tokens = 100.0, 0
        self.args = SimpleNamespace(output_dir=str(folder), disable_tqdm=True)
        self.state = SimpleNamespace(global_step=0, max_steps=4, is_world_process_zero=True)
        self.table = TrainingTable(
            AGENTS,
            lambda: self.tokens,
            done=lambda: self.tokens / most_tokens if most_tokens else 0.0,
            now=lambda: self.now,
        )

    def begin(self, step: int = 0) -> None:
        self.state.global_step = step
        self.table.on_train_begin(self.args, self.state, None)

    def log(self, step: int, logs: dict[str, Any]) -> None:
        self.state.global_step = step
        self.table.on_log(self.args, self.state, None, logs=logs)


def test_speed_and_time_left_are_those_of_what_was_done(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = Run(tmp_path)
    run.begin()
    run.now, run.tokens = 110.0, 1000
    run.log(1, LOG)
    run.now = 130.0
    run.log(1, {"eval_outcome/success": 0.5, "eval_runtime": 20.0})
    run.now, run.tokens = 140.0, 1500
    run.log(2, LOG)
    run.log(4, {"train_runtime": 61.0})
    _, one, evaluation, two, end = capsys.readouterr().out.splitlines()
    assert one.endswith("  75%     100      0:30")  # 1000 tokens in 10 s; 3 of 4 steps to go
    assert evaluation.endswith("  eval")
    assert two.endswith("  75%      50      0:40")  # 500 tokens in the 10 s after the evaluation; half of 40 s
    assert end == f"4 steps in 1:01, 1,500 tokens sampled. All that was logged: {tmp_path}/metrics.jsonl"


def test_a_budget_of_tokens_that_ends_first_decides_the_time_left(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = Run(tmp_path, most_tokens=2000)
    run.begin()
    run.now, run.tokens = 110.0, 1000
    run.log(1, LOG)
    assert capsys.readouterr().out.splitlines()[-1].endswith("      0:10")


def steps(folder: Path) -> list[int]:
    return [json.loads(each)["step"] for each in (folder / "metrics.jsonl").read_text().splitlines()]


def test_the_file_has_every_log_in_full_and_a_resumed_training_goes_on_with_it(tmp_path: Path) -> None:
    run = Run(tmp_path)
    run.log(0, {"eval_outcome/success": 0.0, "eval_runtime": 1.0})  # of the untrained team
    run.begin()
    for step in (1, 2, 3):
        run.log(step, LOG)
    assert steps(tmp_path) == [0, 1, 2, 3]
    assert json.loads((tmp_path / "metrics.jsonl").read_text().splitlines()[1]) == {"step": 1, **LOG}
    resumed = Run(tmp_path)
    resumed.begin(step=2)
    resumed.log(3, LOG)
    assert steps(tmp_path) == [0, 1, 2, 3]
    another = Run(tmp_path)
    another.begin()
    another.log(1, LOG)
    assert steps(tmp_path) == [1]


def test_what_no_user_can_change_is_not_warned_of_whatever_part_is_used_first() -> None:
    code = """
import warnings, pettingllms_trl
for name in ("is_gradient_checkpointing", "gradient_checkpointing_enable", "something_else"):
    warnings.warn(f"`{name}` is deprecated and will be removed in v6.", FutureWarning)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert [line.partition(" is ")[0] for line in done.stderr.splitlines() if "Warning" in line] == [
        "<string>:4: FutureWarning: `something_else`"
    ]


@pytest.mark.parametrize(("max_steps", "total"), [(4, 4), (NEVER, None)])
def test_a_progress_bar_has_no_end_where_something_else_than_steps_ends_the_training(
    max_steps: int, total: int | None, tmp_path: Path
) -> None:
    run = Run(tmp_path)
    run.args.disable_tqdm, run.state.max_steps = False, max_steps
    run.begin()
    assert run.table.training_bar.total == total
    run.table.on_train_end(run.args, run.state, None)
