"""Models with learned positions: wrong on TRL's path where prompts are padded, and right wherever we choose it."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import pytest
import torch
from datasets import Dataset
from transformers import (
    GPT2Config,
    GPT2LMHeadModel,
    LlamaConfig,
    LlamaForCausalLM,
    OPTConfig,
    OPTForCausalLM,
    PreTrainedModel,
    XGLMConfig,
    XGLMForCausalLM,
)

import twins
from pettingllms_trl import MultiAgentGRPOConfig, MultiAgentGRPOTrainer
from third_party import OneShot


SIZES = {"vocab_size": 300, "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2}
ENDS = {"pad_token_id": 0, "eos_token_id": 1, "bos_token_id": None}


def gpt2() -> PreTrainedModel:
    none = dict.fromkeys(("attn_pdrop", "embd_pdrop", "resid_pdrop"), 0.0)
    return GPT2LMHeadModel(
        GPT2Config(
            vocab_size=300, n_embd=32, n_layer=2, n_head=2, n_positions=64, initializer_range=0.3, **none, **ENDS
        )
    )


def llama() -> PreTrainedModel:
    return LlamaForCausalLM(LlamaConfig(**SIZES, **ENDS, intermediate_size=64, initializer_range=0.3))


def opt() -> PreTrainedModel:
    """Its positions are learned, and taken from the mask."""
    return OPTForCausalLM(
        OPTConfig(**SIZES, **ENDS, ffn_dim=64, max_position_embeddings=64, word_embed_proj_dim=32, dropout=0.0)
    )


def xglm() -> PreTrainedModel:
    """Its positions are computed, and added to its embeddings."""
    sizes = {"d_model": 32, "ffn_dim": 64, "num_layers": 2, "attention_heads": 2, "vocab_size": 300}
    none = dict.fromkeys(("dropout", "attention_dropout", "activation_dropout", "layerdrop"), 0.0)
    return XGLMForCausalLM(XGLMConfig(**sizes, **none, **ENDS, max_position_embeddings=64, init_std=0.3))


class CannotShare(MultiAgentGRPOTrainer):
    def _attach_team(self) -> None:
        super()._attach_team()
        self.scorer._why_not_exact = lambda: "cannot share prompts (this is a test)"


def trainer_of(
    trainer_class: type[MultiAgentGRPOTrainer], make: Any, tokenizer: Any, path: Path, **options: Any
) -> MultiAgentGRPOTrainer:
    torch.manual_seed(0)
    model = make()
    model.config._name_or_path = "none"
    return trainer_class(
        model,
        OneShot,
        MultiAgentGRPOConfig(**twins.arguments(path, bf16=False, **options)),
        Dataset.from_dict({"seed": twins.SEEDS}),
        processing_class=tokenizer,
    )


def error(trainer: MultiAgentGRPOTrainer) -> float:
    """Of the log-probabilities of two sequences, one of them padded, beside those of each alone."""
    prompts, completions = [[3, 6, 7], [3, 6, 7, 8, 9, 10, 11, 12]], [[6, 7, 8], [9, 10, 11]]
    ids = torch.tensor([[0] * (8 - len(p)) + p + c for p, c in zip(prompts, completions, strict=True)])
    model = trainer.model.eval()
    with torch.no_grad():
        found, _, _ = trainer.scorer.score(model, ids, (ids != 0).long(), 3)
        for row, (prompt, completion) in enumerate(zip(prompts, completions, strict=True)):
            logits = model(input_ids=torch.tensor([prompt + completion])).logits[0, len(prompt) - 1 : -1]
            found[row] -= logits.log_softmax(-1).gather(1, torch.tensor(completion)[:, None])[:, 0]
    return float(found.abs().max())


@pytest.mark.parametrize("make", [gpt2, llama, opt, xglm])
def test_a_model_that_cannot_share_prompts_is_given_its_positions(make: Any, tokenizer: Any, tmp_path: Path) -> None:
    with pytest.warns(UserWarning, match="shared_prefix=True, but"):
        trainer = trainer_of(CannotShare, make, tokenizer, tmp_path)
    assert error(trainer) < 1e-5
    assert trainer.scorer.with_positions == ({"base"} if make in (gpt2, xglm) else set())


def test_with_a_compiled_model_positions_are_given_too(
    tokenizer: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch, "compile", lambda model, **_: model)
    with pytest.warns(UserWarning, match="is compiled"):
        trainer = trainer_of(MultiAgentGRPOTrainer, gpt2, tokenizer, tmp_path, torch_compile=True)
    assert error(trainer) < 1e-5


def test_trls_path_keeps_trls_positions_and_says_once_that_they_are_wrong(tokenizer: Any, tmp_path: Path) -> None:
    with pytest.warns(UserWarning, match="learned positions") as caught:
        trainer = trainer_of(MultiAgentGRPOTrainer, gpt2, tokenizer, tmp_path, shared_prefix=False)
    assert len([each for each in caught if "learned positions" in str(each.message)]) == 1
    assert error(trainer) > 0.1


@pytest.mark.parametrize(("make", "shared_prefix"), [(gpt2, True), (llama, False), (opt, False)])
def test_nothing_is_said_where_positions_are_right(
    make: Any, shared_prefix: bool, tokenizer: Any, tmp_path: Path
) -> None:
    with warnings.catch_warnings():
        warnings.filterwarnings("error", message=".*learned positions")
        trainer = trainer_of(MultiAgentGRPOTrainer, make, tokenizer, tmp_path, shared_prefix=shared_prefix)
    assert error(trainer) < 1e-5
