"""Between `trainer.train()` and the first optimizer step lies little but that step."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

from datasets import Dataset
from transformers import TrainerCallback

from pettingllms_trl import MultiAgentGRPOConfig, MultiAgentGRPOTrainer
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
    args = MultiAgentGRPOConfig(
        str(tmp_path),
        use_cpu=True,
        bf16=False,
        report_to="none",
        per_device_train_batch_size=8,
        num_generations=4,
        max_completion_length=8,
        max_steps=1,
        save_strategy="no",
    )
    trainer = MultiAgentGRPOTrainer(
        model_path, Relay, args, Dataset.from_dict({"seed": range(8)}), policies="lora", callbacks=[first]
    )
    first.began = time.process_time()
    trainer.train()
    assert len(first.seconds) == 1
    assert first.seconds[0] < 20  # 1.2 with the quickstart's model where this was written
