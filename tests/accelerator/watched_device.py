"""The simulated accelerator that tests use: it refuses what a CUDA build refuses, and keeps each wait of the host.

device = WatchedDevice.install()
torch.ones(2, device="mlu").sum().item()
device.waits  # [Wait(kind='item', place='train.py:12')]
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from types import FrameType
from typing import Any, ClassVar, Self

import torch
from torch.utils._pytree import tree_map_only

from pettingllms_trl.estimate.simulated_device import NAME, SimulatedDevice, SimulatedTensor


aten = torch.ops.aten
COPIES = {aten._to_copy, aten.copy_, aten.lift_fresh}
INDEXING = {aten.index, aten.index_put, aten.index_put_, aten._index_put_impl_}
FILLING = {aten.masked_fill, aten.masked_fill_}
WAITING = {
    aten._local_scalar_dense: "item",
    **dict.fromkeys((aten.equal, aten.allclose), "equal"),
    aten.nonzero: "nonzero",
    aten.masked_select: "mask",
    aten.bincount: "bincount",
    **dict.fromkeys((aten._unique, aten._unique2, aten.unique_dim), "unique"),
    **dict.fromkeys((aten.unique_consecutive, aten.unique_dim_consecutive), "unique"),
}
"""Operations whose result, or its size, the host waits for."""
CALLED = (
    *("/torch/", "/accelerate/", "/peft/", "/trl/trainer/utils.py", "/contextlib.py", "/functools.py", "<"),
    *("/estimate/simulated_", "/warnings.py", "/test_gpu.py", __file__),
)
"""Parts of paths of what waits on behalf of its caller."""


@dataclass(frozen=True, slots=True)
class Wait:
    """A wait of the host for the device.

    Args:
        kind: What for, such as `item`, or `from the host`: memory that is not pinned is copied while the host waits.
        place: `FILE:LINE` of the innermost caller that is not PyTorch, accelerate or PEFT.
    """

    kind: str
    place: str


class WatchedDevice(SimulatedDevice):
    """Raises for tensors of two devices, and keeps waits."""

    def __init__(self) -> None:
        super().__init__()
        self.waits: list[Wait] = []
        """In their order."""

    @classmethod
    def install(cls) -> Self:
        device = super().install()
        torch.load, torch.Generator = _to_device(torch.load), _Generator
        torch.Tensor.pin_memory = lambda self, *_: self
        SimulatedTensor.pin_memory = _not_pinned
        SimulatedTensor.numpy = SimulatedTensor.__array__ = _no_array

        def copied(tensor: SimulatedTensor) -> torch.Tensor:
            device.waits.append(Wait("to the host", place()))
            return tensor.held.detach()

        # A file has no device; `torch.load` is told one.
        SimulatedTensor.__reduce_ex__ = lambda self, protocol: copied(self).__reduce_ex__(protocol)
        SimulatedTensor.__repr__ = lambda self, **_: f"{copied(self)!r} on {self.device}"
        torch.mlu.synchronize = lambda *_: device.waits.append(Wait("synchronize", place()))
        return device

    def check(self, func: Any, args: Any, kwargs: Any, tensors: list[torch.Tensor]) -> None:
        if any(isinstance(each, SimulatedTensor) for each in tensors) and func.overloadpacket not in COPIES:
            _check_devices(func, args, tensors)
        if getattr(kwargs.get("generator"), "_cdata", None) not in _Generator.of_device:
            raise RuntimeError(f"Expected a '{NAME}' device type for generator but found 'cpu'")
        if kind := _wait_of(func.overloadpacket, args, kwargs, tensors):
            self.waits.append(Wait(kind, place()))


def _check_devices(func: Any, args: Any, tensors: list[torch.Tensor]) -> None:
    """Raise `RuntimeError` for tensors on two devices, but for what CUDA takes: a CPU tensor of no dimension among
    numbers, and an index on the CPU."""
    packet = func.overloadpacket
    if packet in INDEXING:
        indices = [id(each) for each in args[1] if isinstance(args[0], SimulatedTensor)]
        tensors = [each for each in tensors if id(each) not in indices]
    takes_numbers = torch.Tag.pointwise in func.tags or packet in INDEXING | FILLING
    first = 1 if func._schema.is_mutable else 0  # what is written to is no number
    numbers = [each for each in tensors[first:] if takes_numbers and each.dim() == 0]
    if any(not isinstance(each, SimulatedTensor) and all(each is not n for n in numbers) for each in tensors):
        found = ", ".join(f"{tuple(each.shape)} on {each.device}" for each in tensors)
        raise RuntimeError(
            f"Expected all tensors to be on the same device, but {func} was given tensors on {NAME}:0 and cpu: {found}"
        )


def _wait_of(packet: Any, args: Any, kwargs: Any, tensors: list[torch.Tensor]) -> str | None:
    """What the host waits for in an operation, as with CUDA; `None`: it does not."""
    if packet is aten._to_copy or packet is aten.copy_:
        target = kwargs.get("device", tensors[0].device)
        is_from, is_to = isinstance(tensors[-1], SimulatedTensor), torch.device(target).type == NAME
        if (
            is_from == is_to
            or tensors[-1].numel() == 0
            or kwargs.get("non_blocking")
            or (packet is aten.copy_ and args[2:3] == (True,))
        ):
            return None
        return "from the host" if is_to else "to the host"
    if packet in INDEXING:
        indices = [each for each in args[1] if each is not None]
        if not all(isinstance(each, SimulatedTensor) for each in indices):
            return "index on the CPU"
        is_fill = packet is not aten.index and args[2].dim() == 0  # a number: becomes `masked_fill`
        return "mask" if any(each.dtype in (torch.bool, torch.uint8) for each in indices) and not is_fill else None
    if packet is aten.repeat_interleave and kwargs.get("output_size") is None:
        return "repeat_interleave"
    return WAITING.get(packet)


def place() -> str:
    """`FILE:LINE` of the innermost frame that is not of what waits on behalf of its caller."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        _, is_installed, name = frame.f_code.co_filename.rpartition("site-packages/")
        if not any(part in ("/" if is_installed else "") + name for part in CALLED):
            return f"{name}:{frame.f_lineno}"
        frame = frame.f_back
    return "backward"


class _Generator(torch._C.Generator):
    """A generator of the CPU that may be the device's."""

    of_device: ClassVar[dict[int | None, Any]] = {None: None}
    """By their addresses: an operation is given another object."""

    def __new__(cls, device: Any = "cpu") -> _Generator:
        made = super().__new__(cls)
        if torch.device(device).type == NAME:
            cls.of_device[made._cdata] = made
        return made

    @property
    def device(self) -> torch.device:
        return torch.device(NAME, 0) if self._cdata in self.of_device else torch.device("cpu")


def _no_array(tensor: SimulatedTensor, *_: Any) -> Any:
    raise TypeError(f"can't convert {tensor.device} tensor to numpy. Copy it to host memory first: Tensor.cpu().")


def _not_pinned(tensor: SimulatedTensor, *_: Any) -> Any:
    raise RuntimeError(f"cannot pin a tensor on {tensor.device}, only dense CPU tensors can be pinned")


def _to_device(load: Callable[..., Any]) -> Callable[..., Any]:
    def loaded(file: Any, map_location: Any = None, **kwargs: Any) -> Any:
        if not isinstance(map_location, str | torch.device) or torch.device(map_location).type != NAME:
            return load(file, map_location=map_location, **kwargs)
        return tree_map_only(torch.Tensor, lambda each: each.to(NAME), load(file, map_location="cpu", **kwargs))

    return loaded
