"""Operations of a pass over a decision's candidates: each with its prompt, and packed, under masks or in segments.

    PYTHONPATH=. python benchmarks/attention_operations.py

Where a GPU waits for Python, a pass takes as long as its operations are launched. They are counted here on the
simulated one: forward and backward of four layers of a Qwen3-0.6B in bfloat16, four candidates of 128 tokens, a prompt
of 300.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from unittest import mock

from pettingllms_trl.estimate.simulated_shapes import ShapesDevice, Work


DEVICE = ShapesDevice.install()  # before transformers

import torch  # noqa: E402
from transformers import AutoModelForCausalLM, Qwen3Config  # noqa: E402

from pettingllms_trl.estimate.stand_ins import put_on_device  # noqa: E402
from pettingllms_trl.update.packed_attention import attending  # noqa: E402
from pettingllms_trl.update.packing import segment_attention  # noqa: E402
from pettingllms_trl.update.packing.pack import pack  # noqa: E402


PROMPT, COMPLETION, CANDIDATES = 300, 128, 4
SIZES = {
    "vocab_size": 1000, "hidden_size": 1024, "intermediate_size": 3072, "num_hidden_layers": 4,
    "num_attention_heads": 16, "num_key_value_heads": 8, "head_dim": 128, "eos_token_id": 1, "pad_token_id": 0,
}  # fmt: skip


def counted(model: Any, inputs: Callable[[], dict[str, Any]]) -> int:
    """Operations of a forward and a backward pass."""
    for parameter in model.parameters():
        parameter.grad = None
    given, before = inputs(), DEVICE.since(Work())
    model(**given, use_cache=False).last_hidden_state.sum().backward()
    return int(DEVICE.since(before).operations)


def counts() -> dict[str, int]:
    """Of all three."""
    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(Qwen3Config(**SIZES), dtype=torch.bfloat16).model
    put_on_device(model, DEVICE)
    ids = torch.full((CANDIDATES, PROMPT + COMPLETION), 2)
    mask = torch.ones_like(ids)
    device = torch.device("mlu")

    def alone() -> dict[str, Any]:
        return {"input_ids": ids.to(device), "attention_mask": mask.to(device)}

    def together() -> dict[str, Any]:
        packed = pack(ids, mask, COMPLETION, device=device)
        names = ("input_ids", "attention_mask", "position_ids", "shared_prefix")
        return {name: packed.inputs[name] for name in names}

    found = {"each with its prompt": counted(model, alone)}
    with attending(model):
        found["packed, under masks"] = counted(model, together)
        with mock.patch.object(segment_attention, "KINDS", {device.type}):
            found["packed, in segments"] = counted(model, together)
    return found


def main() -> None:
    """Count and print."""
    for way, number in (found := counts()).items():
        print(f"{way:22}{number:5} operations, {number / found['each with its prompt']:.2f}")


if __name__ == "__main__":
    main()
