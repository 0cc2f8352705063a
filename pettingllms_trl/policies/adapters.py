"""Attaches several LoRA adapters to one base model, switches between them, and copies them as KL references.

Routing uses `set_adapter`, which also freezes every other adapter; PEFT would then leave them out of the optimizer and
silently drop their gradients (huggingface/peft#2763), so gradients are enabled again right away. No adapter is
switched between a forward and its backward pass, since with gradient checkpointing the latter runs the former again.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from peft import (
    LoraConfig,
    PeftConfig,
    PeftModel,
    get_peft_model,
    get_peft_model_state_dict,
    set_peft_model_state_dict,
)
from peft.tuners.tuners_utils import BaseTunerLayer
from transformers import PreTrainedModel

from pettingllms_trl.policies.routing import REFERENCE


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
    if _is_active(model, adapter, trained):
        return  # PEFT would traverse all modules
    model.set_adapter(adapter, inference_mode=adapter not in trained)
    if trained:
        model.set_requires_grad(list(trained), True)


def _is_active(model: PeftModel, adapter: str, trained: Sequence[str]) -> bool:
    """Whether a model is as `activate` leaves it. PEFT switches all layers alike, so the first one tells."""
    if model.active_adapters != [adapter]:
        return False
    for layer in model.modules():
        if isinstance(layer, BaseTunerLayer):
            break
    else:
        return False
    if layer.disable_adapters or layer.active_adapters != [adapter]:
        return False
    enabled, frozen = set[str](), set[str]()
    for kind in layer.adapter_layer_names:
        for name, parameter in getattr(layer, kind).named_parameters():
            (enabled if parameter.requires_grad else frozen).add(name.partition(".")[0])
    return enabled == {*trained} and frozen.isdisjoint(trained) and adapter in enabled | frozen


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


def train_active(model: PeftModel) -> str:
    """Train the active adapter of a given model, also one that was loaded frozen. Returns its name.

    Raises:
        ValueError: Several are active.
    """
    if len(model.active_adapters) != 1:
        raise ValueError(
            f"the model has the active adapters {', '.join(model.active_adapters)}, expected one: a policy is trained "
            "by one adapter. Call model.set_adapter(name), or name one for each role: policies={role: name, ...}."
        )
    (adapter,) = model.active_adapters
    if not any(p.requires_grad for p in model.parameters()):  # PEFT loads so without `is_trainable=True`
        model.set_requires_grad(adapter, True)
    return adapter


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
