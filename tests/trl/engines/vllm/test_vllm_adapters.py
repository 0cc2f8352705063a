"""Which adapters vLLM serves."""

from __future__ import annotations

from typing import Any

import pytest
from peft import LoraConfig, PromptTuningConfig, TaskType

from pettingllms_trl.engines.vllm.adapters import check_adapters


@pytest.mark.parametrize(
    ("options", "rank"),
    [
        ([{"r": 1}], 1),
        ([{"r": 4}], 8),
        ([{"r": 8}], 8),
        ([{"r": 4}, {"r": 33}], 64),
        ([{"r": 4, "rank_pattern": {"q_proj": 20}}], 32),
        ([{"r": 512, "use_rslora": True, "init_lora_weights": "gaussian"}], 512),
    ],
)
def test_the_rank_is_the_least_that_vllm_offers_and_no_adapter_exceeds(
    options: list[dict[str, Any]], rank: int
) -> None:
    assert check_adapters({f"role{i}": LoraConfig(**o) for i, o in enumerate(options)}) == rank


@pytest.mark.parametrize(
    ("options", "what"),
    [
        ({"use_dora": True}, "use_dora=True"),
        ({"modules_to_save": ["lm_head"]}, r"modules_to_save=\['lm_head'\]"),
        ({"bias": "lora_only"}, "bias='lora_only'"),
        ({"lora_bias": True}, "lora_bias=True"),
        ({"target_parameters": ["experts.gate"]}, r"target_parameters=\['experts.gate'\]"),
        ({"trainable_token_indices": [3]}, r"trainable_token_indices=\[3\]"),
        ({"init_lora_weights": "pissa"}, "init_lora_weights='pissa'"),
        ({"target_modules": ["q_proj", "lm_head"]}, r"target_modules=\['lm_head', 'q_proj'\]"),
    ],
)
def test_what_vllm_would_leave_out_is_refused_at_the_door(options: dict[str, Any], what: str) -> None:
    with pytest.raises(ValueError, match=rf"adapter of policy 'closer' has {what}, which vLLM does not serve"):
        check_adapters({"opener": LoraConfig(), "closer": LoraConfig(**options)})


def test_adapters_that_are_not_lora_or_too_wide_are_refused() -> None:
    with pytest.raises(ValueError, match="policy 'opener' is trained by a PromptTuningConfig, but vLLM serves LoRA"):
        check_adapters({"opener": PromptTuningConfig(task_type=TaskType.CAUSAL_LM, num_virtual_tokens=2)})
    with pytest.raises(ValueError, match=r"an adapter has rank 513, but vLLM serves 512 at most. Choose a smaller r"):
        check_adapters({"opener": LoraConfig(r=513)})
