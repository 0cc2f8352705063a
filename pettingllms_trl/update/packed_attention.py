"""Attention for a packed row (`packing/pack.py`): every token sees what it would see if its sequence were alone.

It is registered with transformers as an attention implementation, like "sdpa" and "flash_attention_2", so that it
works with any model that uses transformers' attention interface. The layout is passed in the forward's keyword
arguments, so that gradient checkpointing has it when it recomputes a layer. Where a GPU has a kernel for segments of
different lengths (`packing/segment_attention.py`), that is all. Else there are two ways, and the cheaper one is used
(`Layout.prompts`):

* sequence by sequence: queries, keys and values are gathered into whole sequences, under a causal kernel;
* split: each prompt once under a causal kernel, then every branch attends to its prompt and itself, under a mask.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from torch.nn.functional import scaled_dot_product_attention
from torch.utils.checkpoint import checkpoint
from transformers import AttentionInterface, AttentionMaskInterface, PretrainedConfig
from transformers.masking_utils import causal_mask_function

from pettingllms_trl.update.packing.pack import Layout
from pettingllms_trl.update.packing.segment_attention import attend_by_segments, takes


NAME = "pettingllms_shared_prefix"
HARMLESS = frozenset(
    {"is_causal", "output_attentions", "position_ids", "sliding_window", "use_cache", "cache_position"}
)
"""Keyword arguments of attention that have no effect here: a window is also passed as a restriction."""
FEATURES = {"s_aux": "sinks", "position_bias": "a bias by distance", "indices": "an index of the tokens to attend to"}
"""What some models pass to attention, in words."""


class NotPackable(ValueError):
    """A layer needs something that packed attention does not have; goes on from "the model of policy 'solver' ..."."""


@dataclass(frozen=True, slots=True)
class Restriction:
    """A layer's restriction of causal attention, such as a window or a chunk.

    Args:
        visible: transformers' function of a batch index, a head index, and positions of queries and keys.
        reach: Sequences up to this length are not affected by it. `None`: any may be.
    """

    visible: Callable[..., torch.Tensor]
    reach: int | None

    def between(self, queries: torch.Tensor, keys: torch.Tensor) -> torch.Tensor:
        """(..., Q, K) from positions (..., Q) and (K,)."""
        return self.visible(0, 0, queries[..., :, None], keys)


def restriction(
    *, mask_function: Callable[..., torch.Tensor], local_size: int | None = None, **_: Any
) -> Restriction | None:
    """The restriction to pass instead of a mask, which transformers would make as if the row were one sequence."""
    return None if mask_function is causal_mask_function else Restriction(mask_function, local_size)


def attend(
    module: nn.Module,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: Restriction | None,
    dropout: float = 0.0,
    scaling: float | None = None,
    *,
    softcap: float | None = None,
    shared_prefix: Layout | None = None,
    **kwargs: Any,
) -> tuple[torch.Tensor, None]:
    """The attention function that transformers calls.

    Args:
        query, key, value: (1, H, T, D), with fewer heads of keys and values if several queries share one.

    Returns:
        (1, T, H, D), and no weights.

    Raises:
        NotPackable: The layer needs something that is not supported here.
    """
    unknown = sorted(name for name, given in kwargs.items() if given is not None and name not in HARMLESS)
    if shared_prefix is None:
        raise NotPackable("does not pass arguments of its forward pass on to its attention")
    if unknown:
        words = ", ".join(FEATURES.get(name, name) for name in unknown)
        raise NotPackable(f"calls attention with {words}, which packed attention does not have")
    if kwargs.get("is_causal") is False:
        raise NotPackable("has attention that is not causal")
    if attention_mask is None and kwargs.get("sliding_window"):
        raise NotPackable("has a sliding window of which its layers are given no mask")
    query, key, value = (heads.transpose(1, 2)[0] for heads in (query, key, value))  # (T, H, D)
    run = _Kernel(dropout, scaling, attention_mask, softcap)
    if not dropout and run.is_causal(shared_prefix.segments.most_keys) and takes(query, value):
        return attend_by_segments(query, key, value, shared_prefix.segments, scaling)[None], None
    rows, prompts, branches = shared_prefix.rows, shared_prefix.prompts, shared_prefix.branches
    if prompts is None:
        found = run(_at(query, rows), _at(key, rows), _at(value, rows)).flatten(0, 1)
    else:
        of_prompts = run(_at(query, prompts), _at(key, prompts), _at(value, prompts))

        def attend_from_branches(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
            return run(_at(query, branches), _at(key, rows), _at(value, rows), shared_prefix)

        # Keys and values of a prompt are here K times. They are recomputed for the backward pass instead of kept.
        of_branches = checkpoint(
            attend_from_branches, query, key, value, use_reentrant=False, preserve_rng_state=dropout > 0
        )
        found = torch.cat([of_prompts.flatten(0, 1), of_branches.flatten(0, 1)])
    return found.index_select(0, shared_prefix.back)[None], None


@dataclass(frozen=True, slots=True)
class _Kernel:
    """PyTorch's attention kernel, on (sequences, length, heads, D), or its arithmetic with a cap."""

    dropout: float
    scaling: float | None
    restriction: Restriction | None
    softcap: float | None

    def __call__(
        self, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, branches: Layout | None = None
    ) -> torch.Tensor:
        """Attend. Queries share the keys' positions or, with `branches`, start at `branches.starts`."""
        mask = self._mask(query.size(1), key.size(1), branches, query.device)
        repeats = query.size(2) // key.size(2)
        if repeats > 1 and not (mask is None and self.softcap is None):  # CUDA's kernels take a mask or grouped heads
            key, value = (heads.repeat_interleave(repeats, dim=2) for heads in (key, value))
        query, key, value = (heads.transpose(1, 2) for heads in (query, key, value))
        if self.softcap is not None:  # all scores are in memory
            scale = query.size(-1) ** -0.5 if self.scaling is None else self.scaling
            scores = self.softcap * torch.tanh(query @ key.transpose(2, 3) * scale / self.softcap)
            if mask is None:
                mask = torch.ones(scores.shape[2:], dtype=torch.bool, device=scores.device).tril()
            shares = scores.masked_fill(~mask, -torch.inf).softmax(dim=-1, dtype=torch.float32).to(value.dtype)
            return (torch.dropout(shares, self.dropout, train=True) @ value).transpose(1, 2)
        found = scaled_dot_product_attention(
            query,
            key,
            value,
            attn_mask=mask,
            dropout_p=self.dropout,
            is_causal=mask is None,
            scale=self.scaling,
            enable_gqa=mask is None and repeats > 1,
        )
        return found.transpose(1, 2)

    def is_causal(self, num_keys: int) -> bool:
        """Whether attention is causal and nothing more, in sequences of this many tokens."""
        return self.softcap is None and self._restriction_of(num_keys) is None

    def _restriction_of(self, num_keys: int) -> Restriction | None:
        """The restriction, if it affects sequences of this many tokens."""
        hidden = self.restriction
        return None if hidden is None or (hidden.reach is not None and num_keys <= hidden.reach) else hidden

    def _mask(
        self, num_queries: int, num_keys: int, branches: Layout | None, device: torch.device
    ) -> torch.Tensor | None:
        """(sequences or 1, 1, Q, K) which keys each query sees; `None`: causal attention with Q = K."""
        hidden = self._restriction_of(num_keys)
        if hidden is None:
            return None if branches is None else branches.visible
        keys = torch.arange(num_keys, device=device)
        queries = torch.arange(num_queries, device=device) + (0 if branches is None else branches.starts[:, None])
        return hidden.between(queries, keys).view(-1, 1, num_queries, num_keys)


def _at(heads: torch.Tensor, places: torch.Tensor) -> torch.Tensor:
    """Gather positions: (T, H, D) to (..., H, D)."""
    return heads.index_select(0, places.flatten()).view(*places.shape, *heads.shape[1:])


@contextmanager
def attending(*models: nn.Module) -> Iterator[None]:
    """Use `attend` in the layers of these models inside the block."""
    own = configs_of(*models)
    before = [config._attn_implementation_internal for config in own]
    try:
        for config in own:
            config._attn_implementation_internal = NAME
        yield
    finally:
        for config, implementation in zip(own, before, strict=True):
            config._attn_implementation_internal = implementation


def configs_of(*models: nn.Module) -> list[PretrainedConfig]:
    """The configurations of models and of all modules within them, some of which have the same."""
    # `getattr` would make every module without one search its submodules.
    configs = [vars(module).get("config") for model in models for module in model.modules()]
    return [config for config in configs if isinstance(config, PretrainedConfig)]


AttentionInterface.register(NAME, attend)
AttentionMaskInterface.register(NAME, restriction)
