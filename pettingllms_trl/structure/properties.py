"""What a model's structure says of its tokens: may prompts be packed into one row, may keys and values be kept?

Both need that a token's logits depend on the tokens before it in its own sequence and on nothing else: not on where in
a row it stands, how long the row is, or what else is in it. `PROPERTIES` has what breaks this, and why. The update
(`update/packed_logprobs.py`) and the prefix cache (`engines/prefix_cache.py`) look a model up here before they try it.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from peft import PeftModel, PeftType
from transformers import DynamicCache, PretrainedConfig, PreTrainedModel


@dataclass(frozen=True, slots=True)
class Property:
    """What keeps a model from being packed, or its keys and values from being kept.

    Args:
        why: Goes on from "the model of policy 'solver' ...".
        holds: Whether a base with an adapter (its configuration, or `None`) has it.
        packing, caching: What it rules out.
    """

    why: str
    holds: Callable[[Any, Any], bool]
    packing: bool = True
    caching: bool = True


def base_of(model: Any) -> PreTrainedModel:
    """The model without PEFT's around it."""
    base: PreTrainedModel = model.get_base_model() if isinstance(model, PeftModel) else model
    return base


def takes_positions(base: PreTrainedModel) -> bool:
    """Whether the model's forward pass accepts `position_ids`."""
    return "position_ids" in inspect.signature(type(base).forward).parameters


def _layers(base: Any) -> list[Any]:
    """A cache's layers. Those of models that prepare their own are whatever transformers would make."""
    try:
        return list(DynamicCache(config=base.config).layers)
    except (AttributeError, LookupError, TypeError, ValueError):  # of layers that transformers' cache does not know
        return [None]


def _has_state(base: Any, _: Any) -> bool:
    has_own_cache = base._is_stateful or not base._supports_default_dynamic_cache()
    classes = [kind for layer in _layers(base) for kind in type(layer).__mro__]
    return has_own_cache or any(kind.__name__ == "LinearAttentionCacheLayerMixin" for kind in classes)


def _has_other_layers(*known: str) -> Callable[[Any, Any], bool]:
    """By the names of transformers' classes, of which older releases do not have all."""
    return lambda base, _: any(type(layer).__name__ not in known for layer in _layers(base))


PROPERTIES = (
    Property("carries a state from token to token (linear attention, Mamba, a convolution)", _has_state),
    Property(
        "has layers that choose what to attend to by an index of the whole row, or whose cache is not known",
        _has_other_layers("DynamicLayer", "DynamicSlidingWindowLayer", "DummyLayer"),
    ),
    Property("keeps no keys of some tokens (a window)", _has_other_layers("DynamicLayer"), packing=False),
    Property(
        "counts positions by images",
        lambda base, _: any(hasattr(module, "rope_deltas") for module in base.modules()),
        packing=False,
    ),
    Property("is not given positions", lambda base, _: not takes_positions(base), packing=False),
    Property(
        "has an adapter that adds tokens before each row",
        lambda _, adapter: getattr(adapter, "is_prompt_learning", False),
    ),
    Property(
        "has an adapter that begins at invocation tokens, which it looks for once in a row (aLoRA)",
        lambda _, adapter: bool(getattr(adapter, "alora_invocation_tokens", None)),
    ),
    Property(
        "has an adapter whose scales are taken from the whole row (X-LoRA)",
        lambda _, adapter: getattr(adapter, "peft_type", None) == PeftType.XLORA,
    ),
)

OPTIONS: Mapping[str, str] = {
    "neftune_noise_alpha": "gets noise that is scaled by a row's length (neftune_noise_alpha)",
    "torch_compile": "is compiled (torch_compile), and rows are of every length",
}
"""Fields of the trainer's configuration whose effect depends on the row that a token is in; they rule packing out.
Beside these, a router's loss is over a batch's tokens (`aux_loss_enabled` of a policy). What TRL divides by the
length of a completion, or takes from the completions of a batch (`loss_type`, `importance_sampling_level`,
`top_entropy_quantile`, `off_policy_mask_threshold`), it computes from (B, C) tensors, packed or not."""


def why_not_packed(model: Any, args: Any, *, aux_loss_enabled: bool) -> str | None:
    """What rules packing out by structure, if anything does, such as a router's loss (`aux_loss_enabled`)."""
    if aux_loss_enabled:
        return "has a router whose loss is over all tokens of a batch (router_aux_loss_coef), prompts K times"
    options = (why for name, why in OPTIONS.items() if getattr(args, name))
    return next(options, None) or next((found.why for found in _of(model) if found.packing), None)


def _of(model: Any) -> Iterator[Property]:
    adapter = model.active_peft_config if isinstance(model, PeftModel) else None
    return (found for found in PROPERTIES if found.holds(base_of(model), adapter))


def keeps_all_tokens(model: Any) -> bool:
    """Whether a model's cache has keys and values of all tokens, at positions that padding does not shift."""
    return not any(found.caching for found in _of(model))


def rope_kinds(config: PretrainedConfig | Any) -> Iterator[Mapping[str, Any]]:
    """The parameters of a text model's rotary embeddings: one, or one for each kind of layer."""
    rope = getattr(config, "rope_parameters", None) or getattr(config, "rope_scaling", None) or {}
    return (each for each in (rope, *rope.values()) if isinstance(each, Mapping))


def rope_switch(config: PretrainedConfig | Any) -> int | None:
    """Tokens beyond which all of a row's tokens are rotated otherwise; `None`: length makes no difference.

    What was sampled before a row came to that length, and keys that were kept, are not those of the whole row then, so
    rows end there. With equal short and long factors (vLLM uses the long ones throughout) there is no switch.
    """
    found: list[int] = []
    for rope in rope_kinds(config):
        kind = rope.get("rope_type", rope.get("type", "default"))
        if "dynamic" in str(kind):
            found.append(config.max_position_embeddings)
        elif kind in ("longrope", "su") and any(
            rope.get(f"short_{of}") != rope.get(f"long_{of}") for of in ("factor", "mscale")
        ):
            own = rope.get("original_max_position_embeddings")
            found.append(own or getattr(config, "original_max_position_embeddings", config.max_position_embeddings))
    return min(found, default=None)


def check_switch(model: Any, policy: str, tokens: int, what: str) -> None:
    """Raise `ValueError` if rows of this many tokens, which `what` has, are longer than where the RoPE changes."""
    switch = rope_switch(base_of(model).config.get_text_config())
    if switch is not None and tokens > switch:
        raise ValueError(
            f"{what} makes rows of {tokens} tokens, but the model of policy {policy!r} rotates all tokens of a row "
            f"otherwise beyond {switch}, so that what is trained on would not be what was sampled; expected no longer "
            "ones. Shorten prompts and completions, or set in the model's config.json a rope_type that does not "
            "depend on length (yarn), or of longrope a short_factor that equals long_factor."
        )
