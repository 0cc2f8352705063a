"""Generations of which hardly a token is trained on: TRL clamps its divisors to 1, and no step may depend on that."""

from __future__ import annotations

import ast
import inspect
import re
import textwrap
from pathlib import Path
from typing import Any

import pytest
import torch
from datasets import Dataset
from transformers import AutoModelForCausalLM
from trl import GRPOTrainer

from pettingllms_trl import MultiAgentGRPOTrainer
from pettingllms_trl.testing import byte_tokenizer, save_tiny_model
from pettingllms_trl.update.micro_batches import OVER_GENERATION, scaled_for
from short_runs import KeepsBatches, around_generation, settings
from third_party import OneShot


K, LONGEST = 10, 6
EOS, ADVANTAGE = byte_tokenizer().eos_token_id, 1 - 1 / K
# What one optimizer step makes of the only trained token, in units of its advantage times the gradient of its
# log-probability: over its 1 token, over 10 rows, or over 10 rows of 6 tokens. CISPO's ratio is capped at 0.2.
WEIGHTS = {
    "dapo": 1,
    "bnpo": 1,
    "vespo": 1,
    "cispo": 0.2,
    "grpo": 1 / K,
    "sapo": 1 / K,
    "luspo": 1 / K,
    "dr_grpo": 1 / (K * LONGEST),
}


class Keeping(KeepsBatches, MultiAgentGRPOTrainer):
    pass


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> str:
    return save_tiny_model(tmp_path_factory.mktemp("few"), byte_tokenizer(), initializer_range=0.15)


def step(model: str, path: Path, *, budget: int, **options: Any) -> tuple[torch.Tensor, list[int], Keeping]:
    """What a step of SGD moves when one of ten completions ends, at once; the prompt, and the trainer."""
    options = {"per_device_train_batch_size": K, "learning_rate": 1.0, "scale_rewards": "none", **options}
    trainer = Keeping(
        model,
        OneShot,
        settings(
            path,
            num_generations=K,
            max_completion_length=LONGEST,
            mask_truncated_completions=True,
            max_tokens_per_microbatch=budget,
            optim="sgd",
            lr_scheduler_type="constant",
            max_grad_norm=0.0,
            **options,
        ),
        Dataset.from_dict({"seed": [0]}),
        reward_funcs=lambda completion_ids, **_: [float(len(ids) == 1) for ids in completion_ids],
    )
    asked: list[list[int]] = []

    def one_ends(prompts: Any, _: Any) -> Any:
        asked.extend(prompts)
        return [[EOS], *([65 + row] * LONGEST for row in range(1, K))], None

    around_generation(trainer, one_ends)
    before = torch.cat([p.detach().flatten().clone() for p in trainer.model.parameters()])
    trainer.train()
    return torch.cat([p.detach().flatten() for p in trainer.model.parameters()]) - before, list(asked[0]), trainer


# One of each weight; the other losses of its weight are slow.
@pytest.mark.parametrize(
    "loss_type",
    [
        pytest.param(loss, marks=() if loss in ("vespo", "cispo", "luspo", "dr_grpo") else pytest.mark.slow)
        for loss in WEIGHTS
    ],
)
def test_the_only_token_that_is_trained_on_weighs_the_same_in_ten_passes(
    loss_type: str, model: str, tmp_path: Path
) -> None:
    moved, prompt, trainer = step(model, tmp_path, budget=1, loss_type=loss_type)
    assert len(trainer.batches) == K
    fresh = AutoModelForCausalLM.from_pretrained(model)
    logprob = torch.log_softmax(fresh(torch.tensor([prompt])).logits[0, -1], dim=-1)[EOS]
    logprob.backward()
    gradient = torch.cat([p.grad.flatten() for p in fresh.parameters() if p.grad is not None])
    torch.testing.assert_close(moved, WEIGHTS[loss_type] * ADVANTAGE * gradient, rtol=1e-3, atol=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize(
    "options",
    [
        {"entropy_coef": 0.5},  # a mean over a pass, whatever the loss
        {"use_adaptive_entropy": True, "entropy_coef": 0.5},
        {"beta": 0.5, "max_steps": 2},  # its gradient is 0 where nothing has moved
        {"gradient_accumulation_steps": 2, "per_device_train_batch_size": K // 2},  # the token is in one of two
        {"num_iterations": 2, "max_steps": 2},  # ratios other than 1
        {"steps_per_generation": 2, "per_device_train_batch_size": K // 2, "max_steps": 2},  # a step without tokens
        {"shared_prefix": False},
        {"importance_sampling_level": "sequence"},
    ],
    ids=lambda options: ", ".join(options),
)
@pytest.mark.parametrize("loss_type", ["dapo", "vespo", "cispo"])
def test_no_term_of_the_loss_depends_on_how_passes_are_cut(
    loss_type: str, options: dict[str, Any], model: str, tmp_path: Path
) -> None:
    whole, _, _ = step(model, tmp_path / "whole", budget=10_000, loss_type=loss_type, **options)
    parts, _, trainer = step(model, tmp_path / "parts", budget=1, loss_type=loss_type, **options)
    assert len(trainer.batches) >= K
    torch.testing.assert_close(parts, whole, rtol=1e-3, atol=1e-6)


def test_a_router_weighs_as_its_rows_do_whatever_the_loss_divides_by() -> None:
    batch = {"loss_scale": 0.25, "entropy_scale": 0.5}  # a quarter of the rows, an eighth of the tokens
    assert scaled_for("dapo", batch) == {"loss_scale": 1.0, "entropy_scale": 0.125, "router_scale": 0.25}
    assert scaled_for("grpo", batch) == {"loss_scale": 0.25, "entropy_scale": 0.5, "router_scale": 1.0}


def test_every_loss_of_trl_is_tried_and_those_over_a_generation_are_known() -> None:
    tree = ast.parse(textwrap.dedent(inspect.getsource(GRPOTrainer._compute_loss)))
    tests = [node for node in ast.walk(tree) if isinstance(node, ast.If)]
    of_loss = [node for node in tests if "self.loss_type" in ast.unparse(node.test)]
    named = {ast.unparse(node.test): {*re.findall(r"'(\w+)'", ast.unparse(node.test))} for node in of_loss}
    assert {name for names in named.values() for name in names} == {*WEIGHTS}
    over_generation = [node for node in of_loss if "num_items_in_batch" in "".join(map(ast.unparse, node.body))]
    assert {name for node in over_generation for name in named[ast.unparse(node.test)]} == OVER_GENERATION
