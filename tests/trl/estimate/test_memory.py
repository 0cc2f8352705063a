"""Memory of a run: formulas against values worked out by hand, and counts against models that are really made."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from transformers import (
    Qwen3Config,
    Qwen3ForCausalLM,
)

from pettingllms_trl.estimate.gpus import GPUS, find_gpu
from pettingllms_trl.estimate.memory import (
    Weights,
    all_reduced,
    blocks_of_cache,
    gathered_in_a_pass,
    training_state,
    whole_weights,
)


MILLION = 1_000_000
TRAINED = Weights(parameters=MILLION, width=4, is_trained=True)
FROZEN = Weights(parameters=MILLION, width=2, is_trained=False)


def tiny(num_layers: int = 3) -> Qwen3Config:
    return Qwen3Config(
        vocab_size=300,
        hidden_size=64,
        intermediate_size=160,
        num_hidden_layers=num_layers,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=16,
        tie_word_embeddings=True,
    )


# ---- Weights, gradients, optimizer states ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("sharding", "num_gpus", "expected"),
    [
        # A million float32 parameters under AdamW: 4 + 4 + 8 bytes each. DDP's buckets: 4 more, from two GPUs on.
        ("ddp", 1, (4.0, 4.0, 8.0, 0.0)),
        ("ddp", 8, (4.0, 4.0, 8.0, 4.0)),
        ("fsdp2", 8, (0.5, 0.5, 1.0, 0.0)),
        # DeepSpeed: 2 whole, then 2 for gradients and 12 for the optimizer's weights and moments over 8.
        ("zero2", 8, (2.0, 0.25, 1.5, 0.0)),
        ("zero3", 8, (0.25, 0.25, 1.5, 0.0)),
    ],
)
def test_a_trained_parameter_takes_sixteen_bytes_divided_as_it_is_sharded(
    sharding: Any, num_gpus: int, expected: tuple[float, ...]
) -> None:
    state = training_state([TRAINED], sharding, num_gpus)
    assert (state.weights, state.gradients, state.optimizer, state.buckets) == tuple(x * MILLION for x in expected)


@pytest.mark.parametrize(("sharding", "expected"), [("ddp", 2.0), ("zero2", 2.0), ("zero3", 0.25), ("fsdp2", 0.25)])
def test_a_frozen_parameter_takes_its_width_alone(sharding: Any, expected: float) -> None:
    assert training_state([FROZEN], sharding, 8).total == expected * MILLION


def test_sgd_keeps_nothing_and_bfloat16_halves_all() -> None:
    assert training_state([TRAINED], "ddp", 1, moments=0).total == 8 * MILLION
    half = Weights(parameters=MILLION, width=2, is_trained=True)
    assert training_state([half], "ddp", 1).total == 8 * MILLION


@pytest.mark.parametrize(("sharding", "expected"), [("ddp", 0), ("zero2", 0), ("zero3", 2 + 2), ("fsdp2", 2 + 2)])
def test_a_process_that_samples_by_itself_gathers_sharded_weights(sharding: Any, expected: int) -> None:
    assert whole_weights([TRAINED, FROZEN], sharding, width=2) == expected * MILLION


def test_without_bf16_fsdp2_gathers_weights_as_they_are() -> None:
    assert whole_weights([TRAINED, FROZEN], "fsdp2", width=4) == (4 + 2) * MILLION


def test_traffic_is_that_of_rings() -> None:
    assert all_reduced(MILLION, 8) == 2 * 7 / 8 * 4 * MILLION
    # ZeRO-3: gathered forward and backward, 2 x 2 bytes, and 2 of gradients, 7/8 of them from others.
    assert gathered_in_a_pass(MILLION, MILLION, 8) == 7 / 8 * 6 * MILLION


def test_a_cache_holds_whole_blocks() -> None:
    assert blocks_of_cache(1000, 10) == 96  # six blocks of 16 x 10 bytes
    assert blocks_of_cache(-1, 10) == 0


# ---- Counts ---------------------------------------------------------------------------------------------------------


def test_the_bytes_of_a_training_step_are_those_computed() -> None:
    model = Qwen3ForCausalLM(tiny())
    optimizer = torch.optim.AdamW(model.parameters())
    model(input_ids=torch.zeros(1, 4, dtype=torch.long)).logits.sum().backward()
    optimizer.step()
    states = [t for state in optimizer.state.values() for t in state.values() if t.dim()]  # without counts of steps
    state = training_state([Weights(parameters=model.num_parameters(), width=4, is_trained=True)], "ddp", 1)
    assert state.weights == sum(p.nbytes for p in model.parameters())
    assert state.gradients == sum(p.grad.nbytes for p in model.parameters() if p.grad is not None)
    assert state.optimizer == sum(t.nbytes for t in states)


# ---- GPUs -----------------------------------------------------------------------------------------------------------


def test_gpus_are_found_as_people_write_them() -> None:
    assert find_gpu("H100") == GPUS["h100"]
    assert find_gpu("RTX 4090") == GPUS["rtx4090"]
    assert {gpu.memory / 1e9 for gpu in GPUS.values()} == {80, 141, 48, 24}
