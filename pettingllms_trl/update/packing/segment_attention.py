"""Attention over a packed row in one kernel, where a GPU has it: without padding, masks, or copies of queries.

A row is one segment after another: a prompt, or what follows one. The queries of a segment are the last tokens of a
sequence, and see its keys up to their own, which is FlashAttention's causal mask for fewer queries than keys. PyTorch
has that kernel for sequences of different lengths, and for fewer heads of keys than of queries.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import torch

from pettingllms_trl.update.packing.pack import Segments


pytorch: Any = torch  # whose annotations know no `Function`
aten: Any = torch.ops.aten
KINDS = {"cuda"}
"""Kinds of devices with the kernel."""
DTYPES = (torch.bfloat16, torch.float16)
LONGEST_HEAD = 256


def takes(query: torch.Tensor, value: torch.Tensor) -> bool:
    """Whether the kernel takes heads of this size, device and type (under autocast, its type): (T, H, D) each."""
    size = query.size(-1)
    is_fitting = size == value.size(-1) and size % 8 == 0 and size <= LONGEST_HEAD
    return is_fitting and is_for(query.device, _dtype(query))


def is_for(device: torch.device, dtype: torch.dtype) -> bool:
    """Whether a device has the kernel for a type of numbers."""
    return device.type in KINDS and dtype in DTYPES and (device.type != "cuda" or _is_right(device))


@cache
def _is_right(device: torch.device) -> bool:
    """Whether a GPU has the kernel, and it gives what plain arithmetic gives, forward and backward."""
    has_kernel = torch.version.hip is None and torch.backends.cuda.is_flash_attention_available()
    return has_kernel and torch.cuda.get_device_capability(device) >= (8, 0) and is_right(device, torch.bfloat16)


def is_right(device: torch.device, dtype: torch.dtype) -> bool:
    """Whether the kernel gives what plain arithmetic gives of a small row: two prompts, and branches of two tokens and
    of one of the first. Draws no random numbers."""
    keys = ((0, 1, 2), (0, 1, 2, 3, 4), (0, 1, 5), (6, 7))  # each segment's; it asks with the last that are new
    queries = (3, 2, 1, 2)
    segments = Segments(
        keys=torch.tensor([key for own in keys for key in own], device=device),
        queries_from=torch.tensor([0, 3, 5, 6, 8], dtype=torch.int32, device=device),
        keys_from=torch.tensor([0, 3, 8, 11, 13], dtype=torch.int32, device=device),
        most_queries=3,
        most_keys=5,
    )
    visible = torch.zeros(8, 8, dtype=torch.bool)
    for first, number, own in zip((0, 3, 5, 6), queries, keys, strict=True):
        for place in range(number):
            visible[first + place, list(own[: len(own) - number + place + 1])] = True
    numbers = torch.linspace(-9, 9, 8 * 8 * 64).mul(7).sin().view(8, 8, 64).to(dtype)
    results = []
    try:
        for exact in (False, True):
            with torch.autocast(device.type, enabled=False), torch.inference_mode(False):  # which enables gradients
                given = numbers.to(device, torch.float32 if exact else dtype, copy=True)
                query, key, value = (each.clone().requires_grad_() for each in torch.split(given, [4, 2, 2], dim=1))
                if exact:
                    found = _plain(query, key, value, visible.to(device))
                else:
                    found = _BySegments.apply(query, key, value, segments, None)
                gradients = torch.autograd.grad(found, (query, key, value), given[:, 4:])
            results.append([found.detach(), *gradients])
    except RuntimeError:
        return False
    pairs = zip(*results, strict=True)
    return all(bool((each.float() - right).norm() < 0.02 * right.norm()) for each, right in pairs)


def _plain(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, visible: torch.Tensor) -> torch.Tensor:
    key, value = (heads.repeat_interleave(2, dim=1) for heads in (key, value))
    scores = torch.einsum("qhd,khd->hqk", query, key) * query.size(-1) ** -0.5
    return torch.einsum("hqk,khd->qhd", scores.masked_fill(~visible, -torch.inf).softmax(dim=-1), value)


def _dtype(heads: torch.Tensor) -> torch.dtype:
    kind = heads.device.type
    return torch.get_autocast_dtype(kind) if torch.is_autocast_enabled(kind) else heads.dtype


def attend_by_segments(
    query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, segments: Segments, scale: float | None
) -> torch.Tensor:
    """What each query sees of its sequence, (T, H, D) as the queries."""
    dtype = _dtype(query)
    found: torch.Tensor = _BySegments.apply(query.to(dtype), key.to(dtype), value.to(dtype), segments, scale)
    return found


class _BySegments(pytorch.autograd.Function):
    """Keys and values of a prompt are in the kernel once for each of its branches. They are gathered again for the
    backward pass instead of kept."""

    @staticmethod
    def forward(ctx: Any, query: Any, key: Any, value: Any, segments: Segments, scale: float | None) -> Any:
        gathered = (heads.index_select(0, segments.keys) for heads in (key, value))
        found, sums, seed, offset, _ = aten._flash_attention_forward(
            query, *gathered, *segments.lengths, 0.0, True, False, scale=scale
        )
        ctx.save_for_backward(query, key, value, found, sums, seed, offset)
        ctx.segments, ctx.scale = segments, scale
        return found

    @staticmethod
    def backward(ctx: Any, gradient: Any) -> Any:
        query, key, value, found, sums, seed, offset = ctx.saved_tensors
        segments = ctx.segments
        gathered = (heads.index_select(0, segments.keys) for heads in (key, value))
        of_queries, *others = aten._flash_attention_backward(
            gradient, query, *gathered, found, sums, *segments.lengths, 0.0, True, seed, offset, scale=ctx.scale
        )
        of_keys = (each.new_zeros(key.shape).index_add_(0, segments.keys, each) for each in others)
        return of_queries, *of_keys, None, None
