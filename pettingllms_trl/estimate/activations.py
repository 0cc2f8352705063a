"""What a forward and backward pass of the update holds at its peak: the pass itself, run on tensors without storage.

PyTorch's fake tensors have shapes and types, and every operation of the model's own code runs on them, gradient
checkpointing and mixed precision included. Counted is what is alive, from when an operation returns it until it is
collected; a caching allocator's fragmentation and the kernels' workspaces are not in it.
"""

from __future__ import annotations

import warnings
import weakref
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import torch
from peft import PeftConfig, get_peft_model
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from transformers import AttentionInterface, AttentionMaskInterface, PretrainedConfig
from transformers.integrations.sdpa_attention import sdpa_attention_forward

from pettingllms_trl.estimate.shapes import auto_class, vision_tower


CAUSAL = "pettingllms_causal"
"""Name of attention by `scaled_dot_product_attention` without a mask: transformers makes one for fake tensors, which
it cannot look into, and so takes a kernel that keeps more."""


OF_LAYER, OF_ENDS = 24, 10
"""Numbers for each patch and hidden unit that a layer of a vision tower keeps until the backward pass, and what is
before and after its layers: as `LiveBytes` counts them of Qwen2.5-VL's in float32, and as is assumed of all. A tower
looks into the sizes of its images, and cannot run on tensors without storage."""


class LiveBytes(TorchDispatchMode):  # type: ignore[no-untyped-call]  # torch has not annotated it
    """Counts the bytes of tensors that operations inside the block return and that live, but for the `ignored`."""

    def __init__(self, ignored: Iterable[torch.Tensor] = ()) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.now = 0
        self.peak = 0
        self._known = weakref.WeakSet(tensor.untyped_storage() for tensor in ignored)

    def __torch_dispatch__(self, func: Callable[..., Any], types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Run an operation and count what it returns; called by PyTorch."""
        result = func(*args, **(kwargs or {}))
        for tensor in tree_leaves(result):
            if isinstance(tensor, torch.Tensor):
                self._count(tensor.untyped_storage())
        return result

    def _count(self, storage: torch.UntypedStorage) -> None:
        if storage in self._known:
            return
        self._known.add(storage)
        size = storage.nbytes()
        self.now += size
        self.peak = max(self.peak, self.now)
        weakref.finalize(storage, self._forget, size)

    def _forget(self, size: int) -> None:
        self.now -= size


@dataclass(frozen=True, slots=True)
class PassBytes:
    """The most bytes of a pass at any time above weights and gradients, without the logits, and those kept between
    forward and backward pass, when the logits are computed."""

    peak: int
    kept: int

    def of_rows(self, rows: int, among: int) -> PassBytes:
        """Of some of the rows, in proportion."""
        return PassBytes(self.peak * rows // among, self.kept * rows // among)


def pass_bytes(
    config: PretrainedConfig,
    *,
    rows: int,
    length: int,
    dtype: torch.dtype,
    in_bfloat16: bool,
    checkpointing: bool,
    peft_config: PeftConfig | None = None,
    patches: int = 0,
) -> PassBytes:
    """What a pass through the layers takes.

    Args:
        config: Of a causal language model, with or without vision.
        rows, length: Sequences of a pass, and the tokens of each.
        patches: Of the images of each sequence, which a vision tower reads.
        in_bfloat16: Whether the pass is under autocast (`bf16=True`), which copies float32 weights.
        checkpointing: Whether layers are computed again in the backward pass.
        peft_config: Of the adapter that is trained; `None`: all weights are.
    """
    with torch.device("meta"):
        model: Any = auto_class(config).from_config(config, dtype=dtype, attn_implementation=CAUSAL)
        if peft_config is not None:
            model = get_peft_model(model, peft_config)
    with FakeTensorMode():
        _put_on_cpu(model)
        found = measured_pass(model, rows=rows, length=length, in_bfloat16=in_bfloat16, checkpointing=checkpointing)
    tower = vision_tower(model, config)
    if tower is None or not patches:
        return found
    width = 2 if in_bfloat16 else dtype.itemsize
    layers = getattr(config.vision_config, "depth", None) or config.vision_config.num_hidden_layers
    inputs = rows * patches * config.vision_config.hidden_size * width  # of each layer
    if not any(parameter.requires_grad for parameter in tower.parameters()):  # nothing is kept for a backward pass
        return PassBytes(max(found.peak, OF_LAYER * inputs), found.kept)
    kept = (layers * (1 if checkpointing else OF_LAYER) + OF_ENDS) * inputs
    return PassBytes(found.peak + kept + OF_LAYER * inputs * checkpointing, found.kept + kept)


def measured_pass(model: Any, *, rows: int, length: int, in_bfloat16: bool, checkpointing: bool) -> PassBytes:
    """As `pass_bytes`, of a model on this CPU, with tensors that are really computed."""
    model.train()
    if checkpointing:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", FutureWarning)  # transformers 5.23 renamed it
            model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
    trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
    for parameter in trained:
        parameter.grad = torch.zeros_like(parameter)
    ids = torch.zeros((rows, length), dtype=torch.long)
    decoder = _decoder(model)
    with LiveBytes([*model.parameters(), *model.buffers(), *(p.grad for p in trained if p.grad is not None)]) as live:
        with torch.autocast("cpu", torch.bfloat16, enabled=in_bfloat16):
            hidden = decoder(input_ids=ids, use_cache=False).last_hidden_state
        kept = live.now
        hidden.backward(torch.ones_like(hidden))
    return PassBytes(live.peak, kept)


def _put_on_cpu(model: nn.Module) -> None:
    """Replace every parameter and buffer by an empty one on the CPU; tied ones stay tied. PEFT and `Module.to` cannot
    convert fake tensors themselves."""
    made: dict[int, nn.Parameter] = {}
    for module in model.modules():
        for name, parameter in module.named_parameters(recurse=False):
            if id(parameter) not in made:
                empty = torch.empty(parameter.shape, dtype=parameter.dtype)
                made[id(parameter)] = nn.Parameter(empty, requires_grad=parameter.requires_grad)
            module.register_parameter(name, made[id(parameter)])
        for name, buffer in module.named_buffers(recurse=False):
            module._buffers[name] = torch.empty(buffer.shape, dtype=buffer.dtype)


def _decoder(model: Any) -> nn.Module:
    """The layers without the head, adapters on them included."""
    causal = model.get_base_model() if hasattr(model, "get_base_model") else model
    found: nn.Module = causal.base_model
    return found


def _no_mask(**_: Any) -> None:
    """Of `CAUSAL`."""


AttentionInterface.register(CAUSAL, sdpa_attention_forward)
AttentionMaskInterface.register(CAUSAL, _no_mask)
