"""Sequence classifiers as reward functions, given as in TRL: a model, or the name of one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import nn
from transformers import AutoModelForSequenceClassification, AutoTokenizer, PreTrainedTokenizerBase
from trl.data_utils import apply_chat_template
from trl.trainer.utils import get_config_model_id

from pettingllms_trl.config import MultiAgentGRPOConfig
from pettingllms_trl.policies.escaping import escape_of
from pettingllms_trl.records import Message
from pettingllms_trl.structure.miniature import whole


class RewardModel:
    """Scores a prompt and its completion by the classifier's first logit, using the classifier's chat template.

    Args:
        model: A model with one label, in evaluation mode, on the device of its inputs.
        tokenizer: The model's tokenizer, with a padding token that the model's config has, too.
    """

    def __init__(
        self, model: nn.Module, tokenizer: PreTrainedTokenizerBase, chat_template_kwargs: dict[str, Any]
    ) -> None:
        self._model, self._tokenizer, self._kwargs = model, tokenizer, chat_template_kwargs
        self._escape = escape_of(tokenizer)
        self._device = next(model.parameters()).device

    def __call__(
        self, prompts: Sequence[list[Message] | str], completions: Sequence[list[Message] | str], **_: Any
    ) -> list[float]:
        chats = [
            self._escape([*_messages(prompt, "user"), *_messages(completion, "assistant")])
            for prompt, completion in zip(prompts, completions, strict=True)
        ]
        texts = [apply_chat_template({"messages": chat}, self._tokenizer, **self._kwargs)["text"] for chat in chats]
        inputs = self._tokenizer(
            text=texts, return_tensors="pt", padding=True, padding_side="right", add_special_tokens=False
        ).to(self._device)
        with torch.inference_mode():
            logits = self._model(**inputs).logits  # (K, 1)
        return [float(value) for value in logits[:, 0].float()]


def _messages(given: list[Message] | str, role: str) -> list[Message]:
    """Messages of a prompt or completion; a plain text becomes one message, as for the policy."""
    return [{"role": role, "content": given}] if isinstance(given, str) else given


def load_reward_model(
    source: str | nn.Module,
    tokenizer: PreTrainedTokenizerBase | None,
    *,
    args: MultiAgentGRPOConfig,
    device: torch.device,
) -> RewardModel:
    """Make a reward function of a classifier; one given by name is loaded with the settings of the trainer's model."""
    revision = None
    if isinstance(source, str):
        kwargs = {"trust_remote_code": args.trust_remote_code, **(args.model_init_kwargs or {})}
        revision = kwargs.get("revision")
        with whole():
            model = AutoModelForSequenceClassification.from_pretrained(source, num_labels=1, **kwargs)
    else:
        model = source
    name = get_config_model_id(model.config)
    if tokenizer is None:
        tokenizer = AutoTokenizer.from_pretrained(name, revision=revision, trust_remote_code=args.trust_remote_code)
    if tokenizer.chat_template is None:
        raise ValueError(
            f"the tokenizer of the reward model {name!r} has no chat template, so messages cannot be written for it. "
            "Set one, and give it: reward_processing_classes=[...]."
        )
    if tokenizer.pad_token_id is None:
        tokenizer.pad_token = tokenizer.eos_token
    # A classifier reads the last token that is not padding.
    model.config.get_text_config().pad_token_id = tokenizer.pad_token_id
    return RewardModel(model.to(device).eval().requires_grad_(False), tokenizer, args.chat_template_kwargs or {})
