"""Trains tiny teams for a step each, evaluates and saves or pushes them: `team_to_hub.py FOLDER`.

The first is only saved; then the program says so, and waits for a line before it pushes the others.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from datasets import Dataset

from pettingllms_envs import plan_path_v0
from pettingllms_trl import MultiAgentGRPOConfig, MultiAgentGRPOTrainer
from pettingllms_trl.testing import byte_tokenizer, save_tiny_model


def make_env() -> Any:
    return plan_path_v0.env(size=5, num_turns=2)


def trained(folder: Path, model: str, layout: str) -> MultiAgentGRPOTrainer:
    args = MultiAgentGRPOConfig(
        str(folder),
        per_device_train_batch_size=8,
        num_generations=4,
        max_completion_length=4,
        max_steps=1,
        save_strategy="no",
        report_to="none",
        use_cpu=True,
        bf16=False,
        hub_model_id=f"me/{folder.name}",
        hub_token="hf_fake",  # of the Hub on this machine
    )
    rows = Dataset.from_dict({"seed": range(8)})
    trainer = MultiAgentGRPOTrainer(model, make_env, args, rows, rows.select(range(5)), policies=layout)
    trainer.train()
    trainer.evaluate()
    return trainer


def main(folder: Path) -> None:
    model = save_tiny_model(folder / "base", byte_tokenizer())
    shared = trained(folder / "shared", model, "shared")
    shared.save_model(str(folder / "saved"))
    print("saved", flush=True)
    sys.stdin.readline()
    shared.push_to_hub()
    trained(folder / "team", model, "lora").push_to_hub()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
