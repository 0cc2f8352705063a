"""What the tests of native tools train: Plan-Path whose planner may add numbers, and a model with Qwen3's template."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import trl
from transformers import PreTrainedTokenizerFast

import pettingllms_envs
from adder import Adder
from chat_tokenizers import tokenizer_for
from pettingllms_envs.tools import written_call
from pettingllms_trl.testing import save_tiny_model


TEMPLATES = Path(trl.__file__).parent / "chat_templates"
CALL = written_call("add", {"numbers": "1 2 3"})


FUNCTION = {"type": "function", "function": Adder.spec._asdict()}


def plan_path(**settings: Any) -> Any:
    """Plan-Path with a tool that the planner calls natively."""
    settings = {"size": 4, "num_turns": 2, "max_tool_calls": 2, "tool_calls": "native", **settings}
    return pettingllms_envs.make("plan_path", role_tools={"planner": [Adder()]}, **settings)


def tokenizer_of(name: str) -> PreTrainedTokenizerFast:
    """A tokenizer of bytes with the chat template of a model in use."""
    tokenizer = tokenizer_for((TEMPLATES / f"{name}.jinja").read_text())
    tokenizer.eos_token, tokenizer.padding_side = "<|im_end|>" if "qwen" in name else "<eos>", "left"
    return tokenizer


def save_model(path: Path) -> str:
    """A tiny random Qwen3 with that template, for prompts of a few thousand bytes."""
    tokenizer = tokenizer_of("qwen3")
    return save_tiny_model(path, tokenizer, hidden_size=16, head_dim=8, max_position_embeddings=8192)
