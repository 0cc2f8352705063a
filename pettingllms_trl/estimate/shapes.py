"""The numbers of a model that memory follows from, counted on the meta device: no weights are loaded."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from peft import PeftConfig, get_peft_model
from transformers import AutoModelForCausalLM, AutoModelForImageTextToText, PretrainedConfig


EXPERTS = ("num_experts", "num_local_experts", "n_routed_experts")
"""Names by which configurations say how many experts a layer has."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """A model's counts.

    Args:
        parameters: All of them; tied ones once.
        head: Those of the matrix from hidden states to logits, whether it is tied to the embeddings or not.
        adapter: Trainable parameters of one adapter; 0 if no adapter was asked for.
        kv_values: Numbers that the KV cache holds for a token: a key and a value in every layer.
        context: Longest sequence that the model was made for.
    """

    parameters: int
    head: int
    adapter: int
    hidden: int
    vocabulary: int
    kv_values: int
    context: int


def auto_class(config: PretrainedConfig) -> Any:
    """The class of transformers that makes a model of a configuration, as `create_model_from_path` of TRL does."""
    return AutoModelForImageTextToText if hasattr(config, "vision_config") else AutoModelForCausalLM


def shape_of(config: PretrainedConfig, peft_config: PeftConfig | None = None) -> Shape:
    """Count a model's parameters, and those of an adapter on it.

    Args:
        config: Of a causal language model, with or without vision, as `AutoConfig` loads it.

    Raises:
        ValueError: The model has experts or a compressed KV cache, for which these counts would be wrong.
    """
    text = config.get_text_config()
    experts = next((name for name in EXPERTS if getattr(text, name, None)), None)
    if experts is not None or hasattr(text, "kv_lora_rank"):
        what = f"{experts}={getattr(text, experts)}" if experts else f"kv_lora_rank={text.kv_lora_rank}"
        raise ValueError(
            f"the model {config.name_or_path or config.model_type!r} has {what}; expected a dense decoder with a "
            "plain KV cache, since the speeds and the cache of others follow other rules. Leave --estimate out."
        )
    heads = text.num_attention_heads
    head_dim = getattr(text, "head_dim", None) or text.hidden_size // heads
    kv_heads = getattr(text, "num_key_value_heads", None) or heads
    with torch.device("meta"):
        model = auto_class(config).from_config(config)
        parameters = model.num_parameters()
        head = model.get_output_embeddings().weight.numel()
        adapter = 0
        if peft_config is not None:
            adapter = get_peft_model(model, peft_config).get_nb_trainable_parameters()[0]
    return Shape(
        parameters=parameters,
        head=head,
        adapter=adapter,
        hidden=text.hidden_size,
        vocabulary=text.vocab_size,
        kv_values=text.num_hidden_layers * 2 * kv_heads * head_dim,
        context=text.max_position_embeddings,
    )
