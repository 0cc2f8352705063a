"""What the tests of native tools train: Plan-Path whose planner may add numbers, and a model with Qwen3's template."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import trl
from transformers import PreTrainedTokenizerFast

import pettingllms_envs
from chat_tokenizers import tokenizer_for
from pettingllms_envs.core import ToolResult, ToolSpec
from pettingllms_envs.tools import written_call


TEMPLATES = Path(trl.__file__).parent / "chat_templates"
CALL = written_call("add", {"numbers": "1 2 3"})


class Adder:
    """A tool that needs no sandbox."""

    spec = ToolSpec(
        "add",
        "Adds numbers.",
        {"type": "object", "properties": {"numbers": {"type": "string"}}, "required": ["numbers"]},
    )
    digest = ""
    deterministic = True

    def __call__(self, request: str) -> ToolResult:
        return ToolResult(str(sum(map(int, request.split()))))


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
