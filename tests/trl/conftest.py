"""Tiny models and a byte-level tokenizer, all made here: no network, no Hub."""

from __future__ import annotations

import functools
import signal
from collections.abc import Callable, Iterator
from typing import Any

import huggingface_hub.constants
import pytest
from peft import PeftModel
from transformers import PreTrainedTokenizerFast

from pettingllms_trl import MultiAgentGRPOTrainer
from pettingllms_trl.structure.properties import base_of
from pettingllms_trl.testing import byte_tokenizer, save_tiny_model
from pettingllms_trl.update import packing_checks


@pytest.fixture(scope="session", autouse=True)
def no_telemetry() -> None:
    """Every trainer would start a thread that asks the network; one was collecting garbage when Python crashed."""
    huggingface_hub.constants.HF_HUB_DISABLE_TELEMETRY = True


@pytest.fixture(scope="session", autouse=True)
def signals_end_the_tests() -> Iterator[Callable[..., Any]]:
    """Send a SIGTERM or Ctrl-C again that `train()` has taken, which is meant for the tests: they would go on.

    Yields `train()` as it is for users.
    """
    train = MultiAgentGRPOTrainer.train

    @functools.wraps(train)
    def train_and_pass_on(self: MultiAgentGRPOTrainer, *args: Any, **kwargs: Any) -> Any:
        try:
            return train(self, *args, **kwargs)
        finally:
            taken = self.checkpointer._signals
            if taken is not None and taken.received is not None:
                signal.raise_signal(signal.Signals[taken.received])

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(MultiAgentGRPOTrainer, "train", train_and_pass_on)
        yield train


@pytest.fixture(scope="session", autouse=True)
def equal_miniatures_are_compared_once() -> Iterator[None]:
    """A trainer tries packed rows on a miniature of each model; those of this process have the same few models.

    Tests of that comparison have imported it themselves.
    """
    compare = packing_checks.compare
    found: dict[tuple[type, str], packing_checks.Differences] = {}

    def compared(model: Any, *rows: Any) -> packing_checks.Differences:
        adapter = model.active_peft_config.to_dict() if isinstance(model, PeftModel) else None
        base = base_of(model)
        key = type(base), repr((base.config.to_dict(), base.config._attn_implementation, adapter, rows))
        if key not in found:
            found[key] = compare(model, *rows)
        return found[key]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(packing_checks, "compare", compared)
        yield


@pytest.fixture
def signals_on_purpose(signals_end_the_tests: Callable[..., Any], monkeypatch: pytest.MonkeyPatch) -> None:
    """For a test that sends a signal itself, and goes on: nothing is sent again."""
    monkeypatch.setattr(MultiAgentGRPOTrainer, "train", signals_end_the_tests)


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
