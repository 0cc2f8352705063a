"""Miniatures: tiny instances of a model's own class and configuration, on which its structure is tried in float32.

Whether a token's logits depend on where in a row it stands does not depend on width, depth or vocabulary. A miniature
keeps each kind of layer, the types of attention, RoPE and adapter, and has weights with which each of them matters.
Windows and other lengths from which on attention changes are so short that a few dozen tokens go beyond them.
"""

from __future__ import annotations

import copy
import math
import re
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from huggingface_hub.errors import StrictDataclassError
from peft import PeftConfig, PeftModel, get_peft_model
from torch import nn
from transformers.integrations import deepspeed
from transformers.pytorch_utils import Conv1D
from transformers.utils import logging

from pettingllms_trl.structure.properties import base_of, rope_switch


DEPTH = re.compile(r"num_hidden_layers|n_layers?|num_layers|num_blocks|(num_)?(de|en)coder_layers")
TOKENS = re.compile(r"\w*token_(id|ids|index)")
KEY_HEADS = re.compile(r"(\w*_)?(key_value|kv)_heads")
HEADS, HEAD_DIM = 4, 16
MOST: Sequence[tuple[str, int]] = (
    ("qk_head_dim", 2 * HEAD_DIM),  # of those with RoPE and those without
    (r"(\w*_)?(head_?dim|head_size|d_head|dim_head|kv_channels|rotary_dim)", HEAD_DIM),
    (r"(\w*_)?(heads?|num_query_groups)", HEADS),
    (r"\w*(topk_group|n_group|expert_groups?)|\w*shared_experts", 1),
    (r"\w*(experts_per_tok(en)?|moe_topk|moe_k)|index_block_size|index_topk_blocks", 2),
    (r"(\w*_)?experts|zero_expert_num", 4),
    (r"\w*(intermediate_size(_mlp)?|ffn_dim|ffn_hidden_size|dff|dim_ff|n_inner|feed_forward_size)", 64),
    (r"hidden_size|n_embd|d_model|dim|emb_dim|(\w*_)?embedding_(dim|size)|word_embed_proj_dim", HEADS * HEAD_DIM),
    (r"\w*_rank|hidden_size_per_layer_input", 16),
    (r"first_k_dense_replace|num_dense_layers|moe_layer_start_index", 1),
    (r"(\w*_)?sliding_window(_size)?|attention_chunk_size|local_attention|(keep_)?window_size", 8),
    (r"index_topk|floor_scale|log_scaling_n_floor", 8),
)
"""Patterns of the names of sizes in configurations, and their most in a miniature. The first that matches decides."""
_COMPILED = [(re.compile(pattern), most) for pattern, most in MOST]
FAILURES = (
    *(ArithmeticError, AssertionError, AttributeError, ImportError, LookupError, RuntimeError, TypeError, ValueError),
    StrictDataclassError,
)
"""What models and configurations raise that do not take smaller sizes, or support no packed row."""
EXACT = 1e-4
"""Nats: the most that log-probabilities may differ by in float32."""


class NoMiniature(Exception):
    """No miniature of a model could be made; the cause is the error that it was raised from."""


def miniature(model: Any, ids: Sequence[int]) -> tuple[nn.Module, torch.Tensor]:
    """A tiny model with the structure of another, in evaluation mode, in float32 on the CPU. Draws no random numbers.

    Args:
        model: A causal model of transformers, or PEFT's around one. Its weights are not read.

    Returns:
        The miniature, and the numbers of these tokens in its vocabulary, (T,).

    Raises:
        NoMiniature: Its class or its adapter does not take smaller sizes.
    """
    config = base_of(model).config
    unused = ("quantization_config", "id2label", "label2id")
    fields = {name: value for name, value in config.to_dict().items() if name not in unused}
    vocabulary = {token: number for number, token in enumerate(dict.fromkeys([*_special(fields), *ids]))}
    try:
        with torch.random.fork_rng(devices=[]), torch.device("cpu"):
            small = type(config).from_dict(_Sizes(vocabulary, rope_switch(config.get_text_config())).of(fields))
            found: nn.Module = type(base_of(model))._from_config(
                small, dtype=torch.float32, attn_implementation=config._attn_implementation
            )
            if isinstance(model, PeftModel):
                found = get_peft_model(found, _whole(model.active_peft_config))
    except FAILURES as error:
        raise NoMiniature from error
    draw_weights(found)
    return found.eval(), torch.tensor([vocabulary[token] for token in ids])


def _whole(config: PeftConfig) -> PeftConfig:
    """An adapter without what names layers or tokens of its own model, or reads that model's weights."""
    own, fields = copy.deepcopy(config), dict[str, Any](layers_to_transform=None, trainable_token_indices=None)
    fields |= {"init_lora_weights": True, "rank_pattern": {}, "alpha_pattern": {}, "inference_mode": False}
    vars(own).update({n: value for n, value in {**fields, "token_indices": [0]}.items() if n in vars(own)})
    return own


def _special(fields: Mapping[Any, Any]) -> list[int]:
    """The token ids that a configuration names."""
    found: list[int] = []
    for name, value in fields.items():
        if isinstance(value, Mapping):
            found += _special(value)
        elif TOKENS.fullmatch(str(name)):
            found += [each for each in (value if isinstance(value, list) else [value]) if isinstance(each, int)]
    return found


@dataclass(frozen=True, slots=True)
class _Sizes:
    """Makes the fields of a configuration those of a miniature.

    Args:
        switch: Of the configuration's RoPE; rows longer than that are refused, so it stays as it is.
        layers: The layers that are kept, by their number, where their number is known.
        share: Of a head's size.
        heads: Of queries.
    """

    vocabulary: Mapping[int, int]
    switch: int | None
    layers: Sequence[int] = ()
    depth: int = 0
    share: float = 1.0
    heads: int = 0

    def of(self, fields: Mapping[Any, Any]) -> dict[Any, Any]:
        numbers, own = {str(name): value for name, value in fields.items() if type(value) is int}, self
        if depth := next((value for name, value in numbers.items() if DEPTH.fullmatch(name)), 0):
            names = ("num_attention_heads", "n_head", "n_heads", "num_heads")
            heads = next((numbers[name] for name in names if name in numbers), 0)
            width = next((numbers[name] for name in ("hidden_size", "n_embd", "d_model") if name in numbers), 0)
            head = numbers.get("head_dim") or (width // heads if heads else HEAD_DIM)
            share = min(1.0, HEAD_DIM / head)
            own = _Sizes(self.vocabulary, self.switch, _kept(fields, depth), depth, share, heads)
        return {name: own._value(str(name), value) for name, value in fields.items()}

    def _value(self, name: str, value: Any) -> Any:
        if isinstance(value, Mapping):
            if name == "per_layer_config":
                return {new: self.of(value[old]) for new, old in enumerate(self.layers) if old in value}
            return self.of(value)
        if isinstance(value, list):
            return self._list(name, value)
        if type(value) is not int:
            return value
        if DEPTH.fullmatch(name):
            return len(self.layers)
        if name == "num_kv_shared_layers":
            return min(value, len(self.layers) // 2)
        if TOKENS.fullmatch(name):
            return self.vocabulary.get(value, value)
        if "vocab_size" in name:
            return min(value, len(self.vocabulary))
        if name == "original_max_position_embeddings":
            return value if self.switch is not None else min(value, 16)
        if KEY_HEADS.fullmatch(name):
            return min(value, HEADS if value == self.heads else 2)
        return min(value, next((most for pattern, most in _COMPILED if pattern.fullmatch(name)), value))

    def _list(self, name: str, value: list[Any]) -> list[Any]:
        if name in ("short_factor", "long_factor"):
            return value[: max(1, round(len(value) * self.share))]
        if name == "mrope_section":
            own = [max(1, int(each * self.share)) for each in value]
            return [*own[:-1], round(sum(value) * self.share) - sum(own[:-1])]
        if TOKENS.fullmatch(name):
            return [self.vocabulary.get(each, each) for each in value]
        if self.depth and _is_by_layer(name, value, self.depth):
            return [self._value(name, value[number]) for number in self.layers]
        return value


def _is_by_layer(name: str, value: Any, depth: int) -> bool:
    """Whether a field is a list with an entry for each layer, and not one that has as many by chance."""
    return isinstance(value, list) and len(value) == depth and (depth > 8 or "layer" in name or "types" in name)


def _kept(fields: Mapping[Any, Any], depth: int) -> list[int]:
    """The first layer of each kind, and then the last of each, by the lists that have an entry for each layer."""
    lists = [value for name, value in fields.items() if _is_by_layer(str(name), value, depth)]
    kinds = [repr([each[number] for each in lists]) for number in range(depth)]
    first = {kind: number for number, kind in reversed([*enumerate(kinds)])}
    last = {kind: number for number, kind in enumerate(kinds)}
    return [*sorted(first.values()), *sorted(last.values())]


def draw_weights(model: nn.Module) -> None:
    """Fill weights with N(0, 1 / fan-in), with which every layer changes what it reads; move the others a little."""
    generator = torch.Generator().manual_seed(0)
    for module in model.modules():
        for parameter in module.parameters(recurse=False):
            noise = torch.randn(parameter.shape, generator=generator)
            if parameter.dim() < 2:
                parameter.data.add_(0.1 * noise)
            elif isinstance(module, nn.Embedding):
                parameter.data.copy_(noise)
            else:
                is_convolution = isinstance(module, nn.Conv1d | nn.Conv2d)
                fan_in = parameter.shape[0 if isinstance(module, Conv1D) else -1]
                parameter.data.copy_(noise / math.sqrt(parameter[0].numel() if is_convolution else fan_in))


@contextmanager
def quiet() -> Iterator[None]:
    """Without what transformers and PEFT say of a model, which they have said of the one that it stands for."""
    level = logging.get_verbosity()
    logging.set_verbosity_error()
    try:
        with whole(), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.set_verbosity(level)


@contextmanager
def whole() -> Iterator[None]:
    """Models that are made inside are whole on each process, also where ZeRO-3 shards those that are trained."""
    held = deepspeed._hf_deepspeed_config_weak_ref
    deepspeed.unset_hf_deepspeed_config()
    try:
        yield
    finally:
        deepspeed._hf_deepspeed_config_weak_ref = held
