"""Models with learned positions: TRL's update reads their prompts at positions that count the padding.

TRL pads prompts on the left and gives the model no `position_ids`. With rotary positions or biases by distance this
changes nothing, for there only differences of positions count. A model that looks positions up in a table (GPT-2)
reads a short prompt at the wrong places of it: its log-probabilities are not those of the sampled tokens, and
importance ratios and gradients are wrong. Given their positions, such models are right.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from transformers import PreTrainedModel


NUM_TOKENS, NUM_PADDING = 5, 3
"""Of the row that `counts_padding` tries."""

Scores = Callable[[torch.Tensor, torch.Tensor], Any]
"""A forward pass of ids and mask, (1, L) each."""


def counts_padding(model: nn.Module, forward: Scores, device: torch.device) -> bool:
    """Whether the same tokens have other embeddings where padding stands before them. Exact in every precision.

    Args:
        model: In evaluation mode, so that no random numbers are drawn.
        forward: Its forward pass.
        device: Where its inputs are.
    """
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
    """What these give for the row's last tokens."""
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


def takes_positions(model: PreTrainedModel) -> bool:
    """Whether the model's forward pass can be given `position_ids`."""
    return "position_ids" in inspect.signature(type(model).forward).parameters


def with_positions(model: Callable[..., Any]) -> Callable[..., Any]:
    """The model, given the positions of the tokens that its `attention_mask` shows."""

    def forward(*, attention_mask: torch.Tensor, **inputs: Any) -> Any:
        positions = (attention_mask.cumsum(dim=1) - 1).clamp(min=0)
        return model(attention_mask=attention_mask, position_ids=positions, **inputs)

    return forward
