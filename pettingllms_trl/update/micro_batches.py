"""Splits a policy's generation batch into TRL's micro-steps, and those into single forward passes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch


Batch = dict[str, Any]
"""TRL's tensors, first dimension rows: `prompt_ids` (B, P), `completion_ids` (B, C), `advantages` (B,), ...

`pictures`, where a policy's rows have some, is a list of the images of each row: their pixels are made for each pass.
"""


TOKEN_TENSORS = ("prompt_ids", "prompt_mask", "completion_ids", "completion_mask", "tool_mask")
HOST = "host_"
"""Before these names: a copy on the host."""
OVER_GENERATION = frozenset({"cispo", "dapo", "vespo"})
"""TRL's losses that divide by the tokens of a whole generation (`num_items_in_batch`), whatever a pass has of them."""


@dataclass(frozen=True, slots=True)
class ShardInfo:
    """Sizes of a batch that is one process's shard, and of the whole batch, for each micro-step.

    Args:
        num_here: Rows of this shard in each micro-step, in their order.
        num_rows: Rows of all processes in each micro-step, without padding rows.
        num_tokens: Trained tokens of all processes in each micro-step.
        passes: For each micro-step, the number of this shard's rows in each of its passes; the rows after those are in
            none. `None`: equal parts of bounded size.
    """

    num_processes: int
    num_here: Sequence[int]
    num_rows: Sequence[int]
    num_tokens: Sequence[int]
    passes: Sequence[Sequence[int]] | None = None


def split(
    batch: Batch, *, num_steps: int, max_rows: int, token_mean: bool, shard: ShardInfo | None = None
) -> list[list[Batch]]:
    """Split a policy's generation batch into micro-steps, and each of those into forward passes of bounded size.

    Losses that average over a forward pass would give a row of a small pass more weight than one of a large pass;
    `loss_scale` corrects for that: a pass of b rows out of a generation's R carries `loss_scale = b * num_steps / R`,
    so that each row of the generation weighs the same. TRL's entropy bonus is a mean over tokens whatever the loss;
    `entropy_scale` is what its coefficient is to be multiplied by besides. Where a micro-step is a single pass of R /
    num_steps rows, as in GRPOTrainer, both scales are exactly 1 and nothing is reordered or trimmed.

    With W processes, R is the number of all their rows, and since gradients are averaged, the scales are W times as
    large: the step is that of one process with all the rows.

    Args:
        batch: All rows of one policy, shuffled.
        num_steps: Micro-steps per generation, TRL's `steps_per_generation`.
        max_rows: Most rows of a pass, `per_device_train_batch_size`, if `shard` does not give the passes.
        token_mean: Whether the loss averages over the tokens of a pass (`bnpo`), which is then weighted by its tokens.
        shard: The sizes of the whole batch, if this one is a process's shard. `None`: it is the whole batch.

    Returns:
        For each micro-step its passes, with their number of tokens in the loss (`num_tokens`). A micro-step has no
        pass if it has no rows, and a single pass without rows if all of its rows are left out.
    """
    here = torch.arange(len(batch["completion_ids"]))
    if shard is None:
        parts: Sequence[torch.Tensor] = here.tensor_split(num_steps)
        sizes = [len(rows) for rows in parts]
        shard = ShardInfo(1, sizes, sizes, [tokens(batch, rows) for rows in parts])
    else:
        parts = torch.split(here, list(shard.num_here))
    num_processes, num_rows = shard.num_processes, sum(shard.num_rows)
    steps: list[list[Batch]] = []
    for step, (rows, num_rows_of_step, num_tokens) in enumerate(
        zip(parts, shard.num_rows, shard.num_tokens, strict=True)
    ):
        passes = []
        if shard.passes is None:
            pieces = _passes(batch, rows, max_rows)
        else:
            sizes_of_passes = list(shard.passes[step]) or [0] * (len(rows) > 0)
            pieces = torch.split(rows[: sum(sizes_of_passes)], sizes_of_passes)
        for part in pieces:
            piece = select_rows(batch, part, trim=0 < len(part) < len(rows))
            piece["num_tokens"] = tokens(batch, part)
            share_of_tokens = num_processes * piece["num_tokens"] / max(num_tokens, 1)
            share_of_rows = num_processes * len(part) / num_rows_of_step
            if token_mean or len(part) == 0:
                piece["loss_scale"], piece["entropy_scale"] = share_of_tokens, 1.0
            else:
                piece["loss_scale"] = num_processes * len(part) * num_steps / num_rows
                piece["entropy_scale"] = share_of_tokens / share_of_rows
            passes.append(piece)
        steps.append(passes)
    return steps


def _passes(batch: Batch, rows: torch.Tensor, max_rows: int) -> Sequence[torch.Tensor]:
    """Equal parts of at most `max_rows`, with rows of similar length together to reduce padding."""
    if len(rows) == 0:
        return []
    if len(rows) <= max_rows:
        return [rows]
    lengths = _on_host(batch, "prompt_mask")[rows].sum(1) + _on_host(batch, "completion_mask")[rows].sum(1)
    by_length = rows[torch.argsort(lengths, stable=True)]
    return by_length.tensor_split(-(-len(rows) // max_rows))


def select_rows(batch: Batch, rows: torch.Tensor, *, trim: bool) -> Batch:
    """Select rows of every tensor; `trim` drops columns that are padding in all of them."""
    width_prompt, width_completion = batch["prompt_ids"].size(1), batch["completion_ids"].size(1)
    keep_prompt, keep_completion = width_prompt, width_completion
    there = rows.to(batch["completion_ids"].device, non_blocking=True)
    if trim:
        keep_prompt = max(int(_on_host(batch, "prompt_mask")[rows].sum(1).max()), 1)
        # A masked-out completion still needs a column, and TRL's metrics take a single column for one value a row,
        # masked or not. So at least two columns.
        keep_completion = min(max(int(_on_host(batch, "completion_mask")[rows].sum(1).max()), 2), width_completion)
    piece: Batch = {}
    for name, value in batch.items():
        own = rows if isinstance(value, torch.Tensor) and value.is_cpu else there
        if isinstance(value, list):
            piece[name] = [value[row] for row in rows.tolist()]
        elif not isinstance(value, torch.Tensor) or value.dim() == 0:
            piece[name] = value
        elif name.removeprefix(HOST).startswith("prompt_"):
            piece[name] = value[own, width_prompt - keep_prompt :]
        elif value.dim() == 2 and value.size(1) == width_completion:
            piece[name] = value[own, :keep_completion]
        else:
            piece[name] = value[own]
    return piece


def tokens(batch: Batch, rows: torch.Tensor) -> int:
    """The number of tokens of these rows that are trained on."""
    mask = _on_host(batch, "completion_mask")[rows]
    return int((mask * _on_host(batch, "tool_mask")[rows]).sum() if "tool_mask" in batch else mask.sum())


def with_copies(batch: Batch) -> Batch:
    """The batch and copies of its ids and masks on the host, which makes layouts of them. It waits once."""
    names = [name for name in TOKEN_TENSORS if name in batch]
    copied = torch.cat([batch[name] for name in names], dim=1).cpu()
    parts = torch.split(copied, [batch[name].size(1) for name in names], dim=1)
    return {**batch, **{HOST + name: part for name, part in zip(names, parts, strict=True)}}


def rows_on_host(batch: Batch) -> tuple[torch.Tensor, torch.Tensor] | None:
    """Ids and mask of prompts and completions, (B, P + C) each, if the host has copies."""
    if f"{HOST}prompt_ids" not in batch:  # of a checkpoint of an earlier version
        return None
    ids, mask = ([batch[f"{HOST}{part}_{kind}"] for part in ("prompt", "completion")] for kind in ("ids", "mask"))
    return torch.cat(ids, dim=1).cpu(), torch.cat(mask, dim=1).cpu()


def _on_host(batch: Batch, name: str) -> torch.Tensor:
    found: torch.Tensor = batch[HOST + name if HOST + name in batch else name]
    return found


def scaled_for(loss_type: str, batch: Batch) -> Batch:
    """A batch for one of TRL's losses. `loss_scale` multiplies the loss, `router_scale` the coefficient of a router's.

    A loss that divides by the generation's tokens needs no scale; terms that are a mean over the pass (entropy bonus,
    router loss) need it whatever the loss. TRL clamps its divisors to 1, so they cannot be scaled instead.
    """
    if loss_type not in OVER_GENERATION:
        return {**batch, "router_scale": 1.0}
    scale = batch["loss_scale"]
    return {**batch, "loss_scale": 1.0, "entropy_scale": scale * batch["entropy_scale"], "router_scale": scale}


def ends_of(rows: Sequence[Mapping[str, Any]], eos_token_ids: Sequence[int]) -> list[int]:
    """The ids that end a completion for TRL: the model's own, and those with which a stop word has ended one."""
    return [*{*eos_token_ids, *(row["completion"].ids[-1] for row in rows if row["completion"].finish == "stop")}]


def rollout_of(rows: Sequence[Mapping[str, Any]], trainer: Any) -> dict[str, Any]:
    """What a `rollout_func` of TRL returns for sequences that were sampled already, token for token.

    With `mask_truncated_completions`, those that were cut off at a token that has ended another one are left out here.
    """
    ends = trainer.eos_token_ids if trainer.mask_truncated_completions else ()
    logprobs = [row["completion"].logprobs for row in rows]
    masks = []
    for row in rows:
        is_cut = row["completion"].finish == "length" and row["completion"].ids[-1] in ends
        masks.append([int(row["counts"] and not is_cut)] * len(row["completion"].ids))
    return {
        **({} if all(map(all, masks)) else {"env_mask": masks}),
        "prompt_ids": [list(row["prompt"].ids) for row in rows],
        "completion_ids": [list(row["completion"].ids) for row in rows],
        "logprobs": None if None in logprobs else [list(values) for values in logprobs],
    }
