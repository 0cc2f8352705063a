"""With one agent, one turn and K siblings the trainer *is* TRL's GRPOTrainer: same losses, gradients and weights."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from datasets import Dataset
from peft import LoraConfig
from transformers import TrainerCallback
from trl import GRPOConfig, GRPOTrainer

from pettingllms_trl import MultiAgentGRPOConfig, MultiAgentGRPOTrainer
from strangers import OneShot, letters


STEPS = 5


class Gradients(TrainerCallback):
    """Keeps every parameter's gradient before each optimizer step."""

    def __init__(self) -> None:
        self.steps: list[dict[str, torch.Tensor]] = []

    def on_pre_optimizer_step(self, args: Any, state: Any, control: Any, model: Any, **kwargs: Any) -> None:
        self.steps.append({n: p.grad.clone() for n, p in model.named_parameters() if p.grad is not None})


def arguments(path: Path, **options: Any) -> dict[str, Any]:
    return {
        "output_dir": str(path),
        "per_device_train_batch_size": 8,
        "gradient_accumulation_steps": 2,
        "num_generations": 4,
        "max_completion_length": 8,
        "max_steps": STEPS,
        "learning_rate": 1e-2,
        "logging_steps": 1,
        "save_strategy": "no",
        "report_to": "none",
        "disable_tqdm": True,
        "use_cpu": True,
        "seed": 7,
        **options,
    }


def trained(trainer: GRPOTrainer, gradients: Gradients) -> tuple[list[dict[str, float]], list[Any], dict[str, Any]]:
    trainer.train()
    weights = {name: p.detach().clone() for name, p in trainer.model.named_parameters()}
    return trainer.state.log_history, gradients.steps, weights


def reward(completions: list[list[dict[str, str]]], **_: Any) -> list[float]:
    return [letters(completion[0]["content"]) for completion in completions]


SEEDS = list(range(24))
CASES = [
    *[{"loss_type": loss, "beta": beta} for loss in ("grpo", "dapo", "dr_grpo", "bnpo") for beta in (0.0, 0.1)],
    {"loss_type": "dapo", "scale_rewards": "batch"},
    {"loss_type": "grpo", "scale_rewards": "none", "mask_truncated_completions": True},
    {"loss_type": "dapo", "steps_per_generation": 4, "num_iterations": 2},
    {"loss_type": "dapo", "entropy_coef": 0.01},
]


class Unpaid(OneShot):
    """The same question, but no reward of its own: the reward function gives it, as in TRL."""

    def step(self, action: str | None) -> None:
        super().step(action)
        self.rewards = {"solver_0": 0.0}


def as_of_one(tensors: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """Named as in a model that is no part of a `TeamModel`, and whose adapter has PEFT's usual name."""
    return {
        name.removeprefix("models.solver.").replace(".solver.", ".default."): tensor
        for name, tensor in tensors.items()
    }


@pytest.mark.parametrize("options", CASES, ids=lambda options: "-".join(f"{k}={v}" for k, v in options.items()))
@pytest.mark.parametrize(
    ("peft", "rewards", "policies"),
    [
        (False, None, "shared"),
        (True, None, "shared"),
        (True, reward, "shared"),
        (True, None, "lora"),
        (False, None, "full"),
    ],
    ids=["shared", "shared-peft", "shared-peft-reward_funcs", "lora", "full"],
)
def test_losses_gradients_and_weights_equal_plain_trl(
    options: dict[str, Any], peft: bool, rewards: Any, policies: str, model_path: str, tmp_path: Path
) -> None:
    peft_config = LoraConfig(r=4, target_modules="all-linear", task_type="CAUSAL_LM") if peft else None
    theirs_seen, ours_seen = Gradients(), Gradients()
    theirs = trained(
        GRPOTrainer(
            model=model_path,
            reward_funcs=reward,
            args=GRPOConfig(**arguments(tmp_path, **options)),
            train_dataset=Dataset.from_dict(
                {"prompt": [[{"role": "user", "content": f"Question {seed}?"}] for seed in SEEDS]}
            ),
            callbacks=[theirs_seen],
            peft_config=peft_config,
        ),
        theirs_seen,
    )
    ours = trained(
        MultiAgentGRPOTrainer(
            model=model_path,
            env=OneShot if rewards is None else Unpaid,
            reward_funcs=rewards,
            policies=policies,
            args=MultiAgentGRPOConfig(**arguments(tmp_path, **options)),
            train_dataset=Dataset.from_dict({"seed": SEEDS}),
            callbacks=[ours_seen],
            peft_config=peft_config,
        ),
        ours_seen,
    )
    for one, other in zip(theirs[0], ours[0], strict=True):
        for key in ("loss", "grad_norm", "reward", "reward_std", "entropy", "kl", "completions/mean_length"):
            assert one.get(key) == other.get(key), key
    assert len(ours[1]) == STEPS
    for one, other in zip(theirs[1], map(as_of_one, ours[1]), strict=True):
        assert one.keys() == other.keys()
        assert all(torch.equal(one[name], other[name]) for name in one)
    assert any(float(gradient.abs().max()) > 0 for step in ours[1] for gradient in step.values())
    weights = as_of_one(ours[2])
    assert theirs[2].keys() == weights.keys()
    assert all(torch.equal(theirs[2][name], weights[name]) for name in theirs[2])
