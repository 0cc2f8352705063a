"""Batches whose rows can be told apart, and which rows a piece of one holds."""

from __future__ import annotations

from typing import Any

import torch

from pettingllms_trl.update.micro_batches import Batch


def batch_of(lengths: list[int], **extra: Any) -> Batch:
    """Rows of 1 + i prompt tokens (left-padded) and `lengths[i]` completion tokens (right-padded), all distinct."""
    rows, prompt_width, width = len(lengths), len(lengths) + 1, max(lengths) + 1  # one column of padding for all
    ids = torch.arange(1, rows * (prompt_width + width) + 1).reshape(rows, -1)
    prompt_mask = torch.tensor([[int(j >= prompt_width - 1 - i) for j in range(prompt_width)] for i in range(rows)])
    completion_mask = torch.tensor([[int(j < length) for j in range(width)] for length in lengths])
    return {
        "prompt_ids": ids[:, :prompt_width] * prompt_mask,
        "prompt_mask": prompt_mask,
        "completion_ids": ids[:, prompt_width:] * completion_mask,
        "completion_mask": completion_mask,
        "old_per_token_logps": -ids[:, prompt_width:].float(),
        "advantages": torch.arange(rows).float(),
        "num_items_in_batch": torch.tensor(sum(lengths)),
        **extra,
    }


def rows_of(piece: Batch) -> list[int]:
    return [int(value) for value in piece["advantages"]]
