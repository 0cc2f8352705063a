"""A signal that a training takes ends the tests all the same (`conftest.py`)."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from transformers import TrainerCallback

from launches import HERE, ROOT
from mortal import mortal


class Sends(TrainerCallback):
    """Sends a signal at the end of a step, or after the last, when the run no longer looks for one."""

    def __init__(self, number: signal.Signals, *, late: bool) -> None:
        self.number, self.late = number, late

    def on_step_end(self, *args: Any, **kwargs: Any) -> None:
        if not self.late:
            signal.raise_signal(self.number)

    def on_train_end(self, *args: Any, **kwargs: Any) -> None:
        if self.late:
            signal.raise_signal(self.number)


@pytest.fixture
def heard() -> Any:
    """The signals that have come to what handles them outside of `train()`."""
    numbers: list[int] = []
    before = {
        number: signal.signal(number, lambda number, _: numbers.append(number))
        for number in (signal.SIGTERM, signal.SIGINT)
    }
    yield numbers
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.mark.parametrize("late", [pytest.param(False, marks=pytest.mark.slow), True])
@pytest.mark.parametrize("number", [pytest.param(signal.SIGTERM, marks=pytest.mark.slow), signal.SIGINT])
def test_a_signal_is_sent_again_once_train_has_saved_and_returned(
    number: signal.Signals, late: bool, heard: list[int], model_path: str, tmp_path: Path
) -> None:
    trainer = mortal(model_path, tmp_path, steps=2, callbacks=[Sends(number, late=late)])
    trainer.train()
    assert heard == [number]
    assert trainer.state.global_step == (2 if late else 1)
    assert (tmp_path / "checkpoint-1" / "manifest.json").is_file()


@pytest.mark.usefixtures("signals_on_purpose")
def test_a_test_that_sends_one_on_purpose_goes_on(heard: list[int], model_path: str, tmp_path: Path) -> None:
    trainer = mortal(model_path, tmp_path, steps=2, callbacks=[Sends(signal.SIGTERM, late=False)])
    trainer.train()
    assert (trainer.stopped_by, heard) == ("SIGTERM", [])


@pytest.mark.slow
def test_a_sigterm_in_a_training_ends_the_run_of_tests(tmp_path: Path) -> None:
    run = subprocess.run(
        [
            *(sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"),
            f"--basetemp={tmp_path / 'inner'}",
            str(HERE / "interrupted_tests.py"),
        ],
        cwd=ROOT,
        env={**os.environ, "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert run.returncode == -signal.SIGTERM, run.stdout + run.stderr
    found = {path.name for path in (tmp_path / "inner").rglob("*")}
    assert "checkpoint-1" in found  # it saved first
    assert not found & {"checkpoint-2", "went on", "began"}
