"""FlashAttention's kernel for segments of different lengths in plain PyTorch, on any device: forward and backward."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import torch


KEPT = tuple(map(torch.tensor, (1.0, 2.0, 3.0)))
"""What stands for the sums of a forward pass, its seed and its offset, which the backward pass is to be given."""


def forward(
    query: Any, key: Any, value: Any, of_queries: Any, of_keys: Any, most_q: int, most_k: int, *flags: Any, scale: Any
) -> Any:
    assert flags == (0.0, True, False)  # dropout, causal, whether to return a mask
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
    return torch.cat(found), *KEPT, None


def backward(
    gradient: Any, query: Any, key: Any, value: Any, out: Any, sums: Any, *lengths_and_more: Any, scale: Any
) -> Any:
    *lengths, dropout, is_causal, seed, offset = lengths_and_more
    assert (float(sums), float(seed), float(offset)) == (1.0, 2.0, 3.0)
    with torch.enable_grad():
        given = [each.detach().requires_grad_() for each in (query, key, value)]
        found, *_ = forward(*given, *lengths, dropout, is_causal, False, scale=scale)
    assert out.shape == found.shape
    return torch.autograd.grad(found, given, gradient)


KERNELS = SimpleNamespace(_flash_attention_forward=forward, _flash_attention_backward=backward)
