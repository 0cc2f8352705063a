"""A policy's sequences to the batches its loss reads: cut into TRL's micro-steps, then into single forward passes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch


Batch = dict[str, Any]
"""TRL's tensors, first dimension rows: `prompt_ids` (B, P), `completion_ids` (B, C), `advantages` (B,), ..."""


def cut(batch: Batch, *, num_steps: int, max_rows: int, token_mean: bool) -> list[list[Batch]]:
    """Cut a policy's generation batch into micro-steps, and each of those into forward passes of bounded size.

    Losses that average over a forward pass (`loss_scale` mends them) would give a row of a small pass more weight
    than one of a large pass; a pass of b rows out of a generation's R carries `loss_scale = b * num_steps / R`, so
    that each row of the generation weighs the same. TRL's entropy bonus is a mean over tokens whatever the loss;
    `entropy_scale` is what its coefficient is to be multiplied by besides. Where a micro-step is a single pass of
    R / num_steps rows, as in GRPOTrainer, both scales are exactly 1 and nothing is reordered or trimmed.

    Args:
        batch: All rows of one policy, shuffled.
        num_steps: Micro-steps per generation, TRL's `steps_per_generation`.
        max_rows: Rows that go through the model together, `per_device_train_batch_size`.
        token_mean: The loss averages over the tokens of a pass (`bnpo`), so a pass weighs by its tokens instead.

    Returns:
        For each micro-step its passes, with their number of tokens in the loss (`num_tokens`); none where there are
        fewer rows than micro-steps.
    """
    num_rows = len(batch["completion_ids"])
    steps: list[list[Batch]] = []
    for rows in torch.arange(num_rows).tensor_split(num_steps):
        passes = []
        for part in _passes(batch, rows, max_rows):
            piece = _take(batch, part, trim=len(part) < len(rows))
            piece["num_tokens"] = _tokens(batch, part)
            share_of_tokens = piece["num_tokens"] / max(_tokens(batch, rows), 1)
            if token_mean:
                piece["loss_scale"], piece["entropy_scale"] = share_of_tokens, 1.0
            else:
                piece["loss_scale"] = len(part) * num_steps / num_rows
                piece["entropy_scale"] = share_of_tokens / (len(part) / len(rows))
            passes.append(piece)
        steps.append(passes)
    return steps


def _passes(batch: Batch, rows: torch.Tensor, max_rows: int) -> Sequence[torch.Tensor]:
    """Equal parts of at most `max_rows`; rows of like length together, so that little is padded."""
    if len(rows) == 0:
        return []
    if len(rows) <= max_rows:
        return [rows]
    lengths = batch["prompt_mask"][rows].sum(1) + batch["completion_mask"][rows].sum(1)
    by_length = rows[torch.argsort(lengths, stable=True)]
    return by_length.tensor_split(-(-len(rows) // max_rows))


def _take(batch: Batch, rows: torch.Tensor, *, trim: bool) -> Batch:
    """The rows of every tensor; `trim` drops columns in which all of them are padding."""
    width_prompt, width_completion = batch["prompt_ids"].size(1), batch["completion_ids"].size(1)
    keep_prompt, keep_completion = width_prompt, width_completion
    if trim:
        keep_prompt = max(int(batch["prompt_mask"][rows].sum(1).max()), 1)
        # A truncated completion that is masked out still has to stand somewhere; and a single column is to TRL's
        # metrics one value of each row, masked or not. So at least two columns.
        keep_completion = min(max(int(batch["completion_mask"][rows].sum(1).max()), 2), width_completion)
    piece: Batch = {}
    for name, value in batch.items():
        if not isinstance(value, torch.Tensor) or value.dim() == 0:
            piece[name] = value
        elif name.startswith("prompt_"):
            piece[name] = value[rows, width_prompt - keep_prompt :]
        elif value.dim() == 2 and value.size(1) == width_completion:
            piece[name] = value[rows, :keep_completion]
        else:
            piece[name] = value[rows]
    return piece


def _tokens(batch: Batch, rows: torch.Tensor) -> int:
    mask = batch["completion_mask"][rows]
    return int((mask * batch["tool_mask"][rows]).sum() if "tool_mask" in batch else mask.sum())
