"""Between `trainer.train()` and the first optimizer step lies little but that step."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

from datasets import Dataset
from transformers import TrainerCallback

from pettingllms_trl import MultiAgentGRPOTrainer
from short_runs import settings
from third_party import Relay


class FirstStep(TrainerCallback):
    """CPU seconds until it is done."""

    def __init__(self) -> None:
        self.began = time.process_time()
        self.seconds: list[float] = []

    def on_step_end(self, *args: Any, **kwargs: Any) -> None:
        self.seconds.append(time.process_time() - self.began)


def test_the_first_optimizer_step_is_taken_well_within_twenty_seconds(model_path: str, tmp_path: Path) -> None:
    first = FirstStep()
    rows = Dataset.from_dict({"seed": range(8)})
    trainer = MultiAgentGRPOTrainer(model_path, Relay, settings(tmp_path), rows, policies="lora", callbacks=[first])
    first.began = time.process_time()
    trainer.train()
    assert len(first.seconds) == 1
    assert first.seconds[0] < 20  # 1.2 with the quickstart's model where this was written
