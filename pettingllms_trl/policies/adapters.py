"""Attaches several LoRA adapters to one base model, switches between them, and copies them as KL references.

Routing uses `set_adapter`, which also freezes every other adapter; PEFT would then leave them out of the optimizer and
silently drop their gradients (huggingface/peft#2763), so gradients are enabled again right away. No adapter is
switched between a forward and its backward pass, since with gradient checkpointing the latter runs the former again.

Some adapters change more than themselves: PiSSA takes its matrices out of the base model's weights, so that the base
without the adapter is another model, and a second adapter stands on what the first has left. Where the base is also
used without an adapter, such settings are refused; elsewhere they work as in TRL.

| what                                | when it is checked                                                           |
|-------------------------------------|------------------------------------------------------------------------------|
| settings that change the base       | before a model is loaded, also of adapters that a given model carries        |
| the base's tensors                  | a checksum of each, before the first adapter is added and after the last     |
| what a policy starts from           | one short row, against its reference and against the base without an adapter |
| what is trained                     | when the trainer is created, and when its optimizer is                       |
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial

import peft
import torch
from peft.tuners.tuners_utils import BaseTunerLayer
from torch import nn
from transformers import PreTrainedModel

from pettingllms_trl.policies.routing import REFERENCE, Policy


PLAIN_INITIALISATIONS = (True, False, "gaussian", "eva", "orthogonal", "mica")
"""Values of `init_lora_weights` that leave the base model as it is. The others (PiSSA, OLoRA, CorDA, LoftQ, LoRA-GA)
train on a changed base."""
CHANGE_BASE = ("kasa_config", "layer_replication")
"""Further fields of `LoraConfig` that change the base's weights or layers where they are set."""
ParametersOf = Callable[[Policy], list[nn.Parameter]]
EXACT, ROUGH = 1e-3, 0.1
"""Largest difference that is rounding: of log-probabilities in float32, of probabilities in 16 bits."""


def attach_adapters(
    model: PreTrainedModel | peft.PeftModel,
    adapters: Sequence[str],
    config: peft.PeftConfig | None,
    *,
    trained: Sequence[str] | None = None,
) -> peft.PeftModel:
    """The model with an adapter of each name; adapters that a given `PeftModel` already has are kept.

    Args:
        model: A base model, or a `PeftModel` whose adapters have these names.
        config: Configuration of new adapters. `None`: rank 16, alpha 32, every linear layer but the head.
        trained: Names of the adapters to train. `None`: all.
    """
    base = model.get_base_model() if isinstance(model, peft.PeftModel) else model
    dicts = {n for n, m in base.named_modules() if isinstance(model, peft.PeftModel) and isinstance(m, nn.ModuleDict)}
    names = (name.rpartition(".") for name, _ in base.named_modules())
    modules = {"base_model", *(own for parent, _, own in names if parent not in dicts)}  # there it is an adapter's
    for name in adapters:
        if name in modules:
            raise ValueError(
                f"adapter name {name!r} is also that of a module of {type(base).__name__}, and PEFT tells the "
                "parameters of adapters by name. Choose another: policies={role: name, ...}."
            )
    config = config or peft.LoraConfig(r=16, lora_alpha=32, target_modules="all-linear", task_type="CAUSAL_LM")
    if not isinstance(model, peft.PeftModel):
        model = peft.get_peft_model(model, config, adapter_name=adapters[0])
    for name in adapters:
        if name not in model.peft_config:
            model.add_adapter(name, config)
    if isinstance(model.get_output_embeddings(), BaseTunerLayer):
        # TRL refuses it too, but looks for it only where the whole model is a PeftModel.
        raise ValueError(
            "an adapter is on lm_head, whose weight TRL multiplies with directly, so that it would never be trained. "
            "Remove 'lm_head', or the embeddings tied to it, from peft_config.target_modules."
        )
    activate(model, adapters[0], adapters if trained is None else trained)
    return model


def activate(model: peft.PeftModel, adapter: str, trained: Sequence[str]) -> None:
    """Route the next forward pass through `adapter`, and keep the gradients of all trained adapters enabled."""
    if _is_active(model, adapter, trained):
        return  # PEFT would traverse all modules
    model.set_adapter(adapter, inference_mode=adapter not in trained)
    if trained:
        model.set_requires_grad(list(trained), True)


def _is_active(model: peft.PeftModel, adapter: str, trained: Sequence[str]) -> bool:
    """Whether a model is as `activate` leaves it. PEFT switches all layers alike, so the first one tells."""
    layer = next((each for each in model.modules() if isinstance(each, BaseTunerLayer)), None)
    if layer is None or layer.disable_adapters or not model.active_adapters == layer.active_adapters == [adapter]:
        return False
    enabled, frozen = set[str](), set[str]()
    for kind in layer.adapter_layer_names:
        for name, parameter in getattr(layer, kind).named_parameters():
            (enabled if parameter.requires_grad else frozen).add(name.partition(".")[0])
    return enabled == {*trained} and frozen.isdisjoint(trained) and adapter in enabled | frozen


@contextmanager
def acting_as(model: peft.PeftModel, adapter: str | None, trained: Sequence[str]) -> Iterator[None]:
    """Route forward passes inside the block through another adapter, or through the base without any."""
    before, grads = model.active_adapters[0], [(p, p.requires_grad) for p in model.parameters()]
    try:
        if adapter is None:
            with model.disable_adapter():
                yield
        else:
            activate(model, adapter, trained)
            yield
    finally:  # leaving `disable_adapter` freezes all but the active one, of which a part may have been frozen
        activate(model, before, trained)
        for parameter, requires_grad in grads:
            parameter.requires_grad_(requires_grad)


def train_active(model: peft.PeftModel) -> str:
    """Train the active adapter of a given model, also a frozen one; its name. `ValueError` if several are active."""
    if len(model.active_adapters) != 1:
        raise ValueError(
            f"the model has the active adapters {', '.join(model.active_adapters)}, expected one: a policy is trained "
            "by one adapter. Call model.set_adapter(name), or name one for each role: policies={role: name, ...}."
        )
    (adapter,) = model.active_adapters
    if not any(p.requires_grad for n, p in model.named_parameters() if adapter in n.split(".")):  # PEFT's default
        model.set_requires_grad(adapter, True)
    return adapter


def keep_reference(model: peft.PeftModel, adapter: str) -> str:
    """Add a frozen copy of an adapter's current weights. Returns the copy's name."""
    name = REFERENCE + adapter
    config = copy.deepcopy(model.peft_config[adapter])
    if isinstance(config, peft.LoraConfig):
        config.init_lora_weights = True  # others, such as PiSSA, change the base they are added to
    model.add_adapter(name, config)
    copy_adapter(model, adapter, name)
    model.set_requires_grad(name, False)
    return name


def copy_adapter(model: peft.PeftModel, source: str, target: str) -> None:
    """Give one adapter the weights of another with the same configuration."""
    peft.set_peft_model_state_dict(
        model, peft.get_peft_model_state_dict(model, adapter_name=source), adapter_name=target
    )


def changed_by(config: peft.PeftConfig) -> str | None:
    """The setting by which an adapter changes the base model or trains a part of it; `None`: it has none."""
    if isinstance(config, peft.LoraConfig):
        if config.init_lora_weights not in PLAIN_INITIALISATIONS:
            return f"init_lora_weights={config.init_lora_weights!r}"
        if found := [name for name in CHANGE_BASE if getattr(config, name)]:
            return found[0]
    bias = getattr(config, "bias", "none")
    return f"bias={bias!r}" if bias in ("all", "lora_only") else None


def check_base_is_kept(configs: Mapping[str, peft.PeftConfig], also: str | None) -> None:
    """Validate that no adapter changes a base model that is also used without it.

    `also` says how the base is used without one of them; `None`: it is not.
    """
    for name, config in configs.items():
        if also is not None and (what := changed_by(config)):
            raise ValueError(
                f"the adapter {name!r} has {what}, which changes the base model, and {also}; expected an adapter that "
                "leaves the base as it is. Set init_lora_weights=True (or 'gaussian', 'eva', 'orthogonal', 'mica') in "
                "peft_config, or leave the setting out; or convert a saved adapter to plain LoRA "
                "(save_pretrained(..., path_initial_model_for_weight_conversion=...))."
            )


def several(names: Collection[str]) -> str | None:
    """How the base of several adapters is used without each of them; `None` for one adapter."""
    return f"{', '.join(map(repr, names))} stand on one base" if len(names) > 1 else None


@contextmanager
def unchanged(model: nn.Module) -> Iterator[None]:
    """Within, adapters are added to a model; raises `ValueError` if that changes a tensor that it has now."""
    modules = () if is_sharded(model) else model.modules()
    held = [(m, name, checksum(p)) for m in modules for name, p in m.named_parameters(recurse=False)]
    yield
    for module, name, before in held:
        now = dict(module.named_parameters(recurse=False)).get(name)
        if now is None or checksum(now) != before:
            raise ValueError(
                f"adding adapters has changed {name!r} of a {type(module).__name__} of the base model, which other "
                "policies, references or partners use, too; expected adapters that leave the base as it is. Set "
                "another peft_config, such as LoraConfig()."
            )


def checksum(tensor: torch.Tensor) -> int:
    """A checksum of a tensor's bits."""
    raw = tensor.detach().contiguous().flatten()
    is_aligned = raw.element_size() * raw.numel() % 8 == 0 == raw.element_size() * raw.storage_offset() % 8
    return int(raw.view(torch.int64 if is_aligned else torch.uint8).sum(dtype=torch.int64))


def is_sharded(model: nn.Module) -> bool:
    """Whether this process holds a part of a model's weights alone, or none."""
    return any(p.is_meta or hasattr(p, "ds_id") for p in model.parameters())


def make_ready(model: peft.PeftModel) -> None:
    """Switch a given model's adapters on, as they are trained; `ValueError` if one is merged into the base."""
    layers = [layer for layer in model.modules() if isinstance(layer, BaseTunerLayer)]
    merged = {name for layer in layers for name in layer.merged_adapters}
    if merged:
        raise ValueError(
            f"the adapters {', '.join(sorted(merged))} are merged into the base model, expected a base without them. "
            "Call model.unmerge_adapter(), or load the model again."
        )
    if any(layer.disable_adapters for layer in layers):
        model.base_model.enable_adapter_layers()  # trains all of the active one, also what is frozen in it


def check_trained(policies: Sequence[Policy], parameters_of: ParametersOf) -> None:
    """Raise `ValueError` if a policy to be trained has no parameter that requires a gradient."""
    for policy in policies:
        if not parameters_of(policy):
            raise ValueError(
                f"the policy {policy.name!r} is to be trained, but no parameter of it requires a gradient. Set "
                "requires_grad on those to train (an adapter is loaded with is_trainable=True), or freeze the policy: "
                "Policy(trainable=False)."
            )


def check_optimized(policies: Sequence[Policy], parameters_of: ParametersOf, optimizer: torch.optim.Optimizer) -> None:
    """Raise `ValueError` if an optimizer lacks parameters of a policy to be trained."""
    inside = {id(p) for group in optimizer.param_groups for p in group["params"]}
    for policy in policies:
        own = parameters_of(policy)
        if missing := sum(id(p) not in inside for p in own):
            raise ValueError(
                f"the optimizer lacks {missing} of the {len(own)} parameters of the policy {policy.name!r} that "
                "require a gradient, so that they would not be trained. Give an optimizer over the model with its "
                "adapters (optimizers=(torch.optim.AdamW(model.parameters()), None)), or leave optimizers out."
            )


def check_layers(model: peft.PeftModel, score: Callable[[], object]) -> None:
    """Validate that adapters are on layers that multiply by one matrix, to whose product PEFT adds theirs.

    Raises:
        ValueError: One is on another, such as a router that returns scores and logits, or several matrices in one.
    """
    others: set[str] = set()

    def see(layer: nn.Linear, inputs: tuple[torch.Tensor], output: object, *, name: str) -> None:
        shape = (*inputs[0].shape[:-1], layer.out_features)
        if not isinstance(output, torch.Tensor) or output.shape != shape:
            others.add(name)

    hooks = [
        base.register_forward_hook(partial(see, name=name.rpartition(".")[2]))
        for name, layer in model.named_modules()
        if isinstance(layer, BaseTunerLayer) and isinstance(base := layer.get_base_layer(), nn.Linear)
        if base.__module__.startswith("transformers.models.") and type(base).forward is not nn.Linear.forward
    ]
    if not hooks:
        return
    try:
        score()
    finally:
        for hook in hooks:
            hook.remove()
    if others:
        names = sorted(others)
        raise ValueError(
            f"an adapter is on {', '.join(names)} of a {type(model.get_base_model()).__name__}, whose output is not "
            "that of one matrix; expected linear layers. Leave them out: "
            f"LoraConfig(target_modules='all-linear', exclude_modules={names})."
        )


@torch.no_grad()
def scores(model: Callable[..., object], vocabulary: int, device: torch.device) -> torch.Tensor:
    """Log-probabilities after each token of one short row. (8, V)"""
    ids = (torch.arange(8, device=device)[None] * 7919 + 13) % vocabulary
    logits = model(input_ids=ids, attention_mask=torch.ones_like(ids)).logits  # type: ignore[attr-defined]
    return torch.log_softmax(logits[0].float(), dim=-1)


def check_equal(start: torch.Tensor, expected: torch.Tensor, *, policy: str, is_exact: bool) -> None:
    """Raise `ValueError` if log-probabilities of a policy (T, V; of float32: `is_exact`) are not its reference's."""
    one, other = (start, expected) if is_exact else (start.exp(), expected.exp())
    largest = float((one - other).abs().max()) if one.shape == other.shape else torch.inf  # of other tokens
    if not largest <= (EXACT if is_exact else ROUGH):
        raise ValueError(
            f"the policy {policy!r} does not start from its reference: {'log-' * is_exact}probabilities of one row "
            f"differ by up to {largest:.2g}, so that its KL divergence would not begin at 0. Set a peft_config whose "
            "adapters change nothing at first (init_lora_weights=True), or load the adapter that it is to start from; "
            "save a whole model that has changed since it was loaded (save_pretrained), and give that folder."
        )
