"""The tokenizer of benchmarks in which nothing is read or written, for a trainer must have one."""

from __future__ import annotations

from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast


def two_words() -> PreTrainedTokenizerFast:
    """A tokenizer of two words."""
    inner = Tokenizer(models.WordLevel({"<pad>": 0, "<end>": 1}, unk_token="<pad>"))
    inner.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    made = PreTrainedTokenizerFast(
        tokenizer_object=inner,
        pad_token="<pad>",
        eos_token="<end>",
        unk_token="<pad>",
        padding_side="left",
    )
    made.chat_template = "{% for message in messages %}{{ message['content'] }}{% endfor %}"
    return made
