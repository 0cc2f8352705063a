"""FlashAttention's kernel for segments of different lengths in plain PyTorch, on any device: forward and backward."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import torch


def forward(
    query: Any, key: Any, value: Any, of_queries: Any, of_keys: Any, most_q: int, most_k: int, *_: Any, scale: Any
) -> Any:
    found = []
    bounds = zip(of_queries.tolist(), of_queries.tolist()[1:], of_keys.tolist(), of_keys.tolist()[1:], strict=False)
    for first, end, key_first, key_end in bounds:
        number, seen = end - first, key_end - key_first
        assert 0 < number <= min(most_q, seen)
        assert seen <= most_k
        q, k, v = query[first:end], key[key_first:key_end], value[key_first:key_end]
        k, v = (heads.repeat_interleave(q.size(1) // k.size(1), dim=1) for heads in (k, v))
        scores = torch.einsum("qhd,khd->hqk", q, k) * (q.size(-1) ** -0.5 if scale is None else scale)
        visible = torch.ones(number, seen, dtype=torch.bool, device=q.device).tril(seen - number)
        found.append(torch.einsum("hqk,khd->qhd", scores.masked_fill(~visible, -torch.inf).softmax(-1), v))
    none = torch.empty(0)
    return torch.cat(found), none, none, none, none


def backward(
    gradient: Any, query: Any, key: Any, value: Any, out: Any, sums: Any, *lengths_and_more: Any, scale: Any
) -> Any:
    with torch.enable_grad():
        given = [each.detach().requires_grad_() for each in (query, key, value)]
        found, *_ = forward(*given, *lengths_and_more[:4], scale=scale)
    return torch.autograd.grad(found, given, gradient)


KERNELS = SimpleNamespace(_flash_attention_forward=forward, _flash_attention_backward=backward)
