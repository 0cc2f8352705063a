"""The simulated accelerator at real sizes: floats are shapes only (`meta`), whole numbers and booleans are real.

Token ids, masks and packing are what they are on a GPU, and 8B parameters take no memory. Every operation is counted:
its multiplications and additions, the bytes that it reads and writes, the bytes alive while it runs, and whether the
host waits for it. `scaled_dot_product_attention` is one operation, as its flash kernel is: no matrix of scores.

A number that the host asks for is 1, and floats are finite and, but for that, compare as false: checks of values pass
without having been made. The caching allocator and kernels' workspaces are not simulated.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Self

import torch
from torch.utils.flop_counter import flop_registry

from pettingllms_trl.estimate.simulated_device import (
    NAME,
    SimulatedDevice,
    SimulatedTensor,
    aten,
    mapped,
    pytorch,
    tensors_of,
)


META = torch.device("meta")
_AUTOGRAD = pytorch.library.Library("aten", "IMPL", "AutogradPrivateUse1")
INDEXING = {aten.index, aten.index_put, aten.index_put_, aten._index_put_impl_}
PART_READ = {aten.embedding, aten.index, aten.index_select, aten.gather}
"""Operations that read of a tensor only what they return."""
TRUE = {aten.ne, aten.isfinite, aten.eq}
"""Comparisons that hold of floats: `isfinite` is made of the last, with `abs() != inf`."""
WAITS = {aten._local_scalar_dense, aten.equal, aten.nonzero, aten.masked_select, aten._unique2, aten.unique_dim}
SAMPLED = 7
"""The id that a sampler draws: no special one of the tokenizer that stands in."""


@dataclass(slots=True)
class Work:
    """What was run.

    Args:
        flops: Multiplications and additions of products and of attention, each counted as one.
        num_bytes: Read and written.
        operations: Kernels.
        waits: How often the host waited for the device.
        seconds: Of the operations, one after another, on the GPU whose speeds the device has.
    """

    flops: float = 0.0
    num_bytes: float = 0.0
    operations: float = 0.0
    waits: float = 0.0
    seconds: float = 0.0

    def plus(self, other: Work, times: float = 1.0) -> Work:
        """This and as many times the other."""
        return Work(*(getattr(self, name) + times * getattr(other, name) for name in self.__slots__))


class ShapesDevice(SimulatedDevice):
    """Counts what is run on it.

    Attributes:
        now: Bytes alive.
        peak: The most of them since `peak` was last set to `now`.
        work: Of the operations since the start; it changes with each.
        flops_a_second, bytes_a_second: Of the GPU; `launch`: the least seconds of an operation.
    """

    def __init__(self) -> None:
        super().__init__()
        self.now = self.peak = 0
        self.work = Work()
        self.flops_a_second, self.bytes_a_second, self.launch = 1e15, 3e12, 0.0
        self._alive: dict[int, int] = {}
        self._goes_to_host = False

    @classmethod
    def install(cls) -> Self:
        device = super().install()
        _AUTOGRAD.impl(aten.scaled_dot_product_attention.default, _attention)
        return device

    def hold(self, tensor: torch.Tensor) -> SimulatedTensor:
        if tensor.is_floating_point() and tensor.device != META:
            tensor = torch.empty_strided(tensor.size(), tensor.stride(), dtype=tensor.dtype, device=META)
        storage = tensor.untyped_storage()
        if (key := storage._cdata) not in self._alive:
            size = self._alive[key] = storage.nbytes()
            self.now += size
            self.peak = max(self.peak, self.now)
            weakref.finalize(storage, self._forget, key)
        return SimulatedTensor(tensor)

    def _forget(self, key: int) -> None:
        self.now -= self._alive.pop(key)

    def run(self, func: Any, args: Any, kwargs: Any) -> Any:
        if func is aten.scaled_dot_product_attention.default:  # in inference mode
            return _attention(*args, **kwargs)
        target = kwargs.get("device")
        self._goes_to_host = target is not None and torch.device(target).type != NAME
        return super().run(func, args, kwargs)

    def compute(self, func: Any, args: Any, kwargs: Any) -> Any:
        tensors = tensors_of((args, kwargs))
        packet, to_host = func.overloadpacket, self._goes_to_host
        has_shapes = any(each.device == META for each in tensors)
        self.work.waits += packet in WAITS or (to_host and bool(tensors) and not kwargs.get("non_blocking"))
        if not has_shapes:
            made = self._made(func, args, kwargs) if not tensors and not to_host else func(*args, **kwargs)
        elif packet is aten._local_scalar_dense:
            made = 1.0
        elif packet is aten.equal:
            made = True
        elif packet is aten.copy_:
            made = self._copied(*args)
        elif packet is aten._to_copy and (to_host or not (kwargs.get("dtype") or torch.float).is_floating_point):
            made = torch.zeros(tensors[0].shape, dtype=kwargs.get("dtype") or tensors[0].dtype)
        else:
            made = self._of_shapes(func, args, kwargs)
        self._count(func, packet, args, kwargs, tensors, made)
        return made

    def _made(self, func: Any, args: Any, kwargs: Any) -> Any:
        """What is made of nothing, on the device."""
        found = func(*args, **{**kwargs, "device": META})
        is_shape = isinstance(found, torch.Tensor) and found.is_floating_point()
        return found if is_shape else func(*args, **kwargs)

    def _copied(self, to: torch.Tensor, source: torch.Tensor, *_: Any) -> torch.Tensor:
        if to.device != META:  # on the host, or whole numbers
            self.work.waits += to.is_floating_point()
            to.copy_(torch.zeros(source.shape, dtype=to.dtype) if source.device == META else source)
        return to

    def _of_shapes(self, func: Any, args: Any, kwargs: Any) -> Any:
        if func._schema.is_mutable and not func._schema.name.endswith(("resize_", "set_")):
            return None  # what is written to keeps its shape
        if func.overloadpacket in INDEXING:
            args = (args[0], [part for each in args[1] for part in self._indices(each)], *args[2:])
        if "device" in kwargs:
            kwargs = {**kwargs, "device": META}
        args, kwargs = mapped(torch.Tensor, _shape_of, (args, kwargs))
        return mapped(torch.Tensor, lambda each: _real(func.overloadpacket, each), func(*args, **kwargs))

    def _indices(self, index: torch.Tensor | None) -> Iterable[torch.Tensor | None]:
        if index is None or index.dtype not in (torch.bool, torch.uint8):
            return (index,)
        self.work.waits += 1
        return index.nonzero().unbind(1)

    def _count(self, func: Any, packet: Any, args: Any, kwargs: Any, given: list[torch.Tensor], made: Any) -> None:
        if not func._schema.is_mutable and any(each.alias_info for each in func._schema.returns):
            return  # a view
        results = tensors_of(made)
        flops = flop_registry[packet](*args, **kwargs, out_val=made) if packet in flop_registry else 0.0
        self.add(flops, (results if packet in PART_READ else given), results)

    def add(self, flops: float, read: Iterable[torch.Tensor], written: Iterable[torch.Tensor]) -> None:
        """Count an operation."""
        size = sum(min(each.numel() * each.itemsize, each.untyped_storage().nbytes()) for each in (*read, *written))
        work = self.work
        work.flops += flops
        work.num_bytes += size
        work.operations += 1
        work.seconds += max(flops / self.flops_a_second, size / self.bytes_a_second, self.launch)

    def since(self, before: Work) -> Work:
        """What was run after `work` was this, of which one keeps `since(Work())`."""
        return self.work.plus(before, -1)


def _shape_of(tensor: torch.Tensor) -> torch.Tensor:
    if tensor.device == META:
        return tensor
    return torch.empty_strided(tensor.size(), tensor.stride(), dtype=tensor.dtype, device=META)


def _real(packet: Any, found: torch.Tensor) -> torch.Tensor:
    """A result of shapes as the device holds it: whole numbers and booleans have values."""
    if found.is_floating_point():
        return found
    value = packet in TRUE if found.dtype == torch.bool else SAMPLED * (packet in (aten.argmax, aten.multinomial))
    return torch.full(found.shape, value, dtype=found.dtype)


class _Flash(pytorch.autograd.Function):
    """Attention as one operation, which keeps its inputs, its result and a number for each row of scores."""

    @staticmethod
    def forward(ctx: Any, query: Any, key: Any, value: Any, mask: Any) -> Any:
        found = query.new_empty(*query.shape[:-1], value.shape[-1])
        sums = query.new_empty(query.shape[:-1], dtype=torch.float32)
        ctx.save_for_backward(query, key, value, found, sums)
        pairs = query.shape[:-1].numel() * key.shape[-2]
        ctx.flops = 2 * pairs * (query.shape[-1] + value.shape[-1])
        _count_attention(ctx.flops, [query, key, value, *([] if mask is None else [mask])], [found])
        return found

    @staticmethod
    def backward(ctx: Any, gradient: Any) -> Any:
        query, key, value, found, _ = ctx.saved_tensors
        made = [each.new_empty(each.shape) for each in (query, key, value)]
        _count_attention(2.5 * ctx.flops, [query, key, value, found, gradient], made)
        return *made, None


def _count_attention(flops: float, read: list[Any], written: list[Any]) -> None:
    machine: Any = SimulatedTensor.machine
    machine.add(flops, [each.held for each in read], [each.held for each in written])


def _attention(
    query: Any, key: Any, value: Any, attn_mask: Any = None, *_: Any, enable_gqa: bool = False, **__: Any
) -> Any:
    if not enable_gqa:
        pytorch.broadcast_shapes(query.shape[:-2], key.shape[:-2], value.shape[:-2])  # raises as the kernel does
    return _Flash.apply(query, key, value, attn_mask)
