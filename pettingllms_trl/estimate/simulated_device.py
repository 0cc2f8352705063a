"""A simulated accelerator: tensors that say they are on `mlu:0`, and hold their values on the CPU.

accelerate and transformers take a device of this name for a real one (PyTorch's Python backend for the dispatch key
PrivateUse1), so a whole training runs on it, and tests find what a first run on a GPU would: they raise for tensors of
two devices in one operation, and keep each wait of the host (`tests/accelerator/watched_device.py`).

It has values and no time. It cannot show what kernels do (their numerical differences, races, streams, graphs), what
an allocator does, nor several processes: accelerate has no backend for such a device here. Code of others for GPUs
alone, such as an optimizer's fused step, flash attention, vLLM and `use_transformers_continuous_batching`, which needs
streams, is not run on it.

Once it is there a process cannot be rid of it (the key's name, `torch.tensor`, `sys.modules`), so it is used in child
processes, and training never imports it. `simulated_autocast.py` has its automatic mixed precision.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from contextlib import nullcontext
from importlib.machinery import ModuleSpec
from types import ModuleType, SimpleNamespace
from typing import Any, ClassVar, Self

import torch
from torch.utils._device import _device_constructors

from pettingllms_trl.estimate.simulated_autocast import register_autocast


NAME = "mlu"
"""A device of a kind that accelerate and transformers know, and that no test machine has."""
pytorch: Any = torch  # whose annotations know no subclass of a tensor
aten = pytorch.ops.aten
_FALLBACK = pytorch.library.Library("_", "IMPL")
_FACTORIES = pytorch.library.Library("aten", "IMPL", "PrivateUse1")


class SimulatedTensor(pytorch.Tensor):
    """A tensor on the device; `held` has its values."""

    machine: ClassVar[SimulatedDevice]
    held: torch.Tensor

    @staticmethod
    def __new__(cls, held: torch.Tensor, requires_grad: bool = False) -> SimulatedTensor:
        laid = {"strides": held.stride(), "storage_offset": held.storage_offset(), "dtype": held.dtype}
        made: SimulatedTensor = pytorch.Tensor._make_wrapper_subclass(
            cls, held.size(), **laid, device=torch.device(NAME, 0), requires_grad=requires_grad
        )
        made.held = held
        return made

    __torch_function__ = torch._C._disabled_torch_function_impl

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        # In inference mode operations arrive that are made of others.
        found = func.decompose(*args, **(kwargs or {})) if torch.is_inference_mode_enabled() else NotImplemented
        return cls.machine.run(func, args, kwargs or {}) if found is NotImplemented else found

    def __repr__(self, **_: Any) -> str:
        return f"{self.held!r} on {self.device}"

    def __getitem__(self, index: Any) -> Any:
        return super().__getitem__(_on_device(index))

    def __setitem__(self, index: Any, value: Any) -> None:
        super().__setitem__(_on_device(index), value)

    def __deepcopy__(self, memo: dict[int, Any]) -> SimulatedTensor:
        made = type(self)(self.held.clone(), self.requires_grad)
        made.__dict__ |= {**self.__dict__, "held": made.held}
        return memo.setdefault(id(self), made)

    def tolist(self) -> Any:
        return self.cpu().tolist()

    def new_tensor(self, data: Any, *, device: Any = None, **options: Any) -> Any:
        return torch.tensor(data, device=device or self.device, **{"dtype": self.dtype, **options})

    def untyped_storage(self) -> torch.UntypedStorage:
        return self.held.untyped_storage()

    def data_ptr(self) -> int:
        return self.held.data_ptr()

    @property
    def data(self) -> Any:
        return self.detach()

    @data.setter
    def data(self, value: SimulatedTensor) -> None:
        assert value.shape == self.shape, "the shape of a tensor on the simulated device is fixed"
        self.held = value.held


class SimulatedDevice:
    """The device: runs each operation on what its tensors hold.

    A subclass may look at what is run (`check`), and hold something else than values (`hold`, `compute`).
    """

    def __init__(self) -> None:
        self.autocast_results: set[tuple[str, torch.dtype]] = set()
        """The name of each operation that ran under autocast, and the type of its result."""

    @classmethod
    def install(cls) -> Self:
        """Make the device this process's only accelerator, for good.

        Raises:
            RuntimeError: accelerate or transformers were imported before, which ask once which devices there are.
        """
        if early := {"accelerate", "transformers"} & sys.modules.keys():
            raise RuntimeError(
                f"{' and '.join(sorted(early))} imported before the simulated device, of which they would not know; "
                "expected it to be the first. Call install() before you import them."
            )
        from torch.utils.backend_registration import _setup_privateuseone_for_python_backend  # from PyTorch 2.13 on

        device = SimulatedTensor.machine = cls()
        _setup_privateuseone_for_python_backend(NAME, backend_module=device.backend())
        _FALLBACK.fallback(lambda func, *args, **kwargs: device.run(func, args, kwargs), "PrivateUse1")
        # PyTorch's own make an empty tensor and change its size.
        makers = (aten.arange.default, aten.arange.start, aten.arange.start_step, aten.eye.default, aten.eye.m)
        # Kernels on a CPU and on CUDA, but several operations on others, each of which would be rounded.
        fused = (aten.silu_backward.default, aten.mish_backward.default)
        for func in (*makers, *fused):
            _FACTORIES.impl(func, lambda *args, func=func, **kwargs: device.run(func, args, kwargs))
        register_autocast(NAME, device.autocast_results)
        module: Any = ModuleType(f"torch_{NAME}")
        module.__spec__, module.mlu = ModuleSpec(module.__name__, None), torch.get_device_module(NAME)
        sys.modules[module.__name__] = module
        _device_constructors()  # remembers PyTorch's own, which `with torch.device(...)` knows
        # These read Python's data in C++ where no dispatch is.
        for name in ("tensor", "as_tensor", "asarray"):
            setattr(torch, name, _through_the_host(getattr(torch, name)))
        torch.__future__.set_swap_module_params_on_conversion(True)  # else `.to(device)` parts tied parameters
        return device

    def backend(self) -> SimpleNamespace:
        """`torch.mlu`, what `torch.cuda` is for GPUs. Random numbers are the CPU's."""
        nothing = ("set_device", "synchronize", "empty_cache", "manual_seed", "manual_seed_all")
        zero = ("current_device", "memory_allocated", "max_memory_allocated", "memory_reserved", "max_memory_reserved")
        backend = SimpleNamespace(
            **dict.fromkeys((*nothing, "reset_peak_memory_stats"), lambda *_: None),
            **dict.fromkeys(zero, lambda *_: 0),
            **dict.fromkeys(("is_available", "is_initialized", "is_bf16_supported"), lambda *_: True),
            _is_in_bad_fork=lambda: False,
            device_count=lambda: 1,
            device=lambda index: nullcontext(),
            get_amp_supported_dtype=lambda: [torch.bfloat16, torch.float16],
            get_device_name=lambda *_: "simulated",
            get_rng_state=lambda *_: torch.get_rng_state(),
            get_rng_state_all=lambda: [torch.get_rng_state()],
            set_rng_state=lambda state, *_: torch.set_rng_state(state),
            set_rng_state_all=lambda states: torch.set_rng_state(states[0]),
        )
        backend.random = backend
        return backend

    def hold(self, tensor: torch.Tensor) -> SimulatedTensor:
        """A tensor on the device, from one on the CPU."""
        return SimulatedTensor(tensor)

    def compute(self, func: Any, args: Any, kwargs: Any) -> Any:
        """The result of an operation on what tensors hold."""
        return func(*args, **kwargs)

    def check(self, func: Any, args: Any, kwargs: Any, tensors: list[torch.Tensor]) -> None:
        """Called before each operation, with all of its tensors."""

    def run(self, func: Any, args: Any, kwargs: Any) -> Any:
        """An operation that has a tensor on the device, or makes one there."""
        tensors = tensors_of((args, kwargs))
        self.check(func, args, kwargs, tensors)
        own, target = {name: value for name, value in kwargs.items() if name != "pin_memory"}, kwargs.get("device")
        if target is not None:
            own["device"] = torch.device("cpu")
        result = self.compute(func, *mapped(SimulatedTensor, _held, (args, own)))
        if func._schema.is_mutable:
            names = [each.name for each in func._schema.arguments if each.alias_info and each.alias_info.is_write]
            given = {each.name: value for each, value in zip(func._schema.arguments, args, strict=False)} | kwargs
            written = [given[name] for name in names if name in given]
            for each in tensors_of(written):
                assert not hasattr(each, "held") or each.held.shape == each.shape, f"{func} changes a shape"
            several = tuple(written) if len(func._schema.returns) > 1 else written[0]
            return several if func._schema.returns else None
        is_here = any(isinstance(each, SimulatedTensor) for each in tensors)
        if not (is_here if target is None else torch.device(target).type == NAME):
            return result
        return mapped(torch.Tensor, self.hold, result)


def tensors_of(given: Any) -> list[torch.Tensor]:
    """The tensors in lists, tuples and dicts, in their order. PyTorch's own way takes as long as an operation."""
    if isinstance(given, torch.Tensor):
        return [given]
    if isinstance(given, dict):
        given = given.values()
    elif not isinstance(given, list | tuple):
        return []
    return [tensor for each in given if not isinstance(each, _PLAIN) for tensor in tensors_of(each)]


def mapped(kind: Any, change: Callable[[Any], Any], given: Any) -> Any:
    """The same with each tensor of a kind changed."""
    if isinstance(given, kind):
        return change(given)
    if isinstance(given, dict):
        return {name: mapped(kind, change, each) for name, each in given.items()}
    if isinstance(given, list | tuple) and not isinstance(given, torch.Size):
        return type(given)([mapped(kind, change, each) for each in given])
    return given


def _held(tensor: SimulatedTensor) -> torch.Tensor:
    return tensor.held


_PLAIN = (int, float, str, torch.dtype, torch.device, type(None))


def _on_device(index: Any) -> Any:
    """An index in which lists are tensors, as C++ makes them."""
    if isinstance(index, tuple):
        return tuple(map(_on_device, index))
    return torch.tensor(index, device=NAME) if isinstance(index, list) else index


def _through_the_host(make: Callable[..., Any]) -> Callable[..., Any]:
    def made(data: Any, *args: Any, device: Any = None, requires_grad: bool = False, **kwargs: Any) -> Any:
        kwargs |= {"requires_grad": True} if requires_grad else {}
        if isinstance(data, SimulatedTensor) or device is None or torch.device(device).type != NAME:
            return make(data, *args, **({} if device is None else {"device": device}), **kwargs)
        plain = mapped(SimulatedTensor, SimulatedTensor.tolist, data)  # a list may have some
        return make(plain, *args, **kwargs).detach().to(device).requires_grad_(requires_grad)

    return made
