"""The same training run twice, by TRL's `GRPOTrainer` and by ours reduced to one agent, and what is equal in both."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from datasets import Dataset
from trl import GRPOConfig, GRPOTrainer

from pettingllms_trl import MultiAgentGRPOConfig, MultiAgentGRPOTrainer
from short_runs import SHORT, KeepsGradients, adapter
from third_party import OneShot, letters


STEPS = 3
SEEDS = list(range(24))
END = 1
"""Id of the token that ends a completion. Sampled more often than a random model would, so that lengths differ."""
OVER_PASSES = ("entropy", "clip_ratio", "vespo/", "sampling/", "rows_updated", "tokens_read", "time", "per_second")
"""Of what is logged: of the rows that go through the model, or of the clock."""


@dataclass(frozen=True)
class Run:
    """What a run left behind: its log, every gradient of every optimizer step, its weights."""

    log: list[dict[str, float]]
    gradients: list[dict[str, torch.Tensor]]
    weights: dict[str, torch.Tensor]


class Unpaid(OneShot):
    """The same question, but no reward of its own: the reward function gives it, as in TRL."""

    def observe(self, agent: str) -> Any:
        return {"text": super().observe(agent)}  # of a dict, reward functions are given messages

    def step(self, action: str | None) -> None:
        super().step(action)
        self.rewards = {"solver_0": 0.0}


def reward(completions: list[list[dict[str, str]]], **_: Any) -> list[float]:
    return [letters(completion[0]["content"]) for completion in completions]


def arguments(path: Path, **options: Any) -> dict[str, Any]:
    return {
        "output_dir": str(path),
        **SHORT,
        "gradient_accumulation_steps": 2,
        "generation_kwargs": {"sequence_bias": [[[END], 3.0]]},
        "max_steps": STEPS,
        "bf16": None,  # TRL's default; gradient checkpointing, which makes steps slower, is a case of its own
        "seed": 7,
        **options,
    }


def asked(seed: int) -> list[dict[str, str]]:
    """What the environment asks in the row of a seed, as TRL is given it."""
    return [{"role": "user", "content": f"Question {seed}?"}]


def their_trainer(model: Any, path: Path, options: dict[str, Any], *, peft: bool = False, **more: Any) -> GRPOTrainer:
    return GRPOTrainer(
        model=model,
        reward_funcs=more.pop("reward_funcs", reward),
        args=GRPOConfig(**arguments(path, **options)),
        train_dataset=more.pop("train_dataset", None)
        or Dataset.from_dict({"prompt": [asked(seed) for seed in SEEDS]}),
        peft_config=adapter() if peft else None,
        **more,
    )


def our_trainer(
    model: Any, path: Path, options: dict[str, Any], *, peft: bool = False, **more: Any
) -> MultiAgentGRPOTrainer:
    return MultiAgentGRPOTrainer(
        model=model,
        env=more.pop("env", OneShot if more.get("reward_funcs") is None else Unpaid),
        args=MultiAgentGRPOConfig(**{"shared_prefix": False, **arguments(path, **options)}),
        train_dataset=more.pop("train_dataset", None) or Dataset.from_dict({"seed": SEEDS}),
        peft_config=adapter() if peft else None,
        **more,
    )


def run(trainer: GRPOTrainer) -> Run:
    gradients = KeepsGradients()
    trainer.add_callback(gradients)
    trainer.train()
    weights = {name: p.detach().clone() for name, p in trainer.model.named_parameters()}
    return Run(trainer.state.log_history, gradients.steps, weights)


def as_of_one(tensors: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """Named as in a model that is no part of a `MultiPolicyModel`, and whose adapter has PEFT's usual name."""
    return {
        name.removeprefix("models.solver.").replace(".solver.", ".default."): tensor
        for name, tensor in tensors.items()
    }


def assert_equal(theirs: Run, ours: Run) -> None:
    """Every number that TRL logs, every gradient and every weight, to the last bit.

    Left out are times, and the name of the reward, which TRL takes from its function and we from the environment.
    """
    assert len(theirs.log) == len(ours.log)
    for one, other in zip(theirs.log, ours.log, strict=True):
        for key in one:
            if "time" in key or "per_second" in key or key.startswith("rewards/"):
                continue
            assert same(one[key], other.get(key)), (key, one[key], other.get(key))
    assert len(theirs.gradients) == len(ours.gradients) > 0
    for one, other in zip(theirs.gradients, map(as_of_one, ours.gradients), strict=True):
        assert one.keys() == other.keys()
        assert [name for name in one if not torch.equal(one[name], other[name])] == []
    assert any(float(gradient.abs().max()) > 0 for step in ours.gradients for gradient in step.values())
    weights = as_of_one(ours.weights)
    assert theirs.weights.keys() == weights.keys()
    assert [name for name in weights if not torch.equal(theirs.weights[name], weights[name])] == []


def same(one: Any, other: Any) -> bool:
    both_nan = isinstance(one, float) and isinstance(other, float) and math.isnan(one) and math.isnan(other)
    return one == other or both_nan
