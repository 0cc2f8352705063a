"""What tests train with: settings of a run of seconds on a CPU, an adapter, a trainer that keeps what it played."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from peft import LoraConfig

from pettingllms_trl import Episode, MultiAgentGRPOConfig, MultiAgentGRPOTrainer


SHORT = {
    "per_device_train_batch_size": 8,
    "num_generations": 4,
    "max_completion_length": 8,
    "max_steps": 1,
    "learning_rate": 1e-2,  # a step is to be seen in the weights
    "logging_steps": 1,
    "save_strategy": "no",
    "report_to": "none",
    "disable_tqdm": True,
    "use_cpu": True,
    "bf16": False,  # TRL would autocast, and a gradient would depend on the size of its pass
}


def settings(path: Path, **options: Any) -> MultiAgentGRPOConfig:
    """2 rows of 4 candidates of 8 tokens, for one step, unless the options say otherwise."""
    return MultiAgentGRPOConfig(str(path), **{**SHORT, **options})


def adapter(**options: Any) -> LoraConfig:
    """Of rank 4 on all linear layers."""
    return LoraConfig(r=4, target_modules="all-linear", task_type="CAUSAL_LM", **options)


class KeepsRollouts:
    """Before a trainer among the bases of a class: keeps the episodes of every rollout."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self.rollouts: list[list[Episode]] = []
        super().__init__(*args, **kwargs)

    def _play(self, *args: Any, **kwargs: Any) -> list[Episode]:
        self.rollouts.append(super()._play(*args, **kwargs))
        return self.rollouts[-1]


def keep_all_rows(trainer: MultiAgentGRPOTrainer) -> None:
    """Train on every sequence, also on those that cannot move a weight, where a test counts them."""
    trainer._left_out = lambda *_: frozenset()  # type: ignore[method-assign]
