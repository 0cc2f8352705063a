"""Assembles the policies' weights into the trainer's model, finds each policy's weights in it, saves and loads them.

| policies                              | the trainer's model                                              |
|---------------------------------------|------------------------------------------------------------------|
| the model itself (and APIs)           | as given; TRL's constructor prepares it                          |
| adapters, the base without any        | a `PeftModel` with an adapter for each                           |
| any with a full model of its own      | a `MultiPolicyModel`: those models, and "base" where it is used  |
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import torch
from accelerate import PartialState
from huggingface_hub import try_to_load_from_cache
from peft import PeftConfig, PeftMixedModel, PeftModel
from peft.tuners.tuners_utils import BaseTunerLayer
from torch import nn
from transformers import AutoProcessor, PreTrainedModel, PreTrainedTokenizerBase
from trl.trainer.utils import create_model_from_path, get_config_model_id

from pettingllms_trl.config import MultiAgentGRPOConfig
from pettingllms_trl.pixels import naming_torchvision
from pettingllms_trl.policies.adapters import (
    attach_adapters,
    check_base_is_kept,
    keep_reference,
    make_ready,
    several,
    unchanged,
)
from pettingllms_trl.policies.multi_model import MultiPolicyModel
from pettingllms_trl.policies.routing import BASE, Policy, Routing


def load_model(
    args: MultiAgentGRPOConfig, own: Any, quantization_config: Any, source: str, is_base: bool, *, several: bool
) -> PreTrainedModel:
    """Load a model as TRL does; `own` is the trainer's model, the only one to which `revision` applies."""
    kwargs = {"trust_remote_code": args.trust_remote_code, **(args.model_init_kwargs or {})}
    if source != own:
        kwargs.pop("revision", None)
    if is_base and quantization_config is not None:
        kwargs["quantization_config"] = quantization_config
    if several:  # otherwise the first would be spread over all devices
        kwargs.setdefault("device_map", None)
    return load_in_process(args.distributed_state, source, **kwargs)


def load_in_process(state: PartialState, source: str, **kwargs: Any) -> PreTrainedModel:
    """Load a model as TRL does, in one of several processes without a device map: `"auto"` fails there."""
    if state.distributed_type in ("MULTI_GPU", "DEEPSPEED"):
        kwargs["device_map"] = None
    return create_model_from_path(source, **kwargs)


def commit_of(source: str, revision: str | None = None, cache_dir: str | None = None) -> str | None:
    """The commit of a model that was loaded from the Hub; None of a folder's. transformers does not keep it."""
    is_there = Path(source).is_dir()
    found = is_there or try_to_load_from_cache(source, "config.json", revision=revision, cache_dir=cache_dir)
    return Path(found).parent.name if isinstance(found, str) else None


def source_of(model: Any) -> str:
    """The id or path of a model, or the one it was loaded from."""
    return model if isinstance(model, str) else get_config_model_id(model.config)


def load_tokenizer(args: MultiAgentGRPOConfig, own: Any, source: str) -> PreTrainedTokenizerBase:
    """Load a tokenizer as TRL does; `own` is the trainer's model, as for `load_model`."""
    revision = (args.model_init_kwargs or {}).get("revision") if source == own else None
    with naming_torchvision():
        return AutoProcessor.from_pretrained(  # a tokenizer, of models without vision
            source,
            truncation_side="left",
            padding_side="left",
            trust_remote_code=args.trust_remote_code,
            **({"revision": revision} if revision else {}),
        )


Model: TypeAlias = PreTrainedModel | PeftModel
Reference: TypeAlias = PreTrainedModel | str | None
"""A policy's initial weights: a full model, the name of a frozen adapter, or `None` for the base without adapters."""


@dataclass(frozen=True, slots=True, eq=False)
class Assembled:
    """The trainer's model, and the references of policies with a KL term, by the policy's name."""

    model: Model
    references: Mapping[str, Reference]


def check(
    routing: Routing,
    model: str | Model | None,
    peft_config: PeftConfig | None,
    quantization: Any,
    with_reference: Collection[str] = (),
) -> None:
    """Validate the model and the configurations before anything is loaded.

    Raises:
        ValueError: The model is missing or unused, a frozen adapter does not exist, there is a configuration for
            adapters that no policy has, or an adapter changes a base that is also used without it.
    """
    for policy in routing.full:
        if isinstance(policy.model, PeftModel) or not isinstance(policy.model, str | PreTrainedModel):
            raise TypeError(
                f"the model of policy {policy.name!r} is a {type(policy.model).__name__}, expected an id, a path or a "
                "PreTrainedModel: all its weights are its own. Merge adapters into it (merge_and_unload), or put them "
                "on the trainer's model: MultiAgentGRPOTrainer(model, policies={role: name, ...})."
            )
    if not routing.uses_model and not routing.full:
        raise ValueError("every policy is an api, so there are no weights to play or train. Give one agent a model.")
    if model is None and routing.uses_model:
        name = next(policy.name for policy in routing.policies if policy.adapter is not None or policy.is_base)
        raise ValueError(f"model is None, but policy {name!r} stands on it. Give one, or Policy(model=...).")
    if model is not None and not routing.uses_model and all(policy.model is not model for policy in routing.full):
        raise ValueError(
            "a model is given, but every policy has one of its own, so that it would not be used. Set model=None."
        )
    if any(_has_hidden_adapter(each) for each in (model, *(one.model for one in routing.full))):
        raise ValueError(
            "a model or its folder has an adapter of model.load_adapter, which references and packing do not see; "
            "expected a base or a PeftModel. Load it with PeftModel.from_pretrained(base, folder, is_trainable=True)."
        )
    carried = sorted(model.peft_config) if isinstance(model, PeftModel) else []
    _check_base_is_kept(routing, model, peft_config, with_reference)
    if isinstance(model, PeftModel):
        is_shared = with_reference or several(routing.adapters) or (routing.adapters and routing.base)
        grads = {n: p.requires_grad for n, p in model.named_parameters() if "ranknum" not in n}  # AdaLoRA's counters
        loose = [n for n, on in grads.items() if is_shared and on and {*carried}.isdisjoint(n.split("."))]
        for name in routing.trained_adapters:
            own = [n for n in grads if name in n.split(".")]
            loose += [n for n in own if not grads[n]] if any(grads[n] for n in own) else []
        if loose:
            raise ValueError(
                f"{loose[0]} has requires_grad={grads[loose[0]]}; expected True of all or none of an adapter, and "
                "False of its base. Call model.requires_grad_(False), after which those to train are switched on here."
            )
    idle, new = sorted({*carried} - {*routing.adapters}), [name for name in routing.adapters if name not in carried]
    if idle and new:
        raise ValueError(
            f"the model carries the adapter {', '.join(map(repr, idle))}, which no policy names, while "
            f"{', '.join(map(repr, new))} would be new and start from the base without it; expected adapters of these "
            f"names. Load it under them (PeftModel.from_pretrained(base, folder, adapter_name={new[0]!r})), name it "
            f"(policies={{role: {idle[0]!r}, ...}}), or give the base with it merged in (model.merge_and_unload())."
        )
    for policy in routing.policies:
        if policy.adapter is not None and not policy.is_trained and policy.adapter not in carried:
            raise ValueError(
                f"the adapter {policy.adapter!r} is frozen, but the model has no such adapter (it has: "
                f"{', '.join(carried) or 'none'}), and a new one would do nothing. Load it first: "
                f"model=PeftModel.from_pretrained(base, folder, adapter_name={policy.adapter!r})."
            )
    if routing.full and not routing.adapters:
        for given, what in ((peft_config, "peft_config"), (quantization, "quantization_config")):
            if given is not None:
                raise ValueError(
                    f"{what} is given, but no policy is an adapter, and full models are trained as they are. Leave it "
                    "out, or name an adapter: Policy(adapter=...)."
                )
        if routing.base is not None and carried:
            raise ValueError(
                f"the model has the adapters {', '.join(carried)}, but no policy names one. Name it: "
                f"Policy(adapter={carried[0]!r})."
            )


def _has_hidden_adapter(model: Any) -> bool:
    """Whether a model that is no `PeftModel` has layers with adapters, or is loaded so from its folder."""
    layers = model.modules() if isinstance(model, PreTrainedModel | PeftMixedModel) else ()
    is_active = any(layer.active_adapters for layer in layers if isinstance(layer, BaseTunerLayer))
    in_folder = isinstance(model, str) and (Path(model) / "adapter_config.json").is_file()
    return is_active or in_folder or getattr(model, "_hf_peft_config_loaded", False)


def _check_base_is_kept(
    routing: Routing, model: str | Model | None, peft_config: PeftConfig | None, with_reference: Collection[str]
) -> None:
    """Raise `ValueError` if an adapter changes a base that is also used without it."""
    configs = dict(model.peft_config) if isinstance(model, PeftModel) else {}
    carried = set(configs)
    if peft_config is not None:
        names = routing.adapters or ([BASE] if routing.uses_model else [])
        configs |= {name: peft_config for name in names if name not in carried}
    learned = [type(config).__name__ for config in configs.values() if config.is_prompt_learning]
    if learned and with_reference:
        raise ValueError(
            f"beta is set, and the adapter is a {learned[0]}, which learns tokens: neither the base nor a copy "
            "can be the reference; expected a LoraConfig. Give one, or set beta=0."
        )
    also = several({**configs, **dict.fromkeys(routing.adapters)})
    if routing.base is not None and routing.adapters:
        also = "the base plays itself, as a frozen partner"
    for name, config in configs.items():
        copied = getattr(config, "bias", "none") == "none" and name in carried  # PEFT has biases of one adapter alone
        kl = not copied and not {name, BASE}.isdisjoint(with_reference)
        of_kl = "its KL divergence (beta) is to the base without it, or to a copy of it" if kl else None
        check_base_is_kept({name: config}, also or of_kl)


def assemble(
    routing: Routing,
    model: str | Model | None,
    *,
    peft_config: PeftConfig | None,
    load: Callable[..., PreTrainedModel],
    with_reference: Collection[str],
    share_references: bool = True,
) -> Assembled:
    """Load models, copy those that several policies share, attach adapters, and freeze what is not trained.

    Args:
        routing: A routing that `check` accepted, with an adapter or a full model.
        model: The trainer's model: the base of adapters.
        load: Loads a model from `(id or path, is_base)`.
        with_reference: Names of policies whose initial weights are kept.
        share_references: Whether policies that start from the same full model share one reference.
    """
    taken: set[int] = set()

    def own(source: str | Model, *, is_base: bool) -> Model:
        if isinstance(source, str):
            return load(source, is_base)
        repeated = id(source) in taken
        taken.add(id(source))
        return again(source, source, is_base=is_base) if repeated else source

    def again(source: str | Model, model: Model, *, is_base: bool) -> Model:
        """A copy of a model's initial weights; a model that ZeRO-3 has partitioned is loaded again instead."""
        if not any(hasattr(p, "ds_id") for p in model.parameters()):
            return copy.deepcopy(model)
        if isinstance(source, str):
            return load(source, is_base)
        raise ValueError(
            f"a {type(source).__name__} is given that ZeRO-3 has spread over the processes, and a copy of it is "
            "needed for another policy or for a KL divergence; expected its id or path. Give that: it is loaded again."
        )

    references: dict[str, Reference] = {}
    started: dict[str | int, PreTrainedModel] = {}
    models: dict[str, Model] = {}
    for policy in routing.full:
        assert policy.model is not None
        models[policy.name] = own(policy.model, is_base=False)
        if policy.name in with_reference:
            source = policy.model if isinstance(policy.model, str) else id(policy.model)
            if source not in started or not share_references:
                started[source] = _frozen(again(policy.model, models[policy.name], is_base=False))
            references[policy.name] = started[source]
    if routing.uses_model:
        assert model is not None
        base = own(model, is_base=True)
        if BASE in with_reference:
            references[BASE] = _frozen(again(model, base, is_base=True))
        if routing.adapters:
            carried = set(base.peft_config) if isinstance(base, PeftModel) else set()
            if isinstance(base, PeftModel):
                make_ready(base)
            # One adapter alone may stand on a changed base, as in TRL.
            is_shared = bool(with_reference or several(routing.adapters) or routing.base is not None)
            with unchanged(base) if is_shared else nullcontext():
                base = attach_adapters(base, routing.adapters, peft_config, trained=routing.trained_adapters)
                for name in routing.trained_adapters:
                    if name in with_reference:
                        references[name] = keep_reference(base, name) if name in carried else None
        models = {BASE: base, **models}
    for policy in routing.policies:
        whole = policy.model is not None or (policy.is_base and not routing.adapters)
        if whole and not policy.is_trained:
            _frozen(models[policy.name])
    return Assembled(MultiPolicyModel(models) if routing.full else models[BASE], references)


def weights_of(model: Model, policy: Policy) -> Model:
    """The model of a policy, or the one that carries its adapter."""
    if not isinstance(model, MultiPolicyModel):
        return model
    return model.models[BASE if policy.model is None else policy.name]


def parameters_of(model: Model, policy: Policy) -> list[nn.Parameter]:
    """The trainable parameters that belong to a policy."""
    weights = weights_of(model, policy)
    parameters = [p for p in weights.parameters() if p.requires_grad]
    if policy.adapter is None:
        return parameters
    # PEFT keeps an adapter's tensors under its name in a dict in each layer.
    dicts = [m for m in weights.modules() if isinstance(m, nn.ModuleDict | nn.ParameterDict) and policy.adapter in m]
    held = (m[policy.adapter] for m in dicts)
    own = {id(p) for each in held for p in (each.parameters() if isinstance(each, nn.Module) else [each])}
    return [p for p in parameters if id(p) in own]


def save(
    model: Model, policies: Sequence[Policy], folder: Path, state_dict: Mapping[str, torch.Tensor] | None = None
) -> None:
    """Save each policy to `folder/<name>`, from where `from_pretrained` or `PeftModel.from_pretrained` loads it.

    Where parameters of `model` are partitioned over processes, `state_dict` is its state.
    """
    for policy in policies:
        weights, place = weights_of(model, policy), folder / policy.name
        own = None if state_dict is None else _part(state_dict, model, weights)
        if policy.adapter is None:
            weights.save_pretrained(place, state_dict=own)
        else:  # PEFT itself adds the name, except "default"
            parent = place if policy.adapter == "default" else folder
            weights.save_pretrained(str(parent), selected_adapters=[policy.adapter], state_dict=own)


def restore(model: Model, policies: Sequence[Policy], folder: Path, *, at_root: bool = False) -> None:
    """Load what `save` wrote into the same model, or with `at_root` what transformers' trainer wrote of the only one.

    Raises:
        ValueError: A policy has no weights there, or weights of another kind. Nothing was loaded then.
    """
    for policy in policies:
        kind = "config.json" if policy.adapter is None else "adapter_config.json"
        if not at_root and not (folder / policy.name / kind).is_file():
            known = [path.relative_to(folder).as_posix() for path in folder.glob("*/*config.json")]
            found = ", ".join(sorted(n for n in known if n.endswith(("/config.json", "/adapter_config.json"))))
            raise ValueError(
                f"{folder} has no {policy.name}/{kind}, expected weights of the policy {policy.name!r} (there are: "
                f"{found or 'none'}). Resume with the policies that it was saved with."
            )
    for policy in policies:
        weights, place = weights_of(model, policy), folder if at_root else folder / policy.name
        if policy.adapter is None:
            # Through from_pretrained, which handles shards, tied weights and renamed parameters.
            widest = max((p.dtype for p in weights.parameters()), key=lambda dtype: dtype.itemsize)
            saved = type(weights).from_pretrained(place, dtype=widest)  # a head may be in float32
            weights.load_state_dict(saved.state_dict())
        else:
            weights.load_adapter(str(place), policy.adapter, is_trainable=True)


def _frozen(model: Model) -> Model:
    return model.requires_grad_(False).eval()


def _part(state_dict: Mapping[str, torch.Tensor], model: Model, weights: Model) -> dict[str, torch.Tensor]:
    """The entries of a model's state dict that belong to one of its parts, by their names in that part."""
    prefix = next(f"{name}." if name else "" for name, module in model.named_modules() if module is weights)
    return {name.removeprefix(prefix): value for name, value in state_dict.items() if name.startswith(prefix)}
