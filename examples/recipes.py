"""Prints the tables of docs/recipes.md: memory and network traffic of a run, by arithmetic alone.

    python examples/recipes.py

`pettingllms train --estimate` puts the same numbers together for one configuration.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import cache
from typing import NamedTuple

import torch
from peft import LoraConfig, get_peft_model
from transformers import Qwen3Config, Qwen3ForCausalLM

from pettingllms_trl.estimate.memory import Sharding, Weights, all_reduced, gathered_in_a_pass, training_state


GB = 1e9
SEQUENCES, TOKENS = 128, 500 + 4096  # 32 instances x 4 candidates at once; a prompt of a game and the longest reply
LORA = LoraConfig(r=16, target_modules="all-linear", task_type="CAUSAL_LM")
CONFIGS = {
    "1.7B": Qwen3Config(
        vocab_size=151_936,
        hidden_size=2048,
        intermediate_size=6144,
        num_hidden_layers=28,
        num_attention_heads=16,
        num_key_value_heads=8,
        head_dim=128,
        max_position_embeddings=40_960,
        tie_word_embeddings=True,
    ),
    "8B": Qwen3Config(
        vocab_size=151_936,
        hidden_size=4096,
        intermediate_size=12_288,
        num_hidden_layers=36,
        num_attention_heads=32,
        num_key_value_heads=8,
        head_dim=128,
        max_position_embeddings=40_960,
        tie_word_embeddings=False,
    ),
}
"""The shapes of Qwen/Qwen3-1.7B and Qwen/Qwen3-8B, so that nothing is loaded from the Hub."""
POLICIES = {"L1": 1, "L2": 2, "L3": 2}


class Shape(NamedTuple):
    """A model's counts: parameters, those of an adapter, and numbers that the KV cache holds for a token."""

    parameters: int
    adapter: int
    kv_values: int


@cache
def shapes() -> dict[str, Shape]:
    """The counts of both models, with an adapter of rank 16 on every matrix of the layers."""
    found = {}
    for size, config in CONFIGS.items():
        with torch.device("meta"):
            model = Qwen3ForCausalLM(config)
            number = model.num_parameters()
            adapter = get_peft_model(model, LORA).get_nb_trainable_parameters()[0]
        values = 2 * config.num_hidden_layers * config.num_key_value_heads * config.head_dim
        found[size] = Shape(number, adapter, values)
    return found


def trained(model: Shape, layout: str) -> int:
    """Trained parameters of all policies."""
    return POLICIES[layout] * (model.adapter if layout == "L2" else model.parameters)


def state(model: Shape, layout: str, sharding: Sharding, num_gpus: int) -> float:
    """Bytes on each GPU for weights, gradients and AdamW's two moments, without DDP's buckets."""
    held = [Weights(parameters=trained(model, layout), width=4, is_trained=True)]
    if layout == "L2":
        held.append(Weights(parameters=model.parameters, width=2, is_trained=False))
    found = training_state(held, sharding, num_gpus)
    return found.weights + found.gradients + found.optimizer


def to_engine(model: Shape, layout: str) -> float:
    """Bytes that go to an engine that samples (vLLM) for each rollout, in bfloat16."""
    return 2.0 * trained(model, layout)


def a_pass(model: Shape, layout: str, num_gpus: int) -> float:
    """Bytes that each GPU gathers and scatters in a pass of one policy."""
    return gathered_in_a_pass(model.parameters, model.adapter if layout == "L2" else model.parameters, num_gpus)


def tables() -> str:
    """All tables, as Markdown."""
    return "\n\n".join(
        (
            table(
                ("", "parameters", "adapter, rank 16", "KV cache per token, 2 or 4 bytes", "128 longest sequences"),
                (
                    (
                        size,
                        f"{m.parameters / 1e9:.2f} B",
                        f"{m.adapter / 1e6:.1f} M",
                        " or ".join(f"{each * m.kv_values / 1024:.0f}" for each in (2, 4)) + " KiB",
                        " or ".join(f"{SEQUENCES * TOKENS * each * m.kv_values / GB:.0f}" for each in (2, 4)) + " GB",
                    )
                    for size, m in shapes().items()
                ),
            ),
            table(
                ("GB on each GPU", "1 GPU", "8, DDP", "8, ZeRO-2", "8, ZeRO-3 or FSDP2", "32, ZeRO-3 or FSDP2"),
                by_run(
                    lambda m, layout: (
                        state(m, layout, "ddp", 1),
                        state(m, layout, "ddp", 8),
                        state(m, layout, "zero2", 8),
                        state(m, layout, "zero3", 8),
                        state(m, layout, "zero3", 32),
                    )
                ),
            ),
            table(
                ("GB of each GPU", "update, 8, DDP", "update, 32, DDP", "pass, 8, ZeRO-3", "rollout, to the engine"),
                by_run(
                    lambda m, layout: (
                        all_reduced(trained(m, layout), 8),
                        all_reduced(trained(m, layout), 32),
                        a_pass(m, layout, 8),
                        to_engine(m, layout),
                    )
                ),
            ),
        )
    )


def by_run(figures: Callable[[Shape, str], tuple[float, ...]]) -> Iterable[tuple[str, ...]]:
    """A row for each layout and size, in gigabytes."""
    for size, model in shapes().items():
        for layout in POLICIES:
            yield (f"{layout}, {size}", *(f"{value / GB:.1f}" for value in figures(model, layout)))


def table(headings: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> str:
    """A Markdown table."""
    return "\n".join(f"| {' | '.join(row)} |" for row in (headings, ("---",) * len(headings), *rows))


if __name__ == "__main__":
    print(tables())
