"""Whether prompts may be packed and keys kept is looked up in a model's structure, whatever its weights are."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from peft import (
    LoraConfig,
    PeftConfig,
    PrefixTuningConfig,
    PromptEncoderConfig,
    PromptTuningConfig,
    XLoraConfig,
    get_peft_model,
)
from torch import nn
from transformers import CONFIG_MAPPING, MODEL_FOR_CAUSAL_LM_MAPPING, PretrainedConfig

from packed_models import MODELS
from pettingllms_trl.structure.properties import OPTIONS, check_switch, keeps_all_tokens, rope_switch, why_not_packed
from pettingllms_trl.update.packing_checks import compare


PLAIN = SimpleNamespace(**dict.fromkeys(OPTIONS))
"""A configuration without options that depend on the row."""


def unbuilt(kind: str, **fields: Any) -> Any:
    """A model of a type's default configuration, without layers."""
    config = CONFIG_MAPPING[kind](**fields)
    model_class = MODEL_FOR_CAUSAL_LM_MAPPING[type(config)]
    model = model_class.__new__(model_class)
    nn.Module.__init__(model)
    model.config = config
    return model


def adapted(config: PeftConfig) -> Any:
    torch.manual_seed(0)
    model = MODELS["qwen3"]()
    model.config.use_cache = False  # as X-LoRA wants it
    return get_peft_model(model, config)


STATES: dict[str, dict[str, Any]] = {
    "falcon_h1": {},  # Mamba 2 beside attention
    "lfm2": {"layer_types": ["conv", "full_attention"], "num_hidden_layers": 2},  # short convolutions
    "qwen3_next": {},  # gated delta rule
    "minimax": {},  # lightning attention
    "recurrent_gemma": {},  # gated linear recurrence
    "zaya": {},  # convolution of keys and values
    "rwkv": {},  # no attention, and no cache of transformers
}


@pytest.mark.parametrize("kind", STATES)
def test_what_carries_a_state_from_token_to_token_is_neither_packed_nor_kept(kind: str) -> None:
    model = unbuilt(kind, **STATES[kind])
    assert "carries a state" in str(why_not_packed(model, PLAIN, aux_loss_enabled=False))
    assert not keeps_all_tokens(model)


@pytest.mark.parametrize("kind", ["deepseek_v32", "glm_moe_dsa", "axk2"])
def test_what_attends_by_an_index_of_the_row_is_neither_packed_nor_kept(kind: str) -> None:
    model = unbuilt(kind)
    assert "by an index" in str(why_not_packed(model, PLAIN, aux_loss_enabled=False))
    assert not keeps_all_tokens(model)


@pytest.mark.parametrize(
    ("kind", "is_kept"), [("llama", True), ("qwen3_moe", True), ("gemma3_text", False), ("mistral", False)]
)
def test_windows_are_packed_and_their_keys_are_not_kept(kind: str, is_kept: bool) -> None:
    model = unbuilt(kind)
    assert why_not_packed(model, PLAIN, aux_loss_enabled=False) is None
    assert keeps_all_tokens(model) == is_kept


def test_adapters_that_depend_on_the_row_are_neither_packed_nor_kept(tmp_path: Path) -> None:
    lora = {"r": 2, "target_modules": ["q_proj"], "task_type": "CAUSAL_LM"}
    adapted(LoraConfig(**lora)).save_pretrained(tmp_path)
    virtual = {"num_virtual_tokens": 2, "task_type": "CAUSAL_LM"}
    expected: dict[str, PeftConfig] = {
        "invocation tokens": LoraConfig(**lora, alora_invocation_tokens=[5]),
        "adds tokens": PromptTuningConfig(**virtual),
        "adds tokens ": PrefixTuningConfig(**virtual),
        "adds tokens  ": PromptEncoderConfig(**virtual, encoder_hidden_size=8),
        "whole row": XLoraConfig(task_type="CAUSAL_LM", hidden_size=32, adapters={"one": str(tmp_path)}),
    }
    for why, config in expected.items():
        model = adapted(config)
        assert why.strip() in str(why_not_packed(model, PLAIN, aux_loss_enabled=False)), why
        assert not keeps_all_tokens(model)
    plain = adapted(LoraConfig(**lora))
    assert why_not_packed(plain, PLAIN, aux_loss_enabled=False) is None
    assert keeps_all_tokens(plain)


@pytest.mark.parametrize("option", [*OPTIONS])
def test_options_that_are_measured_by_row_rule_packing_out(option: str) -> None:
    model = unbuilt("llama")
    assert option in str(
        why_not_packed(model, SimpleNamespace(**{**vars(PLAIN), option: 5.0}), aux_loss_enabled=False)
    )
    assert keeps_all_tokens(model)


def sizes(width: int, layers: int, heads: int, key_heads: int, head_dim: int, vocabulary: int) -> dict[str, Any]:
    size = {"hidden_size": width, "num_hidden_layers": layers, "num_attention_heads": heads, "head_dim": head_dim}
    return {**size, "num_key_value_heads": key_heads, "vocab_size": vocabulary, "intermediate_size": 4 * width}


LLAMA3 = {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0, "rope_theta": 5e5}
PHI4 = {"rope_type": "longrope", "short_factor": [1.0] * 48, "long_factor": [1.2] * 24 + [30.0] * 24}
COMMON: dict[str, tuple[str, dict[str, Any]]] = {
    "Llama-3.1-8B": (
        "llama",
        {
            **sizes(4096, 32, 32, 8, 128, 128256),
            "rope_parameters": {**LLAMA3, "original_max_position_embeddings": 8192},
        },
    ),
    "SmolLM2-135M": ("llama", sizes(576, 30, 9, 3, 64, 49152)),
    "SmolLM3-3B": ("smollm3", sizes(2048, 36, 16, 4, 128, 128256)),
    "Qwen2.5-7B": (
        "qwen2",
        {**sizes(3584, 28, 28, 4, 128, 152064), "sliding_window": 131072, "max_window_layers": 28},
    ),
    "Qwen3-8B": ("qwen3", sizes(4096, 36, 32, 8, 128, 151936)),
    "Gemma-2-9b": ("gemma2", {**sizes(3584, 42, 16, 8, 256, 256000), "query_pre_attn_scalar": 256}),
    "Gemma-3-12b": ("gemma3_text", {**sizes(3840, 48, 16, 8, 256, 262208), "sliding_window": 1024}),
    "Mistral-7B-v0.1": ("mistral", {**sizes(4096, 32, 32, 8, 128, 32000), "sliding_window": 4096}),
    "Phi-3-mini-4k": ("phi3", {**sizes(3072, 32, 32, 32, 96, 32064), "sliding_window": 2047}),
    "Phi-4-mini": (
        "phi3",
        {
            **sizes(3072, 32, 24, 8, 128, 200064),
            "partial_rotary_factor": 0.75,
            "max_position_embeddings": 131072,
            "original_max_position_embeddings": 4096,
            "rope_parameters": {**PHI4, "rope_theta": 1e4, "original_max_position_embeddings": 4096},
            "pad_token_id": 199999,
        },
    ),
}
"""Published sizes."""


@pytest.mark.parametrize("name", COMMON)
def test_common_models_are_packed(name: str) -> None:
    kind, fields = COMMON[name]
    model = unbuilt(kind, **fields)
    assert why_not_packed(model, PLAIN, aux_loss_enabled=False) is None
    found = compare(model, [[2, 9, 40, 41, 42, 43, 44, 3, 4, 5]] * 2 + [[2, 8, 3]], [[20, 21, 22], [30], [21, 33]])
    assert (found.head, found.packed) == (None, None)
    assert rope_switch(model.config) == (4096 if name == "Phi-4-mini" else None)


def test_a_routers_loss_rules_packing_out() -> None:
    assert "router" in str(why_not_packed(unbuilt("mixtral"), PLAIN, aux_loss_enabled=True))


LONG = {"rope_type": "longrope", "short_factor": [1.0], "original_max_position_embeddings": 64}


@pytest.mark.parametrize(
    ("rope", "expected"),
    [
        ({"rope_type": "default"}, None),
        ({"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 64}, None),
        ({"rope_type": "llama3", "factor": 4.0, "original_max_position_embeddings": 64}, None),
        ({"rope_type": "linear", "factor": 4.0}, None),
        ({"rope_type": "dynamic", "factor": 4.0}, 512),
        ({"type": "dynamic", "factor": 4.0}, 512),  # of older configurations
        ({**LONG, "long_factor": [4.0]}, 64),
        ({**LONG, "long_factor": [1.0]}, None),  # the same at every length
        ({**LONG, "long_factor": [1.0], "short_mscale": 1.0, "long_mscale": 1.2}, 64),  # scaled otherwise (PhiMoE)
        ({"full": {**LONG, "long_factor": [4.0]}, "window": {"rope_type": "default"}}, 64),
        ({"full": {"rope_type": "dynamic", "factor": 4.0}, "window": {**LONG, "long_factor": [4.0]}}, 64),
    ],
)
def test_rotary_embeddings_change_at_a_length_of_their_own(rope: dict[str, Any], expected: int | None) -> None:
    assert rope_switch(SimpleNamespace(max_position_embeddings=512, rope_parameters=rope)) == expected


def test_rows_beyond_that_length_are_refused_with_what_to_change() -> None:
    rope = {"rope_type": "dynamic", "factor": 2.0, "rope_theta": 1e4}
    model = unbuilt("llama", max_position_embeddings=32, rope_parameters=rope)
    check_switch(model, "solver", 32, "a decision")
    with pytest.raises(ValueError, match=r"a decision makes rows of 33 tokens, .* 'solver' .* beyond 32.*yarn"):
        check_switch(model, "solver", 33, "a decision")


def test_that_is_the_length_at_which_transformers_changes_them() -> None:
    rope = {"rope_type": "longrope", "short_factor": [1.0] * 4, "long_factor": [1.0, 2.0, 4.0, 8.0], "factor": 8.0}
    rope |= {"original_max_position_embeddings": 20, "rope_theta": 1e4}
    fields = {"vocab_size": 60, "hidden_size": 32, "intermediate_size": 32, "num_hidden_layers": 2, "head_dim": 8}
    dynamic = {"rope_type": "dynamic", "factor": 4.0, "rope_theta": 1e4}
    ids = torch.arange(1, 22)[None]
    for own, most in ((rope, 160), (dynamic, 20)):
        torch.manual_seed(0)
        config: PretrainedConfig = CONFIG_MAPPING["llama"](
            **fields, num_attention_heads=4, max_position_embeddings=most, rope_parameters=own, initializer_range=0.3
        )
        model = MODEL_FOR_CAUSAL_LM_MAPPING[type(config)](config).eval()
        assert rope_switch(config) == 20
        with torch.no_grad():
            short, at, beyond = (model(input_ids=ids[:, :n]).logits[0, :10] for n in (10, 20, 21))
        torch.testing.assert_close(at, short, rtol=1e-4, atol=1e-4)
        assert float((beyond - short).abs().max()) > 1e-2
