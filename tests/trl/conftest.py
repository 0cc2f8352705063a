"""Tiny models and a byte-level tokenizer, all made here: no network, no Hub."""

from __future__ import annotations

import huggingface_hub.constants
import pytest
from transformers import PreTrainedTokenizerFast

from pettingllms_trl.testing import byte_tokenizer, save_tiny_model


@pytest.fixture(scope="session", autouse=True)
def no_telemetry() -> None:
    """Every trainer would start a thread that asks the network; one was collecting garbage when Python crashed."""
    huggingface_hub.constants.HF_HUB_DISABLE_TELEMETRY = True


@pytest.fixture(scope="session")
def tokenizer() -> PreTrainedTokenizerFast:
    return byte_tokenizer()


@pytest.fixture(scope="session")
def model_path(tokenizer: PreTrainedTokenizerFast, tmp_path_factory: pytest.TempPathFactory) -> str:
    return save_tiny_model(tmp_path_factory.mktemp("tiny"), tokenizer, max_position_embeddings=1024)


@pytest.fixture(scope="session")
def base_path(tokenizer: PreTrainedTokenizerFast, tmp_path_factory: pytest.TempPathFactory) -> str:
    """With heads that vLLM's CPU kernels take (64; of 16 they say "Unsupported head size")."""
    path = tmp_path_factory.mktemp("base")
    # At an initializer range of 0.02 the norms of queries and keys divide by next to nothing.
    return save_tiny_model(
        path, tokenizer, hidden_size=64, head_dim=64, max_position_embeddings=1024, initializer_range=0.1
    )


@pytest.fixture(scope="session")
def roomy_path(tokenizer: PreTrainedTokenizerFast, tmp_path_factory: pytest.TempPathFactory) -> str:
    """The tiny model with room for long prompts, which have a token for every byte."""
    return save_tiny_model(tmp_path_factory.mktemp("roomy"), tokenizer)
