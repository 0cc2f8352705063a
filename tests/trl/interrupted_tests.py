"""Two tests, which `test_signals_in_tests.py` runs by themselves: the first is sent SIGTERM in its training."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

from transformers import TrainerCallback

from mortal import mortal


class Interrupted(TrainerCallback):
    def on_step_end(self, *args: Any, **kwargs: Any) -> None:
        os.kill(os.getpid(), signal.SIGTERM)


def test_that_trains(model_path: str, tmp_path: Path) -> None:
    mortal(model_path, tmp_path, steps=3, callbacks=[Interrupted()]).train()
    (tmp_path / "went on").touch()


def test_that_follows(tmp_path: Path) -> None:
    (tmp_path / "began").touch()
