"""Models with learned positions: TRL's update reads their prompts at positions that count the padding.

TRL pads prompts on the left and passes no `position_ids` to the model. With rotary positions or biases by distance
this has no effect, because only differences of positions matter. A model that adds positions to its embeddings (GPT-2)
reads a short prompt at the wrong positions: its log-probabilities are not those of the sampled tokens, and importance
ratios and gradients are wrong. With `position_ids` they are right.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Any

import torch
from torch import nn

from pettingllms_trl.structure.miniature import EXACT, FAILURES, NoMiniature, miniature, quiet


NUM_TOKENS, NUM_PADDING = 5, 3
"""Lengths in the row that `counts_padding` tries."""

Scores = Callable[[torch.Tensor, torch.Tensor], Any]
"""Runs a forward pass of ids and mask, (1, L) each."""


def counts_padding(model: nn.Module, forward: Scores, device: torch.device) -> bool:
    """Whether left padding changes a model's log-probabilities in float32, on a miniature; else by its embeddings."""
    with suppress(NoMiniature, *FAILURES), quiet(), torch.no_grad():
        small, row = miniature(model, range(2, 2 + NUM_TOKENS))
        ids = torch.cat([row[:1].expand(NUM_PADDING), row])
        mask = torch.ones(NUM_PADDING + NUM_TOKENS, dtype=torch.long)
        mask[:NUM_PADDING] = 0
        found = small(input_ids=ids[None], attention_mask=mask[None]).logits[:, NUM_PADDING:].log_softmax(dim=-1)
        alone = small(input_ids=row[None], attention_mask=torch.ones_like(row)[None]).logits.log_softmax(dim=-1)
        return bool((found - alone).abs().max() > EXACT)
    tables = [module for module in model.modules() if isinstance(module, nn.Embedding)]
    if len(tables) < 2:  # of tokens alone
        return False
    ids = torch.arange(2, 2 + NUM_TOKENS, device=device)[None]
    padding = torch.zeros((1, NUM_PADDING), dtype=ids.dtype, device=device)
    plain = _embeddings(tables, lambda: forward(ids, torch.ones_like(ids)))
    padded_ids, mask = torch.cat([padding, ids], dim=1), torch.cat([padding, torch.ones_like(ids)], dim=1)
    padded = _embeddings(tables, lambda: forward(padded_ids, mask))
    return any(not torch.equal(one, other) for one, other in zip(plain, padded, strict=True))


def _embeddings(tables: list[nn.Embedding], run: Callable[[], Any]) -> list[torch.Tensor]:
    """The outputs of these tables for the row's last tokens."""
    found: list[torch.Tensor] = []
    hooks = [
        table.register_forward_hook(lambda _, __, out: found.append(out[..., -NUM_TOKENS:, :])) for table in tables
    ]
    try:
        with torch.no_grad():
            run()
    finally:
        for hook in hooks:
            hook.remove()
    return found


def with_positions(model: Callable[..., Any]) -> Callable[..., Any]:
    """A function that calls the model with the `position_ids` that follow from its `attention_mask`."""

    def forward(*, attention_mask: torch.Tensor, **inputs: Any) -> Any:
        positions = (attention_mask.cumsum(dim=1) - 1).clamp(min=0)
        return model(attention_mask=attention_mask, position_ids=positions, **inputs)

    return forward
