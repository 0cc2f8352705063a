"""A tiny model, a byte-level tokenizer and a third-party environment, all made here: no network, no Hub."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import huggingface_hub.constants
import pytest
import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import (
    AutoConfig,
    AutoModelForCausalLM,
    PreTrainedTokenizerFast,
    Qwen3Config,
    Qwen3ForCausalLM,
)


CHAT_TEMPLATE = (
    "{% for message in messages %}{{ '<|' + message['role'] + '|>' + message['content'] + '<|end|>' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|assistant|>' }}{% endif %}"
)
SPECIAL = ("<|pad|>", "<|end|>", "<|system|>", "<|user|>", "<|assistant|>")


@pytest.fixture(scope="session", autouse=True)
def no_telemetry() -> None:
    """Every trainer would start a thread that asks the network; one was collecting garbage when Python crashed."""
    huggingface_hub.constants.HF_HUB_DISABLE_TELEMETRY = True


@pytest.fixture(scope="session")
def tokenizer() -> PreTrainedTokenizerFast:
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocabulary = {token: i for i, token in enumerate([*SPECIAL, *alphabet])}
    inner = Tokenizer(models.BPE(vocab=vocabulary, merges=[]))
    inner.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    inner.decoder = decoders.ByteLevel()
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=inner,
        pad_token="<|pad|>",
        eos_token="<|end|>",
        additional_special_tokens=list(SPECIAL[2:]),
        padding_side="left",
    )
    tokenizer.chat_template = CHAT_TEMPLATE
    return tokenizer


def save_tiny(path: Path, tokenizer: PreTrainedTokenizerFast, *, hidden_size: int, head_dim: int, **more: Any) -> str:
    """A random Qwen3 of 2 layers on disk, where the trainer and TRL's reference model load it from."""
    torch.manual_seed(0)
    config = Qwen3Config(
        vocab_size=len(tokenizer),
        hidden_size=hidden_size,
        intermediate_size=2 * hidden_size,
        num_hidden_layers=2,
        num_attention_heads=2,
        num_key_value_heads=1,
        head_dim=head_dim,
        max_position_embeddings=1024,
        tie_word_embeddings=True,
        pad_token_id=tokenizer.pad_token_id,
        eos_token_id=tokenizer.eos_token_id,
        bos_token_id=None,
        **more,
    )
    Qwen3ForCausalLM(config).save_pretrained(path)
    tokenizer.save_pretrained(path)
    return str(path)


@pytest.fixture(scope="session")
def model_path(tokenizer: PreTrainedTokenizerFast, tmp_path_factory: pytest.TempPathFactory) -> str:
    return save_tiny(tmp_path_factory.mktemp("tiny"), tokenizer, hidden_size=32, head_dim=16)


@pytest.fixture(scope="session")
def base_path(tokenizer: PreTrainedTokenizerFast, tmp_path_factory: pytest.TempPathFactory) -> str:
    """With heads that vLLM's CPU kernels take (64; of 16 they say "Unsupported head size")."""
    path = tmp_path_factory.mktemp("base")
    # At an initializer range of 0.02 the norms of queries and keys divide by next to nothing.
    return save_tiny(path, tokenizer, hidden_size=64, head_dim=64, initializer_range=0.1)


@pytest.fixture
def roomy_path(model_path: str, tokenizer: PreTrainedTokenizerFast, tmp_path: Path) -> str:
    """The tiny random model with room for a problem's prompt, which has a token for every byte."""
    torch.manual_seed(0)
    config = AutoConfig.from_pretrained(model_path, max_position_embeddings=16384)
    AutoModelForCausalLM.from_config(config).save_pretrained(tmp_path / "roomy")
    tokenizer.save_pretrained(tmp_path / "roomy")
    return str(tmp_path / "roomy")
