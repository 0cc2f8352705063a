"""Configurations of Qwen/Qwen3-0.6B, 1.7B and 8B, so that nothing is loaded from the Hub."""

from __future__ import annotations

from typing import Any


QWEN3 = {  # hidden, intermediate, layers, heads, whether the head is the embeddings
    "tiny": (64, 192, 2, 4, True),
    "0.6B": (1024, 3072, 28, 16, True),
    "1.7B": (2048, 6144, 28, 16, True),
    "8B": (4096, 12_288, 36, 32, False),
}
"""And of one to try a benchmark with on a CPU."""


def save_qwen3(size: str, folder: str, **more: Any) -> None:
    """Save the configuration of a size in a folder.

    Args:
        more: Of its fields.
    """
    from transformers import Qwen3Config  # after a device that it is to know

    hidden, intermediate, layers, heads, is_tied = QWEN3[size]
    Qwen3Config(
        vocab_size=151_936,
        hidden_size=hidden,
        intermediate_size=intermediate,
        num_hidden_layers=layers,
        num_attention_heads=heads,
        num_key_value_heads=min(8, heads),
        head_dim=128,
        max_position_embeddings=40_960,
        tie_word_embeddings=is_tied,
        architectures=["Qwen3ForCausalLM"],
        **more,
    ).save_pretrained(folder)
