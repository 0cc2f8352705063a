"""Tokenizers with a token for each byte, for models that have none on this machine."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast


CHAT_TEMPLATE = (
    "{% for message in messages %}{{ '<|' + message['role'] + '|>' + message['content'] + '<|end|>' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|assistant|>' }}{% endif %}"
)
SPECIAL_TOKENS = ("<|pad|>", "<|end|>", "<|system|>", "<|user|>", "<|assistant|>")


def tokenizer_of_bytes(special: Sequence[str], template: str, **tokens: Any) -> PreTrainedTokenizerFast:
    """A tokenizer with a token for each byte, after the special ones."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocabulary = {token: i for i, token in enumerate([*special, *alphabet])}
    inner = Tokenizer(models.BPE(vocab=vocabulary, merges=[]))
    inner.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    inner.decoder = decoders.ByteLevel()
    inner.add_special_tokens(list(special))
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=inner, padding_side="left", **tokens)
    tokenizer.chat_template = template
    return tokenizer


def byte_tokenizer() -> PreTrainedTokenizerFast:
    """A tokenizer with a token for each byte, and a chat template."""
    others = list(SPECIAL_TOKENS[2:])
    return tokenizer_of_bytes(
        SPECIAL_TOKENS, CHAT_TEMPLATE, pad_token="<|pad|>", eos_token="<|end|>", additional_special_tokens=others
    )
