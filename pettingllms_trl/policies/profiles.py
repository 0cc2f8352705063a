"""Policy profiles: tokenizer, special tokens, generation config and beta of each policy.

`GRPOTrainer` has one of each of these as attributes; a team has one for each policy.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from peft import PeftModel
from transformers import GenerationConfig, PreTrainedModel, PreTrainedTokenizerBase
from transformers.trainer_utils import align_special_tokens
from trl.trainer.utils import get_config_model_id

from pettingllms_trl.policies.routing import Policy


SET_BY_TRL = (
    *("processing_class", "eos_token_ids", "generation_config"),
    *("ref_model", "router_aux_loss_coef", "aux_loss_enabled"),
)
"""Attributes of `GRPOTrainer` that a profile has under the same name, beside the weight of the KL divergence."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class PolicyProfile:
    """Attributes of `GRPOTrainer` while a policy is active.

    Args:
        processing_class: The policy's tokenizer, or a processor that contains it and reads images.
        tokenizer: The tokenizer, with the chat template of its prompts.
        generation_config: The trainer's, with the special tokens of this tokenizer.
        ref_model: The reference of the KL divergence; `None`: none, or the one that TRL determines.
        router_aux_loss_coef: Weight of a mixture of experts' load-balancing loss, 0 for other models.
    """

    processing_class: Any
    tokenizer: PreTrainedTokenizerBase
    eos_token_ids: list[int]
    generation_config: GenerationConfig
    beta: float = 0.0
    ref_model: Callable[..., Any] | None = None
    router_aux_loss_coef: float = 0.0
    aux_loss_enabled: bool = False
    reads_images: bool = False


def tokenizer_of(
    policy: Policy, default: Any, load: Callable[[str], PreTrainedTokenizerBase]
) -> PreTrainedTokenizerBase:
    """A policy's tokenizer: the one it was given, else its model's. `default` is that of the trainer's model."""
    if policy.tokenizer is not None:
        return load(policy.tokenizer) if isinstance(policy.tokenizer, str) else policy.tokenizer
    if policy.model is None:
        return default
    source = policy.model if isinstance(policy.model, str) else get_config_model_id(policy.model.config)
    if not source:
        raise ValueError(
            f"policy {policy.name!r} has a model that was not loaded from anywhere, and no tokenizer. Give one: "
            "Policy(model=..., tokenizer=...)."
        )
    return load(source)


def check_chat_template(tokenizer: PreTrainedTokenizerBase) -> None:
    """Raise `ValueError` for a tokenizer without a chat template."""
    if getattr(tokenizer, "chat_template", None) is None:
        raise ValueError(
            "the tokenizer has no chat template, so an agent's messages cannot be written as a prompt. Use a chat "
            "model, or set `processing_class.chat_template`."
        )


def eos_token_ids(model: PreTrainedModel | PeftModel, tokenizer: PreTrainedTokenizerBase) -> list[int]:
    """Token ids that end a completion: the tokenizer's, and those that the model declares, such as an end of turn."""
    declared = model.generation_config.eos_token_id
    declared = [] if declared is None else [declared] if isinstance(declared, int) else list(declared)
    return declared if tokenizer.eos_token_id in declared else [tokenizer.eos_token_id, *declared]


def set_special_tokens(model: PreTrainedModel | PeftModel, tokenizer: PreTrainedTokenizerBase) -> None:
    """Give a model the special tokens of its tokenizer, as `GRPOTrainer` and `Trainer` do for their one model."""
    if tokenizer.pad_token is None:
        tokenizer.pad_token = tokenizer.eos_token
    model.config.get_text_config().pad_token_id = tokenizer.pad_token_id
    model.generation_config.pad_token_id = tokenizer.pad_token_id
    align_special_tokens(model, tokenizer)


def generation_config(
    kwargs: dict[str, Any],
    own: dict[str, Any] | None,
    tokenizer: PreTrainedTokenizerBase,
    eos_token_ids: list[int],
    suppressed: Sequence[int] = (),
) -> GenerationConfig:
    """TRL's generation settings with the special tokens of another tokenizer.

    Args:
        own: The user's `generation_kwargs`, which override all else.
        suppressed: Token ids that are never sampled: of a model with vision the one of pictures.
    """
    special = {
        "pad_token_id": tokenizer.pad_token_id,
        "bos_token_id": tokenizer.bos_token_id,
        "eos_token_id": eos_token_ids,
        # Even if there are none: an absent setting is taken from the trainer's model, which may have vision.
        **({"suppress_tokens": list(suppressed)} if suppressed or "suppress_tokens" in kwargs else {}),
    }
    return GenerationConfig(**{**kwargs, **special, **(own or {})}, disable_compile=True)


def router_loss(model: PreTrainedModel | PeftModel, coefficient: float | None) -> tuple[float, bool]:
    """The weight (`None`: the model's own) of a mixture of experts' load-balancing loss, and whether it is used."""
    config = model.config.get_text_config()
    own = getattr(config, "router_aux_loss_coef", 0.0) if coefficient is None else coefficient
    return own, hasattr(config, "output_router_logits") and own != 0.0
