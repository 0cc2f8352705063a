"""Attaches several LoRA adapters to one base model, switches between them, and copies them as KL references.

Routing uses `set_adapter`, which also freezes every other adapter; PEFT would then leave them out of the optimizer and
silently drop their gradients (huggingface/peft#2763), so gradients are enabled again right away. No adapter is
switched between a forward and its backward pass, since with gradient checkpointing the latter runs the former again.

`ModuleCache` keeps the results of traversing a model's modules for the duration of an optimizer step. A traversal
takes as long as a small model's own arithmetic, and a pass needs several: which layers carry adapters, which attention
layers need the packed layout, whether all modules are in training mode. The cache is cleared after every step, so that
a callback may replace modules.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from operator import attrgetter
from typing import Any, TypeVar

from peft import (
    LoraConfig,
    PeftConfig,
    PeftModel,
    get_peft_model,
    get_peft_model_state_dict,
    set_peft_model_state_dict,
)
from peft.tuners.tuners_utils import BaseTuner, BaseTunerLayer
from peft.utils.other import AuxiliaryTrainingWrapper
from torch import nn
from transformers import PreTrainedModel

from pettingllms_trl.policies.routing import REFERENCE


Found = TypeVar("Found")
TRAINING = attrgetter("training")


class ModuleCache:
    """Caches the results of traversing models, until it is invalidated."""

    def __init__(self) -> None:
        self._found: dict[tuple[nn.Module, Callable[..., Any]], Any] = {}

    def of(self, model: nn.Module, find: Callable[[nn.Module], Found]) -> Found:
        """The result of `find` for a model, computed at most once."""
        key = (model, find)
        if key not in self._found:
            self._found[key] = find(model)
        found: Found = self._found[key]
        return found

    def invalidate(self) -> None:
        """Forget all results, since models may have changed."""
        self._found.clear()


def modules_of(model: nn.Module) -> tuple[nn.Module, ...]:
    """The model and all its submodules."""
    return tuple(model.modules())


@contextmanager
def training(model: nn.Module, modules: tuple[nn.Module, ...]) -> Iterator[None]:
    """Put a model into training mode and make further calls of `train()` cheap inside the block.

    transformers calls `train()` before every pass, which traverses all modules. Here it does nothing if all modules
    are in training mode already.

    Args:
        model: Any model.
        modules: The result of `modules_of`.
    """
    plain = model.train

    def train(mode: bool = True) -> nn.Module:
        return model if mode and all(map(TRAINING, modules)) else plain(mode)

    train()
    before = vars(model).get("train")
    model.train = train  # type: ignore[method-assign]
    try:
        yield
    finally:
        if before is None:
            del model.train
        else:
            model.train = before  # type: ignore[method-assign]


def attach_adapters(
    model: PreTrainedModel | PeftModel,
    adapters: Sequence[str],
    config: PeftConfig | None,
    *,
    trained: Sequence[str] | None = None,
) -> PeftModel:
    """The model with an adapter of each name; adapters that a given `PeftModel` already has are kept.

    Args:
        model: A base model, or a `PeftModel` whose adapters have these names.
        adapters: At least one name.
        config: Configuration of new adapters. `None`: rank 16, alpha 32, every linear layer but the head.
        trained: Names of the adapters to train. `None`: all.

    Raises:
        ValueError: A name is that of one of the model's modules, or an adapter is on the model's head.
    """
    base = model.get_base_model() if isinstance(model, PeftModel) else model
    own = (name.partition(".lora_")[0] for name, _ in base.named_modules())
    modules = {"base_model", *(part for name in own for part in name.split("."))}
    for name in adapters:
        if name in modules:
            raise ValueError(
                f"adapter name {name!r} is also that of a module of {type(base).__name__}, and PEFT tells the "
                "parameters of adapters by name. Choose another: policies={role: name, ...}."
            )
    config = config or LoraConfig(r=16, lora_alpha=32, target_modules="all-linear", task_type="CAUSAL_LM")
    if not isinstance(model, PeftModel):
        model = get_peft_model(model, config, adapter_name=adapters[0])
    for name in adapters:
        if name not in model.peft_config:
            model.add_adapter(name, config)
    if isinstance(model.get_output_embeddings(), BaseTunerLayer):
        # TRL refuses it too, but looks for it only where the whole model is a PeftModel.
        raise ValueError(
            "an adapter is on lm_head, whose weight TRL multiplies with directly, so that it would never be trained. "
            "Remove 'lm_head' from peft_config.target_modules."
        )
    activate(model, adapters[0], adapters if trained is None else trained)
    return model


def activate(model: PeftModel, adapter: str, trained: Sequence[str]) -> None:
    """Route the next forward pass through `adapter`, and keep the gradients of all trained adapters enabled."""
    model.set_adapter(adapter, inference_mode=adapter not in trained)
    if trained:
        model.set_requires_grad(list(trained), True)


class Switch:
    """A faster `activate` for many switches of one model, where PEFT traverses all modules and all adapters' weights.

    Which weights have gradients does not depend on the active adapter, so only a name in each layer changes. It falls
    back to `activate` the first time, after any other change, and for layers that override `set_adapter`.

    Args:
        model: A model whose layers are not replaced while this is in use.
        trained: Names of the trained adapters.
    """

    def __init__(self, model: PeftModel, trained: Sequence[str]) -> None:
        self._model, self._trained = model, trained
        self._layers = [module for module in model.modules() if isinstance(module, BaseTunerLayer)]
        self._only_names = (
            type(model).set_adapter is PeftModel.set_adapter
            and type(model.base_model).set_adapter is BaseTuner.set_adapter
            and all(type(layer).set_adapter is BaseTunerLayer.set_adapter for layer in self._layers)
            and not any(isinstance(module, AuxiliaryTrainingWrapper) for module in model.modules())
        )
        self._gradients: list[tuple[nn.Parameter, bool]] = []

    def to(self, adapter: str) -> None:
        """Route the next forward pass through an adapter."""
        if self._only_names and self._is_as_it_was():
            for layer in self._layers:
                layer._active_adapter = [adapter]
            self._model.active_adapter = self._model.base_model.active_adapter = adapter
            return
        activate(self._model, adapter, self._trained)
        bases = {id(p) for layer in self._layers for p in layer.get_base_layer().parameters()}
        own = {id(p): p for layer in self._layers for p in layer.parameters() if id(p) not in bases}
        self._gradients = [(p, p.requires_grad) for p in own.values()]

    def _is_as_it_was(self) -> bool:
        """Whether nothing was frozen or merged since the last `activate`."""
        return (
            bool(self._gradients)
            and all(p.requires_grad is before for p, before in self._gradients)
            and not any(layer.merged_adapters for layer in self._layers)
        )


@contextmanager
def acting_as(model: PeftModel, adapter: str | None, trained: Sequence[str]) -> Iterator[None]:
    """Route forward passes inside the block through another adapter, or through the base without any."""
    before = model.active_adapters[0]
    try:
        if adapter is None:
            with model.disable_adapter():
                yield
        else:
            activate(model, adapter, trained)
            yield
    finally:  # leaving `disable_adapter` freezes all but the active one
        activate(model, before, trained)


def keep_reference(model: PeftModel, adapter: str) -> str:
    """Add a frozen copy of an adapter's current weights. Returns the copy's name."""
    name = REFERENCE + adapter
    config = copy.deepcopy(model.peft_config[adapter])
    if isinstance(config, LoraConfig):
        config.init_lora_weights = True  # others, such as PiSSA, change the base they are added to
    model.add_adapter(name, config)
    set_peft_model_state_dict(model, get_peft_model_state_dict(model, adapter_name=adapter), adapter_name=name)
    model.set_requires_grad(name, False)
    return name
