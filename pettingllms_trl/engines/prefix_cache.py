"""Keys and values of what a model has read, so that a prompt that begins with it is read from there on.

A turn of a conversation begins with all of its earlier turns. `generate` would read them again; here it finds them in
blocks of 16 tokens, as vLLM's automatic prefix caching does. A block belongs to all tokens up to its end and to a
policy, so conversations share what they have in common, and adapters share nothing.

Logits are the same but for rounding, whatever the cache holds. What it does not hold is read.
"""

from __future__ import annotations

import inspect
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

import torch
from transformers import DynamicCache, GenerationConfig
from transformers.cache_utils import DynamicLayer

from pettingllms_trl.processes.distributed import replaced_generate


BLOCK = 16
"""Tokens, as in vLLM."""

MAX_BYTES = 2**31

Ids = tuple[int, ...]


class PrefixCache:
    """Keys and values by the policy and the tokens that were read; weights are not to change meanwhile.

    Args:
        max_bytes: Beyond, the blocks that were not used for longest are dropped. A batch in progress is not counted.
    """

    def __init__(self, max_bytes: int = MAX_BYTES) -> None:
        self._max_bytes = max_bytes
        self._blocks = OrderedDict[tuple[str, Ids], torch.Tensor]()  # (2 * layers, heads, BLOCK, head_dim)
        self.num_bytes = 0

    def clear(self) -> None:
        """Forget everything: weights may change."""
        self._blocks.clear()
        self.num_bytes = 0

    @contextmanager
    def used_by(self, model: Any, policy: str) -> Iterator[None]:
        """Within, `model.generate` reads of its prompts what is not here.

        Args:
            model: A causal model of transformers, or PEFT's around one, that draws no random numbers in its forward
                pass. One whose layers keep something else than keys and values of all tokens (a sliding window, a
                state), or that counts positions by images, generates as ever; so do calls with inputs of images.
            policy: Names the weights that are active.
        """
        if not _keeps_all_tokens(model):
            yield
            return
        with replaced_generate(model, partial(self._generate, model, model.generate, policy)):
            yield

    def _generate(
        self,
        model: Any,
        plain: Callable[..., Any],
        policy: str,
        *,
        input_ids: torch.Tensor,
        attention_mask: torch.Tensor,
        **kwargs: Any,
    ) -> Any:
        """(B, P), padded on the left."""
        config = kwargs.get("generation_config") or model.generation_config
        asked = lambda name: kwargs.get(name, getattr(config, name, None))  # noqa: E731
        if (
            any(isinstance(value, torch.Tensor) for value in kwargs.values())  # of images
            or any((asked(name) or 1) > 1 for name in ("num_beams", "num_return_sequences"))
            or asked("cache_implementation") is not None
            or asked("use_cache") is False
            or bool((attention_mask.diff(dim=1) < 0).any())
        ):
            return plain(input_ids=input_ids, attention_mask=attention_mask, **kwargs)
        rows = [tuple(ids[own.bool()].tolist()) for ids, own in zip(input_ids, attention_mask, strict=True)]
        cache = kwargs.pop("past_key_values", None)
        if cache is None:
            # Rows with as many new tokens are read together, to within a factor of 2.
            groups: dict[int, list[int]] = {}
            for row, ids in enumerate(rows):
                groups.setdefault((len(ids) - BLOCK * len(self._find(policy, ids))).bit_length(), []).append(row)
            for group in groups.values() if len(groups) > 1 else ():
                read = {"input_ids": input_ids[group], "attention_mask": attention_mask[group]}
                short = max(len(rows[row]) for row in group)
                read = {name: values[:, -short:] for name, values in read.items()}
                found = self._found(model, policy, own := [rows[row] for row in group])
                settings = GenerationConfig(max_new_tokens=1, do_sample=False, pad_token_id=asked("pad_token_id"))
                more = {name: kwargs[name] for name in ("synced_gpus",) if name in kwargs}
                plain(**read, generation_config=settings, past_key_values=found, **more)
                self._keep(policy, own, found, width=short)
            cache = self._found(model, policy, rows)
        sampled = plain(input_ids=input_ids, attention_mask=attention_mask, **kwargs, past_key_values=cache)
        width, pad = input_ids.shape[1], asked("pad_token_id")
        completions = [row[width:].tolist() for row in getattr(sampled, "sequences", sampled)]
        for completion in completions:
            while completion and completion[-1] == pad:
                completion.pop()
        whole = [(*ids, *completion) for ids, completion in zip(rows, completions, strict=True)]
        self._keep(policy, whole, cache, width=width, prompts=rows)
        while self.num_bytes > self._max_bytes:
            _, block = self._blocks.popitem(last=False)
            self.num_bytes -= block.nbytes
        return sampled

    def _find(self, policy: str, ids: Ids) -> list[torch.Tensor]:
        """The blocks of a prompt, all but its last token at most: that is to be read for what follows."""
        found: list[torch.Tensor] = []
        for end in range(BLOCK, len(ids), BLOCK):
            block = self._blocks.get((policy, ids[:end]))
            if block is None:
                break
            found.append(block)
        return found

    def _found(self, model: Any, policy: str, rows: Sequence[Ids]) -> DynamicCache:
        """Of each row as many tokens as leave all rows equally many to read, padded on the left."""
        found = [self._find(policy, ids) for ids in rows]
        new = max(len(ids) - BLOCK * len(blocks) for ids, blocks in zip(rows, found, strict=True))
        width = max(map(len, rows)) - new
        cache = DynamicCache(config=model.config)
        if width == 0:
            return cache
        layers, heads, _, size = next(blocks[0] for blocks in found if blocks).shape
        some = next(blocks[0] for blocks in found if blocks)
        parts = some.new_zeros(layers, len(rows), heads, width, size)
        for row, (ids, blocks) in enumerate(zip(rows, found, strict=True)):
            if (own := len(ids) - new) > 0:
                parts[:, row, :, width - own :] = torch.cat(blocks, dim=2)[:, :, :own]
        for layer in range(layers // 2):
            cache.update(parts[2 * layer], parts[2 * layer + 1], layer)
        return cache

    def _keep(
        self, policy: str, rows: Sequence[Ids], cache: Any, *, width: int, prompts: Sequence[Ids] | None = None
    ) -> None:
        """Blocks of rows whose prompts end at column `width` of the cache."""
        parts = [part for layer in cache.layers for part in (layer.keys, layer.values)]
        if cache.get_seq_length() < width or len({part.shape for part in parts}) > 1:
            return
        for row, (ids, prompt) in enumerate(zip(rows, prompts or rows, strict=True)):
            start = width - len(prompt)
            last = min(len(ids), cache.get_seq_length() - start)  # the last token that was sampled was not read
            # From the end, which is dropped first.
            for end in range(last // BLOCK * BLOCK, 0, -BLOCK):
                key, columns = (policy, ids[:end]), slice(start + end - BLOCK, start + end)
                if key not in self._blocks:
                    self._blocks[key] = torch.stack([part[row, :, columns] for part in parts])
                    self.num_bytes += self._blocks[key].nbytes
                self._blocks.move_to_end(key)


def _keeps_all_tokens(model: Any) -> bool:
    """Whether a model's cache has keys and values of all tokens, at positions that padding does not shift."""
    inner = model.get_base_model() if hasattr(model, "get_base_model") else model
    if model.config.is_encoder_decoder or "position_ids" not in inspect.signature(type(inner).forward).parameters:
        return False
    if not inner._supports_default_dynamic_cache() or any(hasattr(each, "rope_deltas") for each in model.modules()):
        return False
    layers = DynamicCache(config=model.config).layers
    return bool(layers) and all(type(layer) is DynamicLayer for layer in layers)
