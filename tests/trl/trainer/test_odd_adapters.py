"""Adapters other than LoRA on layers: they train, or are refused in words when the trainer is created."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from datasets import Dataset
from peft import LoraConfig, PrefixTuningConfig, PromptTuningConfig, get_peft_model
from transformers import AutoModelForCausalLM, DeepseekV4Config, FalconConfig, Llama4TextConfig, PhimoeConfig

from pettingllms_trl import MultiAgentGRPOTrainer
from pettingllms_trl.byte_tokenizers import byte_tokenizer
from pettingllms_trl.policies.adapters import acting_as, check_layers, scores
from short_runs import settings
from third_party import Relay


LORA = {"r": 4, "target_modules": "all-linear", "task_type": "CAUSAL_LM"}
VIRTUAL = {"num_virtual_tokens": 3, "task_type": "CAUSAL_LM"}


def team(
    model: Any, path: Path, config: Any, policies: str, tokenizer: Any = None, **options: Any
) -> MultiAgentGRPOTrainer:
    rows = Dataset.from_dict({"seed": range(2)})
    return MultiAgentGRPOTrainer(
        model, Relay, settings(path, **options), rows, None, tokenizer, policies=policies, peft_config=config
    )


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


@pytest.mark.parametrize("is_given", [True, False])
def test_learnt_tokens_have_no_reference(is_given: bool, model_path: str, tmp_path: Path) -> None:
    model, config = AutoModelForCausalLM.from_pretrained(model_path), PromptTuningConfig(**VIRTUAL)
    with pytest.raises(ValueError, match=r"beta is set, and the adapter is a PromptTuningConfig, .* or set beta=0"):
        team(
            get_peft_model(model, config) if is_given else model,
            tmp_path,
            None if is_given else config,
            "shared",
            beta=0.1,
        )


@pytest.mark.filterwarnings("ignore:shared_prefix=True")  # such rows are not packed
@pytest.mark.filterwarnings("ignore:Position ids are not supported")  # PEFT's
@pytest.mark.parametrize("kind", [PromptTuningConfig, PrefixTuningConfig])
def test_learnt_tokens_are_trained_by_one_policy(kind: Any, model_path: str, tmp_path: Path) -> None:
    trainer = team(model_path, tmp_path, kind(**VIRTUAL), "shared")
    before = [p.detach().clone() for p in trainer.model.parameters() if p.requires_grad]
    trainer.train()
    after = [p for p in trainer.model.parameters() if p.requires_grad]
    assert any((old != new).any() for old, new in zip(before, after, strict=True))


HEADS = {"num_hidden_layers": 2, "num_attention_heads": 4, "vocab_size": 300}
NARROW = {**HEADS, "hidden_size": 32, "intermediate_size": 64, "num_key_value_heads": 2, "num_local_experts": 2}
LLAMA = Llama4TextConfig(**NARROW, intermediate_size_mlp=64, head_dim=8)


@pytest.mark.parametrize("policies", ["lora", "shared"])
def test_an_adapter_on_a_router_is_refused_with_the_layers_to_leave_out(policies: str, tmp_path: Path) -> None:
    model = AutoModelForCausalLM.from_config(LLAMA)
    with pytest.raises(ValueError, match=r"on router of a Llama4ForCausalLM.*exclude_modules=\['router'\]"):
        team(model, tmp_path, LoraConfig(**LORA), policies, byte_tokenizer())


@pytest.mark.parametrize(
    ("config", "others"),
    [
        (PhimoeConfig(**NARROW), ["router"]),
        (FalconConfig(**HEADS, hidden_size=32), []),  # of a class of its own, which multiplies by one matrix
        pytest.param(DeepseekV4Config(**HEADS, hidden_size=64), ["o_a_proj"], marks=pytest.mark.slow),  # several
    ],
    ids=lambda value: getattr(value, "model_type", None),
)
def test_layers_that_are_not_of_one_matrix_are_found_and_without_them_adapters_read(
    config: Any, others: list[str]
) -> None:
    def read(**options: Any) -> None:
        model = get_peft_model(AutoModelForCausalLM.from_config(config), LoraConfig(**LORA, **options))

        def base(**inputs: Any) -> Any:
            with acting_as(model, None, ["default"]):
                return model(**inputs)

        check_layers(model, lambda: scores(base, 300, torch.device("cpu")))
        scores(model, 300, torch.device("cpu"))

    if others:
        with pytest.raises(ValueError, match=rf"on {others[0]} of a "):
            read()
    read(**({"exclude_modules": others} if others else {}))
