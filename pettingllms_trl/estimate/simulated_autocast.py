"""Automatic mixed precision of the simulated accelerator, by the lists of CUDA (`ATen/autocast_mode.h`)."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch.utils._pytree import tree_leaves, tree_map_only


LOWER_PRECISION = frozenset(
    {
        *("matmul", "mm", "mv", "bmm", "addmm", "addmv", "addr", "addbmm", "baddbmm", "linear", "einsum"),
        *("linalg_vecdot", "linalg_multi_dot", "chain_matmul", "scaled_dot_product_attention", "prelu"),
        *("_convolution", "_convolution.deprecated", "convolution", "conv1d", "conv2d", "conv3d", "conv_tbc"),
        *("conv_transpose1d", "conv_transpose2d.input", "conv_transpose3d.input", "_thnn_fused_lstm_cell"),
        *("_thnn_fused_gru_cell", "lstm_cell", "gru_cell", "rnn_tanh_cell", "rnn_relu_cell"),
    }
)
"""Run in the precision of autocast."""
PROMOTED = frozenset(
    {
        *("addcdiv", "addcmul", "atan2", "bilinear", "cross", "dot", "vdot", "grid_sampler", "index_put"),
        *("tensordot", "scatter_add"),
    }
)
"""Run in the widest type of their tensors."""
OTHERS = frozenset(
    {
        *("cudnn_convolution", "cudnn_convolution_transpose", "_scaled_dot_product_flash_attention"),
        "binary_cross_entropy",
    }
)
"""Of CUDA alone, or an error under autocast. All others that CUDA registers run in float32."""


def register_autocast(device: str, results: set[tuple[str, torch.dtype]]) -> None:
    """Make `torch.autocast(device)` cast what operations are given, for good.

    Args:
        device: The name of PrivateUse1.
        results: Is given the name of each operation that ran under autocast, and the type of its result.
    """
    _OTHERWISE.fallback(torch.library.fallthrough_kernel)
    for name in torch._C._dispatch_get_registrations_for_dispatch_key("AutocastCUDA"):
        own = name.removeprefix("aten::")
        if own not in OTHERS:
            packet, _, overload = own.partition(".")
            func = getattr(getattr(torch.ops.aten, packet), overload or "default")
            _LIBRARY.impl(func, partial(_cast_and_call, func, own, device, results))


def type_of(name: str, tensors: list[torch.Tensor], lower: torch.dtype) -> torch.dtype:
    """In which type an operation of the lists runs."""
    if name in LOWER_PRECISION:
        return lower
    if name in PROMOTED:
        return torch.float32 if any(each.dtype == torch.float32 for each in tensors) else lower
    return torch.float32


def _cast_and_call(
    func: Callable[..., Any],
    name: str,
    device: str,
    results: set[tuple[str, torch.dtype]],
    *args: Any,
    **kwargs: Any,
) -> Any:
    def is_cast(tensor: torch.Tensor) -> bool:
        return tensor.device.type == device and tensor.is_floating_point() and tensor.dtype != torch.float64

    with torch._C._ExcludeDispatchKeyGuard(_KEYS):
        tensors = [each for each in tree_leaves((args, kwargs)) if isinstance(each, torch.Tensor) and is_cast(each)]
        dtype = type_of(name, tensors, torch.get_autocast_dtype(device))

        def cast(tensor: torch.Tensor) -> torch.Tensor:
            return tensor.to(dtype) if is_cast(tensor) else tensor

        args, kwargs = tree_map_only(torch.Tensor, cast, (args, kwargs))
        found = func(*args, **kwargs)
    results.update((name, each.dtype) for each in tree_leaves(found) if isinstance(each, torch.Tensor))
    return found


pytorch: Any = torch
_OTHERWISE = pytorch.library.Library("_", "IMPL", "AutocastPrivateUse1")
_LIBRARY = pytorch.library.Library("aten", "IMPL", "AutocastPrivateUse1")
_KEYS = torch._C.DispatchKeySet(pytorch._C.DispatchKey.AutocastPrivateUse1)
