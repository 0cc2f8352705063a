"""What an older version of the package wrote: its policies load, its checkpoints are refused with what to do."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from datasets import Dataset
from peft import LoraConfig, PeftModel
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM, AutoTokenizer

from pettingllms_trl import MultiAgentGRPOTrainer
from short_runs import settings
from third_party import Relay


OLDER = Path(__file__).parents[1] / "data" / "older_layout"
"""A team of two adapters on the model of `model_path`: `team` by `save_model`, and its checkpoint after one step."""


def trainer(model: Any, folder: Path, **options: Any) -> MultiAgentGRPOTrainer:
    small = {"per_device_train_batch_size": 4, "num_generations": 2, "max_completion_length": 4}
    args = settings(folder, **small, max_steps=2)
    return MultiAgentGRPOTrainer(model, Relay, args, Dataset.from_dict({"seed": range(4)}), **options)


def test_a_checkpoint_of_an_older_layout_is_refused_with_what_to_do(model_path: str, tmp_path: Path) -> None:
    adapter = LoraConfig(r=1, target_modules=["q_proj"], task_type="CAUSAL_LM")
    run = trainer(model_path, tmp_path, policies="lora", peft_config=adapter)
    with pytest.raises(ValueError, match=r"in an older layout \(format 2, expected 3\)\. Resume with"):
        run.train(resume_from_checkpoint=str(OLDER / "checkpoint-1"))


@pytest.mark.parametrize("saved", ["team", "checkpoint-1"])
def test_policies_that_an_older_version_saved_are_loaded(model_path: str, tmp_path: Path, saved: str) -> None:
    base = AutoModelForCausalLM.from_pretrained(model_path, dtype=torch.float32)
    model = PeftModel.from_pretrained(base, OLDER / saved / "opener", adapter_name="opener", is_trainable=True)
    model.load_adapter(OLDER / saved / "closer", adapter_name="closer", is_trainable=True)
    tokenizer = AutoTokenizer.from_pretrained(model_path)
    run = trainer(model, tmp_path, policies="lora", processing_class=tokenizer)
    loaded = dict(run.model.named_parameters())
    for role in ("opener", "closer"):
        tensors = load_file(OLDER / saved / role / "adapter_model.safetensors")
        assert len(tensors) == 4  # A and B of two layers
        for name, tensor in tensors.items():
            layer, matrix = name.removesuffix(".weight").rsplit(".", 1)
            assert torch.equal(loaded[f"{layer}.{matrix}.{role}.weight"], tensor)
