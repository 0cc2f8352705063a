"""Adapters other than LoRA on layers: they train, or are refused in words when the trainer is created."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from datasets import Dataset
from peft import LoraConfig, PrefixTuningConfig, PromptTuningConfig

from pettingllms_trl import MultiAgentGRPOTrainer
from short_runs import settings
from third_party import Relay


LORA = {"r": 4, "target_modules": "all-linear", "task_type": "CAUSAL_LM"}
VIRTUAL = {"num_virtual_tokens": 3, "task_type": "CAUSAL_LM"}


def team(model: str, path: Path, config: Any, policies: str, **options: Any) -> MultiAgentGRPOTrainer:
    rows = Dataset.from_dict({"seed": range(2)})
    return MultiAgentGRPOTrainer(model, Relay, settings(path, **options), rows, policies=policies, peft_config=config)


@pytest.mark.parametrize(
    ("config", "policies", "said"),
    [
        (PromptTuningConfig(**VIRTUAL), "lora", "peft_config is a PromptTuningConfig with adapters by policy"),
        (PrefixTuningConfig(**VIRTUAL), "lora", "peft_config is a PrefixTuningConfig with adapters by policy"),
        (LoraConfig(**LORA, trainable_token_indices=[5]), "lora", "leave trainable_token_indices out"),
        (LoraConfig(**LORA, trainable_token_indices=[5]), "shared", "leave trainable_token_indices out"),
    ],
    ids=["prompts", "prefixes", "tokens of each", "tokens"],
)
def test_what_cannot_be_trained_is_refused_at_creation(
    config: Any, policies: str, said: str, model_path: str, tmp_path: Path
) -> None:
    with pytest.raises(ValueError, match=said):
        team(model_path, tmp_path, config, policies)


@pytest.mark.filterwarnings("ignore:shared_prefix=True")  # such rows are not packed
@pytest.mark.filterwarnings("ignore:Position ids are not supported")  # PEFT's
@pytest.mark.parametrize("kind", [PromptTuningConfig, PrefixTuningConfig])
def test_learnt_tokens_are_trained_by_one_policy(kind: Any, model_path: str, tmp_path: Path) -> None:
    trainer = team(model_path, tmp_path, kind(**VIRTUAL), "shared")
    before = [p.detach().clone() for p in trainer.model.parameters() if p.requires_grad]
    trainer.train()
    after = [p for p in trainer.model.parameters() if p.requires_grad]
    assert any((old != new).any() for old, new in zip(before, after, strict=True))
