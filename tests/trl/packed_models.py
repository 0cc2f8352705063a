"""Tiny models of several kinds, and the scores and gradients of rows read one by one and of a packed row."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from peft import get_peft_model
from torch import nn
from transformers import (
    Gemma3ForCausalLM,
    Gemma3TextConfig,
    GPT2Config,
    GPT2LMHeadModel,
    LlamaConfig,
    LlamaForCausalLM,
    MistralConfig,
    MistralForCausalLM,
    MixtralConfig,
    MixtralForCausalLM,
    PreTrainedModel,
    Qwen3Config,
    Qwen3ForCausalLM,
)
from trl.trainer.utils import add_fused_lm_head

from pettingllms_trl.update.packing.pack import Packed
from short_runs import adapter


PAD = 0
SHAPE: dict[str, Any] = {
    "vocab_size": 97,
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 8,
    "max_position_embeddings": 128,
    "pad_token_id": PAD,
    "bos_token_id": None,
    "eos_token_id": 1,
    "initializer_range": 0.3,
}
WINDOWS = ["sliding_attention", "full_attention", "sliding_attention"]
MODELS: dict[str, Callable[[], PreTrainedModel]] = {
    "qwen3": lambda: Qwen3ForCausalLM(Qwen3Config(**SHAPE)),
    "qwen3-tied": lambda: Qwen3ForCausalLM(Qwen3Config(**SHAPE, tie_word_embeddings=True)),
    "qwen3-window": lambda: Qwen3ForCausalLM(
        Qwen3Config(**SHAPE, use_sliding_window=True, sliding_window=6, max_window_layers=1)
    ),
    "llama-mha": lambda: LlamaForCausalLM(LlamaConfig(**{**SHAPE, "num_key_value_heads": 4})),
    "mistral-window": lambda: MistralForCausalLM(MistralConfig(**SHAPE, sliding_window=5)),
    "gemma3-windows": lambda: Gemma3ForCausalLM(
        Gemma3TextConfig(**SHAPE, sliding_window=6, layer_types=WINDOWS, query_pre_attn_scalar=3)
    ),
    "gpt2": lambda: GPT2LMHeadModel(
        GPT2Config(
            vocab_size=97, n_embd=32, n_layer=3, n_head=4, initializer_range=0.3, bos_token_id=1, eos_token_id=1,
            attn_pdrop=0.0, embd_pdrop=0.0, resid_pdrop=0.0,
        )
    ),
    "mixtral": lambda: MixtralForCausalLM(MixtralConfig(**SHAPE, num_local_experts=4)),
}  # fmt: skip


def made(name: str, *, lora: bool = False, checkpointing: str = "") -> nn.Module:
    torch.manual_seed(0)
    model = MODELS[name]()
    model.generation_config.validate = lambda *_, **__: None  # type: ignore[method-assign]
    add_fused_lm_head(model, temperature=0.7, outputs=("log_probs", "entropy"))
    model.config.use_cache = False
    if checkpointing:
        model.gradient_checkpointing_enable({"use_reentrant": checkpointing == "reentrant"})
        model.enable_input_require_grads()
    if not lora:
        return model.train()
    adapted = get_peft_model(model, adapter())
    for parameter in adapted.parameters():
        if parameter.requires_grad:  # B of LoRA begins at zero, and A then has no gradient
            nn.init.normal_(parameter, std=0.2)
    return adapted.train()


def one_by_one(model: nn.Module, ids: torch.Tensor, mask: torch.Tensor, width: int) -> tuple[torch.Tensor, ...]:
    labels = ids.masked_fill(mask == 0, -100)
    labels[:, :-width] = -100
    found = model(input_ids=ids, attention_mask=mask, labels=labels, fused_lm_head=True)
    return found.log_probs[:, -width:], found.entropy[:, -width:]


def together(model: nn.Module, packed: Packed) -> tuple[torch.Tensor, ...]:
    found = model(**packed.inputs)
    return packed.of_completions(found.log_probs), packed.of_completions(found.entropy)


def gradients(model: nn.Module, scores: tuple[torch.Tensor, ...]) -> dict[str, torch.Tensor]:
    """Of a sum in which every token of every row has a weight of its own."""
    log_probs, entropies = scores
    weights = torch.randn(log_probs.shape, generator=torch.Generator().manual_seed(2))
    model.zero_grad()
    (log_probs * weights + entropies * weights.flip(0)).sum().backward()
    return {name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None}


def difference(found: Mapping[str, torch.Tensor], expected: Mapping[str, torch.Tensor]) -> float:
    """The largest of all parameters' relative differences; of those with next to no gradient, of the whole's."""
    assert found.keys() == expected.keys()
    whole = torch.stack([g.norm() for g in expected.values()]).norm()
    if whole == 0:  # a step whose groups have one reward each
        return max(float(g.norm()) for g in found.values())
    return max(float((found[n] - g).norm() / g.norm().clamp(min=1e-2 * whole)) for n, g in expected.items())
