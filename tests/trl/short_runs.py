"""What tests train with: settings of a run of seconds on a CPU, an adapter, and what keeps a run's rollouts."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch
from peft import LoraConfig
from transformers import TrainerCallback

from pettingllms_trl import Decision, Episode, MultiAgentGRPOConfig, MultiAgentGRPOTrainer
from pettingllms_trl.credit import at_grpo
from pettingllms_trl.records import DataRow
from pettingllms_trl.rollout import Rollout
from pettingllms_trl.trainer.collector import RolloutCollector


SHORT = {
    "per_device_train_batch_size": 8,
    "num_generations": 4,
    "max_completion_length": 8,
    "max_steps": 1,
    "learning_rate": 1e-2,  # a step is to be seen in the weights
    "gradient_checkpointing": False,  # faster; with it the teams of test_packed_logprobs.py are trained, for example
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


class KeepsDecisions:
    """A credit, AT-GRPO's, that keeps the decisions of the latest generation."""

    def __init__(self) -> None:
        self.decisions: list[Decision] = []

    def __call__(self, decisions: Sequence[Decision], /) -> Any:
        self.decisions = list(decisions)
        return at_grpo(decisions)


class KeepsRollouts:
    """Before a trainer among the bases of a class: keeps every rollout's rows, name and episodes."""

    collector: RolloutCollector

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self.rollouts: list[list[Episode]] = []
        self.rollout_rows: list[list[DataRow]] = []
        self.rollout_names: list[str] = []
        super().__init__(*args, **kwargs)
        self._play, self.collector.source = self.collector.source.play, SimpleNamespace(play=self._kept)

    def _kept(self, rows: Sequence[DataRow], *args: Any, seed: str, **kwargs: Any) -> Rollout:
        rollout = self._play(rows, *args, seed=seed, **kwargs)
        self.rollout_rows.append(list(rows))
        self.rollout_names.append(seed.partition("/")[2])
        self.rollouts.append(rollout.episodes)
        return rollout


class KeepsBatches:
    """Before a trainer among the bases of a class: keeps the batch of every forward pass of the loss."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self.batches: list[dict[str, Any]] = []
        super().__init__(*args, **kwargs)

    def compute_loss(self, model: Any, inputs: Any, *args: Any, **kwargs: Any) -> Any:
        self.batches.append(inputs)
        return super().compute_loss(model, inputs, *args, **kwargs)


class KeepsGradients(TrainerCallback):
    """Keeps every parameter's gradient before each optimizer step, in `steps`."""

    def __init__(self) -> None:
        self.steps: list[dict[str, torch.Tensor]] = []

    def on_pre_optimizer_step(self, *args: Any, model: Any, **kwargs: Any) -> None:
        self.steps.append({n: p.grad.clone() for n, p in model.named_parameters() if p.grad is not None})


def around_generation(trainer: MultiAgentGRPOTrainer, given: Callable[[Any, Callable[[], Any]], Any]) -> None:
    """Let a function of the prompts' ids, and of a call that samples, answer in the place of `generate`."""
    generate = trainer._generate_single_turn
    trainer._generate_single_turn = lambda prompts, *rest: given(  # type: ignore[method-assign]
        prompts, lambda: generate(prompts, *rest)
    )


class AllRows(MultiAgentGRPOTrainer):
    """Ours, of which also the sequences that cannot move a weight go through the model, so that they are logged."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        keep_all_rows(self)


def keep_all_rows(trainer: MultiAgentGRPOTrainer) -> None:
    """Train on every sequence, also on those that cannot move a weight, where a test counts them."""
    trainer.builder.rows_without_gradient = lambda *_: frozenset()  # type: ignore[method-assign]
