"""Automatic mixed precision of the simulated accelerator, by the lists of CUDA (`ATen/autocast_mode.h`)."""

from __future__ import annotations

import re
from functools import partial
from typing import Any

import torch
from torch.utils._pytree import tree_leaves, tree_map_only


LOWER_PRECISION = re.compile(
    r"_?conv\w*(\.\w+)?|\w*mm|(add)?mv|addr|(chain_)?matmul|linear|einsum|linalg_(vecdot|multi_dot)|prelu|\w+_cell|"
    "scaled_dot_product_attention"
)
"""Names of operations that run in the precision of autocast."""
PROMOTED = re.compile(r"addc(div|mul)|atan2|bilinear|cross|v?dot|grid_sampler|index_put|tensordot|scatter_add")
"""That run in the widest type of their tensors."""
OTHERS = re.compile(r"cudnn_\w+|_scaled_dot_product_flash_attention|binary_cross_entropy")
"""Of CUDA alone, or an error under autocast. All others that CUDA registers run in float32."""
Results = set[tuple[str, torch.dtype]]
"""Names of operations, and types of what came of them."""


def register_autocast(device: str, results: Results) -> None:
    """Make `torch.autocast(device)` cast what operations are given, for good.

    Args:
        device: The name of PrivateUse1.
        results: Is given the name of each operation that ran under autocast, and the type of its result.
    """
    torch.clear_autocast_cache = partial(_forget_weights, torch.clear_autocast_cache)
    _OTHERWISE.fallback(torch.library.fallthrough_kernel)
    for name in torch._C._dispatch_get_registrations_for_dispatch_key("AutocastCUDA"):
        own = name.removeprefix("aten::")
        if OTHERS.fullmatch(own) is None:
            packet, _, overload = own.partition(".")
            func = getattr(getattr(torch.ops.aten, packet), overload or "default")
            _LIBRARY.impl(func, partial(_cast_and_call, func, own, device, results))


def _forget_weights(clear: Any) -> None:
    _WEIGHTS.clear()
    clear()


def _cast_and_call(func: Any, name: str, device: str, results: Results, *args: Any, **kwargs: Any) -> Any:
    def is_cast(tensor: torch.Tensor) -> bool:
        return tensor.device.type == device and tensor.is_floating_point() and tensor.dtype != torch.float64

    with torch._C._ExcludeDispatchKeyGuard(_KEYS):
        tensors = [each for each in tree_leaves((args, kwargs)) if isinstance(each, torch.Tensor) and is_cast(each)]
        is_narrow = PROMOTED.fullmatch(name) and all(each.dtype != torch.float32 for each in tensors)
        is_lower = LOWER_PRECISION.fullmatch(name) or is_narrow
        dtype = torch.get_autocast_dtype(device) if is_lower else torch.float32

        def cast(tensor: torch.Tensor) -> torch.Tensor:
            if not is_cast(tensor):
                return tensor
            is_weight = tensor.requires_grad and tensor.is_leaf and tensor.dtype == torch.float32 != dtype
            if not (is_weight and torch.is_autocast_cache_enabled()):
                return tensor.to(dtype)
            if id(tensor) not in _WEIGHTS:
                _WEIGHTS[id(tensor)] = tensor.to(dtype)
            return _WEIGHTS[id(tensor)]

        args, kwargs = tree_map_only(torch.Tensor, cast, (args, kwargs))
        found = func(*args, **kwargs)
    results.update((name, each.dtype) for each in tree_leaves(found) if isinstance(each, torch.Tensor))
    return found


_WEIGHTS: dict[int, torch.Tensor] = {}
"""What weights were cast to, by their addresses, until autocast ends."""
pytorch: Any = torch
_OTHERWISE = pytorch.library.Library("_", "IMPL", "AutocastPrivateUse1")
_LIBRARY = pytorch.library.Library("aten", "IMPL", "AutocastPrivateUse1")
_KEYS = torch._C.DispatchKeySet(pytorch._C.DispatchKey.AutocastPrivateUse1)
