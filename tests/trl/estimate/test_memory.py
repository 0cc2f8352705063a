"""Memory of a run: formulas against values worked out by hand, and counts against models that are really made."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from peft import LoraConfig, get_peft_model
from transformers import (
    AutoModelForCausalLM,
    GPT2Config,
    LlamaConfig,
    MixtralConfig,
    PretrainedConfig,
    Qwen3Config,
    Qwen3ForCausalLM,
)
from transformers.models.qwen2_5_vl.configuration_qwen2_5_vl import Qwen2_5_VLVisionConfig
from transformers.models.qwen2_5_vl.modeling_qwen2_5_vl import Qwen2_5_VisionTransformerPretrainedModel

from pettingllms_trl.estimate.activations import OF_ENDS, OF_LAYER, LiveBytes, measured_pass, pass_bytes
from pettingllms_trl.estimate.gpus import GPUS, find_gpu
from pettingllms_trl.estimate.memory import (
    Weights,
    all_reduced,
    blocks_of_cache,
    gathered_in_a_pass,
    logits_bytes,
    training_state,
    whole_weights,
)
from pettingllms_trl.estimate.shapes import shape_of


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


def lora(**more: Any) -> LoraConfig:
    return LoraConfig(r=4, target_modules="all-linear", task_type="CAUSAL_LM", **more)


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


def test_the_logits_are_never_held_whole() -> None:
    # Tile 4,096 x 32,768 x 2 bytes, 10,000 hidden states of 8 in float32.
    assert logits_bytes(10_000, 8, 150_000, width=2, trained_head=0) == 4096 * 32768 * 2 + 4 * 10_000 * 8
    # 10 tokens and 300 ids; a trained head of 2,400 parameters has its gradient twice in float32.
    assert logits_bytes(10, 8, 300, width=4, trained_head=2400) == 10 * 300 * 4 + 4 * 80 + 8 * 2400


def test_a_cache_holds_whole_blocks() -> None:
    assert blocks_of_cache(1000, 10) == 96  # six blocks of 16 x 10 bytes
    assert blocks_of_cache(-1, 10) == 0


# ---- Counts ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("config", "kv_values", "context"),
    [
        (tiny(), 3 * 2 * 2 * 16, 32768),
        (LlamaConfig(vocab_size=90, hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=4,
                     num_key_value_heads=4), 2 * 2 * 32, 2048),
        (GPT2Config(vocab_size=90, n_embd=32, n_layer=2, n_head=4, n_positions=64), 2 * 2 * 32, 64),
    ],
    ids=lambda given: getattr(given, "model_type", ""),
)  # fmt: skip
def test_a_shape_counts_what_the_model_and_its_adapter_have(
    config: PretrainedConfig, kv_values: int, context: int
) -> None:
    peft_config = lora(fan_in_fan_out=config.model_type == "gpt2")
    shape, model = shape_of(config, peft_config), AutoModelForCausalLM.from_config(config)
    assert (shape.parameters, shape.kv_values, shape.context) == (model.num_parameters(), kv_values, context)
    assert shape.adapter == get_peft_model(model, peft_config).get_nb_trainable_parameters()[0]


def test_a_model_with_experts_is_refused() -> None:
    with pytest.raises(ValueError, match="num_experts=8; expected a dense decoder"):
        shape_of(MixtralConfig(num_hidden_layers=1))


def test_the_bytes_of_a_training_step_are_those_computed() -> None:
    model = Qwen3ForCausalLM(tiny())
    optimizer = torch.optim.AdamW(model.parameters())
    model(input_ids=torch.zeros(1, 4, dtype=torch.long)).logits.sum().backward()
    optimizer.step()
    states = [t for state in optimizer.state.values() for t in state.values() if t.dim()]  # without counts of steps
    state = training_state([Weights(parameters=shape_of(tiny()).parameters, width=4, is_trained=True)], "ddp", 1)
    assert state.weights == sum(p.nbytes for p in model.parameters())
    assert state.gradients == sum(p.grad.nbytes for p in model.parameters() if p.grad is not None)
    assert state.optimizer == sum(t.nbytes for t in states)


# ---- Activations ----------------------------------------------------------------------------------------------------


def test_live_bytes_are_counted_once_and_until_they_are_collected() -> None:
    weights = torch.ones(1000)
    with LiveBytes([weights]) as live:
        a = weights + 1  # 4,000 bytes
        b = a.view(10, 100)  # the same
        c = b + 1  # 4,000 more
        assert live.now == 8000
        del a, b
        assert (c.shape, live.now) == ((10, 100), 4000)
        weights.add_(weights)  # in place
    assert (live.now, live.peak) == (4000, 8000)


@pytest.mark.parametrize(
    ("adapter", "checkpointing"),
    [
        (False, False),
        (True, True),
        *(pytest.param(adapter, not adapter, marks=pytest.mark.slow) for adapter in (False, True)),
    ],
)
def test_a_pass_without_storage_takes_what_a_real_one_takes(adapter: bool, checkpointing: bool) -> None:
    dtype = torch.bfloat16 if adapter else torch.float32
    model: Any = Qwen3ForCausalLM._from_config(tiny(), dtype=dtype)
    peft_config = lora() if adapter else None
    if peft_config is not None:
        model = get_peft_model(model, peft_config)
    options = {"rows": 2, "length": 96, "in_bfloat16": True, "checkpointing": checkpointing}
    real = measured_pass(model, **options)
    assert pass_bytes(tiny(), dtype=dtype, peft_config=peft_config, **options) == real


def test_with_checkpoints_a_layer_keeps_its_input() -> None:
    def kept(num_layers: int) -> int:
        return pass_bytes(
            tiny(num_layers), rows=2, length=96, dtype=torch.bfloat16, in_bfloat16=True, checkpointing=True,
            peft_config=lora(),
        ).kept  # fmt: skip

    # 2 x 96 tokens of 64 numbers of 2 bytes.
    assert kept(3) - kept(2) == 2 * 96 * 64 * 2


# ---- GPUs -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("checkpointing", [False, True])
def test_what_a_vision_tower_keeps_is_assumed_as_it_was_counted(checkpointing: bool) -> None:
    vision = Qwen2_5_VLVisionConfig(
        depth=4,
        hidden_size=320,
        intermediate_size=3420 // 4,
        num_heads=4,
        out_hidden_size=512,
        fullatt_block_indexes=[1, 3],
    )
    tower = Qwen2_5_VisionTransformerPretrainedModel._from_config(vision, attn_implementation="sdpa").train()
    if checkpointing:
        tower.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
    for parameter in tower.parameters():
        parameter.grad = torch.zeros_like(parameter)
    known = [*tower.parameters(), *tower.buffers(), *(p.grad for p in tower.parameters() if p.grad is not None)]
    patches = 2 * 16 * 16  # of two pictures with 224 x 224 pixels
    with LiveBytes(known) as live:
        read = tower(torch.randn(patches, 3 * 2 * 14 * 14), grid_thw=torch.tensor([[1, 16, 16]] * 2)).pooler_output
        kept = live.now
        torch.autograd.backward(read, torch.ones_like(read))
    inputs = 4 * patches * 320
    layers = 4 if checkpointing else 4 * OF_LAYER
    assert kept == pytest.approx((layers + OF_ENDS) * inputs, rel=0.1)
    again = OF_LAYER if checkpointing else 0  # the layer that is computed anew
    assert live.peak == pytest.approx((layers + OF_ENDS + again) * inputs, rel=0.1)


def test_gpus_are_found_as_people_write_them() -> None:
    assert find_gpu("H100") == GPUS["h100"]
    assert find_gpu("RTX 4090") == GPUS["rtx4090"]
    assert {gpu.memory / 1e9 for gpu in GPUS.values()} == {80, 141, 48, 24}
