"""A run of M x N designs, killed in the middle of executions, goes on to the weights of one never killed."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

import pytest

from designed_runs import designed, roomy_model
from mortal import exit_status, go_on
from pettingllms_trl.checkpoints.atomic import newest
from short_runs import around_generation


STEPS = 10
LEVELS = {"L1": "shared", "L2": "lora", "L3": "full"}

pytestmark = pytest.mark.slow


def live(model: str, path: Path, policies: str, kill_at: int) -> None:
    """Train from the newest checkpoint; the `kill_at`-th call that samples, if not 0, kills the process."""
    trainer, calls = designed(model, path, steps=STEPS, policies=policies), 0

    def sample_or_die(prompts: Any, sample: Any) -> Any:
        nonlocal calls
        calls += 1
        if calls == kill_at:
            os.kill(os.getpid(), signal.SIGKILL)
        return sample()

    around_generation(trainer, sample_or_die)
    go_on(trainer, path)


def weights(path: Path, step: int) -> dict[str, bytes]:
    folder = path / f"checkpoint-{step}"
    return {str(file.relative_to(folder)): file.read_bytes() for file in folder.rglob("*.safetensors")}


@pytest.mark.parametrize("level", LEVELS)
def test_a_designed_run_killed_among_executions_ends_with_the_weights_of_one_never_killed(
    level: str, tmp_path: Path
) -> None:
    model, whole, killed = roomy_model(tmp_path / "model"), tmp_path / "whole", tmp_path / "killed"
    assert exit_status(live, model, whole, LEVELS[level], 0) == 0
    assert [exit_status(live, model, killed, LEVELS[level], at) for at in (8, 15)] == [-signal.SIGKILL] * 2
    assert 0 < int(newest(killed).name.removeprefix("checkpoint-")) < STEPS
    assert exit_status(live, model, killed, LEVELS[level], 0) == 0
    assert weights(killed, STEPS) == weights(whole, STEPS)
    assert len(weights(whole, STEPS)) == (1 if level == "L1" else 2)
    assert weights(whole, STEPS) != weights(whole, STEPS - 1)
