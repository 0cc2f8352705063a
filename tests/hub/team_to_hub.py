"""Trains tiny teams for a step each, evaluates and saves or pushes them: `team_to_hub.py FOLDER`.

The first is only saved; then the program says so, and waits for a line before it pushes the others.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import torch
from datasets import Dataset
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast, Qwen3Config, Qwen3ForCausalLM

from pettingllms_envs import plan_path_v0
from pettingllms_trl import MultiAgentGRPOConfig, MultiAgentGRPOTrainer


def tiny(folder: Path) -> str:
    """A random Qwen3 of one layer and a tokenizer of bytes."""
    alphabet = ["<pad>", "<end>", *sorted(pre_tokenizers.ByteLevel.alphabet())]
    inner = Tokenizer(models.BPE(vocab={token: i for i, token in enumerate(alphabet)}, merges=[]))
    inner.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    inner.decoder = decoders.ByteLevel()
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=inner, pad_token="<pad>", eos_token="<end>", padding_side="left"
    )
    tokenizer.chat_template = "{% for m in messages %}{{ m['content'] }}<end>{% endfor %}"
    torch.manual_seed(0)
    model = Qwen3ForCausalLM(
        Qwen3Config(
            vocab_size=len(tokenizer),
            hidden_size=32,
            intermediate_size=64,
            num_hidden_layers=1,
            num_attention_heads=2,
            num_key_value_heads=1,
            head_dim=16,
            tie_word_embeddings=True,
            pad_token_id=0,
            eos_token_id=1,
            bos_token_id=None,
        )
    )
    model.save_pretrained(folder / "base")
    tokenizer.save_pretrained(folder / "base")
    return str(folder / "base")


def make_env() -> Any:
    return plan_path_v0.env(size=5, num_turns=2)


def trained(folder: Path, model: str, layout: str) -> MultiAgentGRPOTrainer:
    args = MultiAgentGRPOConfig(
        str(folder),
        per_device_train_batch_size=8,
        num_generations=4,
        max_completion_length=4,
        max_steps=1,
        save_strategy="no",
        report_to="none",
        use_cpu=True,
        bf16=False,
        hub_model_id=f"me/{folder.name}",
        hub_token="hf_fake",  # of the Hub on this machine
    )
    rows = Dataset.from_dict({"seed": range(8)})
    trainer = MultiAgentGRPOTrainer(model, make_env, args, rows, rows.select(range(5)), policies=layout)
    trainer.train()
    trainer.evaluate()
    return trainer


def main(folder: Path) -> None:
    model = tiny(folder)
    shared = trained(folder / "shared", model, "shared")
    shared.save_model(str(folder / "saved"))
    print("saved", flush=True)
    sys.stdin.readline()
    shared.push_to_hub()
    trained(folder / "team", model, "lora").push_to_hub()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
