"""Keys and values of what a model has read, so that a prompt that begins with it is read from there on.

A turn of a conversation begins with all of its earlier turns. `generate` would read them again; here it finds them in
blocks of 16 tokens, as vLLM's automatic prefix caching does. A block belongs to all tokens up to its end and to a
policy, so conversations share what they have in common, and adapters share nothing.

Logits are the same but for rounding, whatever the cache holds. What it does not hold is read.
"""

from __future__ import annotations

import itertools
import warnings
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from typing import Any

import torch
from transformers import DynamicCache, GenerationConfig

from pettingllms_trl.processes.distributed import replaced_generate
from pettingllms_trl.structure.miniature import EXACT, FAILURES, NoMiniature, miniature, quiet
from pettingllms_trl.structure.properties import base_of, keeps_all_tokens, rope_switch


BLOCK = 16
"""Tokens, as in vLLM."""

MAX_BYTES = 2**32
"""4 GiB: in float32, 93,000 tokens of a model of 135M; in bfloat16, 37,000 of one of 1.7B."""

READ, PADDED = 40, 11
"""Tokens of a row of `goes_on_exactly`, and columns of padding of the other."""

Ids = tuple[int, ...]


class PrefixCache(AbstractContextManager[Any]):
    """Keys and values by the policy and the tokens that were read. As a context it is emptied at the end.

    Weights are not to change meanwhile.

    Args:
        max_bytes: Beyond, the blocks that were not used for longest are dropped; a batch in progress may exceed it.
            0: every prompt is read whole.
    """

    def __init__(self, max_bytes: int = MAX_BYTES) -> None:
        self.max_bytes = max_bytes
        self._blocks = OrderedDict[tuple[str, Ids], torch.Tensor]()  # (2 * layers, heads, BLOCK, head_dim)
        self._is_exact: dict[str, bool] = {}  # of each policy
        self.num_bytes = 0

    def __exit__(self, *error: object) -> None:
        self._blocks.clear()
        self.num_bytes = 0

    @contextmanager
    def used_by(self, model: Any, policy: str) -> Iterator[None]:
        """Within, `model.generate` reads of its prompts what is not here.

        Args:
            model: A causal model of transformers, or PEFT's around one, that draws no random numbers in its forward
                pass. One whose layers keep something else than keys and values of all tokens generates as ever
                (`structure/properties.py`); so do calls with inputs of images, or beyond the switch of its RoPE.
        """
        if not self.max_bytes or not keeps_all_tokens(model):
            yield
            return
        with replaced_generate(model, partial(self._generate, model, model.generate, policy)):
            yield

    def _generate(self, model: Any, plain: Callable[..., Any], policy: str, **kwargs: Any) -> Any:
        ids, mask = kwargs["input_ids"], kwargs["attention_mask"]  # (B, P), padded on the left
        config = kwargs.get("generation_config") or model.generation_config

        def asked(name: str) -> Any:
            return kwargs.get(name, getattr(config, name, None))

        switch = rope_switch(model.config.get_text_config())
        read, real = torch.stack((ids, mask)).cpu()  # the host waits once
        longest = int(real.sum(dim=1).max()) + (asked("max_new_tokens") or 0)
        if (
            (switch is not None and longest > switch)  # of the keys that were read, all are rotated otherwise then
            or sum(isinstance(value, torch.Tensor) for value in kwargs.values()) > 2  # inputs of images
            or any((asked(name) or 1) > 1 for name in ("num_beams", "num_return_sequences"))
            or asked("cache_implementation") is not None
            or asked("use_cache") is False
            or bool((real.diff(dim=1) < 0).any())
        ):
            return plain(**kwargs)
        pad, width = asked("pad_token_id"), ids.shape[1]
        rows = [tuple(each[own.bool()].tolist()) for each, own in zip(read, real, strict=True)]
        if policy not in self._is_exact and width > BLOCK:
            self._is_exact[policy] = goes_on_exactly(model, rows[0])
            if not self._is_exact[policy]:
                warnings.warn(
                    f"what the model of policy {policy!r} has read is not kept: a tiny one of its class in float32 "
                    "that goes on from kept keys and values has other logits, or there is none.",
                    stacklevel=2,
                )
        if not self._is_exact.get(policy, True):
            return plain(**kwargs)
        if kwargs.get("past_key_values") is None:
            # Rows with as many new tokens are read together, to within a factor of 2; then all go on.
            groups: dict[int, list[int]] = {}
            for row, own in enumerate(rows):
                groups.setdefault((len(own) - BLOCK * len(self._find(policy, own))).bit_length(), []).append(row)
            for group in groups.values() if len(groups) > 1 else ():
                some = [rows[row] for row in group]
                longest, cache = max(map(len, some)), self._assembled(model, policy, some)
                members = torch.tensor(group).to(ids.device, non_blocking=True)
                given = {"input_ids": ids[members, -longest:], "attention_mask": mask[members, -longest:]}
                settings = GenerationConfig(max_new_tokens=1, do_sample=False, pad_token_id=pad)
                more = {name: kwargs[name] for name in ("synced_gpus",) if name in kwargs}  # as in `read_once`
                plain(**given, generation_config=settings, past_key_values=cache, **more)
                self._keep(policy, some, cache, [longest - len(own) for own in some])
            kwargs["past_key_values"] = self._assembled(model, policy, rows)
        sampled = plain(**kwargs)
        # A single token was not read, and what is not needed is not waited for.
        end = width if asked("max_new_tokens") == 1 else None
        completions = getattr(sampled, "sequences", sampled)[:, width:end].tolist()
        for completion in completions:
            while completion and completion[-1] == pad:
                completion.pop()
        whole = [(*own, *completion) for own, completion in zip(rows, completions, strict=True)]
        self._keep(policy, whole, kwargs["past_key_values"], [width - len(own) for own in rows])
        while self.num_bytes > self.max_bytes:
            self.num_bytes -= self._blocks.popitem(last=False)[1].nbytes
        return sampled

    def _find(self, policy: str, ids: Ids) -> list[torch.Tensor]:
        """The blocks of a prompt, all but its last token at most: that is to be read for what follows."""
        keys = ((policy, ids[:end]) for end in range(BLOCK, len(ids), BLOCK))
        return [self._blocks[key] for key in itertools.takewhile(self._blocks.__contains__, keys)]

    def _assembled(self, model: Any, policy: str, rows: Sequence[Ids]) -> DynamicCache:
        """Of each row as many tokens as leave all rows equally many to read, padded on the left."""
        found, cache = [self._find(policy, ids) for ids in rows], DynamicCache(config=model.config)
        new = max(len(ids) - BLOCK * len(blocks) for ids, blocks in zip(rows, found, strict=True))
        if (width := max(map(len, rows)) - new) == 0:
            return cache
        one = next(blocks[0] for blocks in found if blocks)
        parts = one.new_zeros(one.shape[0], len(rows), one.shape[1], width, one.shape[3])
        for row, (ids, blocks) in enumerate(zip(rows, found, strict=True)):
            if (own := len(ids) - new) > 0:
                parts[:, row, :, width - own :] = torch.cat(blocks, dim=2)[:, :, :own]
        for layer, (keys, values) in enumerate(zip(parts[::2], parts[1::2], strict=True)):
            cache.update(keys, values, layer)
        return cache

    def _keep(self, policy: str, rows: Sequence[Ids], cache: Any, starts: Sequence[int]) -> None:
        """Whole blocks of rows of a cache, which begin at these columns."""
        parts = [part for layer in cache.layers for part in (layer.keys, layer.values)]
        if not cache.get_seq_length() or len({(part.shape, part.device) for part in parts}) > 1:
            return
        for row, (ids, start) in enumerate(zip(rows, starts, strict=True)):
            read = min(len(ids), cache.get_seq_length() - start)  # the last token that was sampled was not
            for end in range(read // BLOCK * BLOCK, 0, -BLOCK):  # from the end, which is dropped first
                key, columns = (policy, ids[:end]), slice(start + end - BLOCK, start + end)
                if key not in self._blocks:
                    self._blocks[key] = torch.stack([part[row, :, columns] for part in parts])
                    self.num_bytes += self._blocks[key].nbytes
                self._blocks.move_to_end(key)


def goes_on_exactly(model: Any, ids: Ids) -> bool:
    """Whether a miniature that goes on from keys and values has the logits of one pass, of rows of two lengths."""
    with quiet(), torch.no_grad():
        try:
            small, row = miniature(model, (ids * READ)[:READ])
            rows = torch.stack([row, row.roll(PADDED)])
            mask = torch.ones_like(rows)
            mask[1, :PADDED] = 0
            positions, cache = (mask.cumsum(dim=1) - 1).clamp(min=0), DynamicCache(config=base_of(small).config)
            for own in (slice(0, READ // 2), slice(READ // 2, READ)):
                given = {"input_ids": rows[:, own], "attention_mask": mask[:, : own.stop], "past_key_values": cache}
                found = small(**given, position_ids=positions[:, own]).logits
            whole = [small(input_ids=each[None]).logits[0, -READ // 2 :] for each in (row, row[:-PADDED])]
        except (NoMiniature, *FAILURES):
            return False
        return bool((found.log_softmax(dim=-1) - torch.stack(whole).log_softmax(dim=-1)).abs().max() <= EXACT)
