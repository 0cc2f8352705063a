"""Tokenizers for chat templates: bytes, and a token for each control token that a template spells."""

from __future__ import annotations

import re

from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast


SPECIAL = re.compile(r"<[|｜][^|｜<>]+[|｜]>|<start_of_turn>|<end_of_turn>|</?think>")


def tokenizer_for(
    template: str, tokens: str | None = None, *, merges: tuple[tuple[str, str], ...] = ()
) -> PreTrainedTokenizerFast:
    """Bytes, a token for each that is in angle brackets in the template, and what the merges make of bytes."""
    names = ["<|pad|>", "<bos>", "<eos>", *sorted(set(SPECIAL.findall(tokens or template)))]
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocabulary = {token: i for i, token in enumerate([*names, *alphabet, *("".join(pair) for pair in merges)])}
    inner = Tokenizer(models.BPE(vocab=vocabulary, merges=list(merges)))
    inner.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    inner.decoder = decoders.ByteLevel()
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=inner,
        pad_token="<|pad|>",
        bos_token="<bos>",
        eos_token="<eos>",
        additional_special_tokens=names[3:],
    )
    tokenizer.chat_template = template
    return tokenizer
