"""A run's memory and speed put together, against values worked out by hand."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from pettingllms_trl.estimate.activations import PassBytes
from pettingllms_trl.estimate.gpus import GPUS
from pettingllms_trl.estimate.planning import ModelPlan, RunPlan, estimate
from pettingllms_trl.estimate.report import report
from pettingllms_trl.estimate.shapes import Shape
from pettingllms_trl.estimate.speed import CONTEXT, LARGE, SMALL, decoding_step, update_rate


H100 = GPUS["h100"]
SHAPE = Shape(
    parameters=8_000_000_000,
    head=600_000_000,
    adapter=50_000_000,
    hidden=4096,
    vocabulary=150_000,
    kv_values=72_000,  # 144,000 bytes a token in bfloat16
    context=40_000,
)
ADAPTERS = ModelPlan(
    name="8B", shape=SHAPE, width=2, is_trained=False, num_adapters=2, update=PassBytes(peak=12_000_000_000, kept=0)
)
WHOLE = replace(ADAPTERS, width=4, is_trained=True, num_adapters=0)


def plan(model: ModelPlan = ADAPTERS, **more: Any) -> RunPlan:
    chosen: dict[str, Any] = {
        "gpu": H100,
        "num_gpus": 1,
        "sharding": "ddp",
        "moments": 2,
        "models": (model,),
        "sampler": "colocate",
        "utilization": 0.5,
        "sleeps": False,
        "tensor_parallel": 1,
        "max_model_length": 4096,
        "num_candidates": 4,
        "sequences": 128,
        "prompt": 500,
        "completion": 3596,
        "rows": 4,
        "sampling_width": 2,
    }
    return RunPlan(**{**chosen, **more})


def test_an_update_has_the_engine_beside_it_unless_that_sleeps() -> None:
    found, asleep = estimate(plan()), estimate(plan(sleeps=True))
    # Adapters: 16 GB frozen, 100 M x 16 bytes; 8 GB of headroom; 12 of the pass; half of 80 for vLLM.
    assert sum(found.update.values()) == pytest.approx(16e9 + 1.6e9 + 8e9 + 12e9 + 40e9)
    assert sum(asleep.update.values()) == pytest.approx(16e9 + 1.6e9 + 8e9 + 12e9)
    assert sum(found.rollout.values()) == sum(asleep.rollout.values()) == pytest.approx(16e9 + 1.6e9 + 8e9 + 40e9)


def test_a_cache_is_what_weights_and_overhead_leave_of_the_engines_share() -> None:
    (engine,) = estimate(plan()).engines
    # 40 - 16.2 (8 B and two adapters in bfloat16) - 1.5 = 22.3 GB; blocks of 16 tokens of 144,000 bytes.
    assert engine.cache == pytest.approx(22.3e9)
    assert engine.tokens == 22_300_000_000 // (16 * 144_000) * 16


def test_two_models_share_vllms_memory_by_their_sizes() -> None:
    small = replace(WHOLE, shape=replace(SHAPE, parameters=2_000_000_000))
    first, second = estimate(plan(models=(WHOLE, small))).engines
    assert (first.budget, second.budget) == (pytest.approx(32e9), pytest.approx(8e9))


def test_a_cache_without_room_for_a_sequence_is_refused_with_what_to_set() -> None:
    # 0.25 of 80 GB are 20, less 16.2 and 1.5: 2.3 GB hold 15,968 tokens; 20,000 need 2.88 GB.
    (said,) = estimate(plan(utilization=0.25, max_model_length=20_000)).problems
    assert "hold 15,968 tokens; it does not start with less than one sequence of 20,000" in said
    assert "vllm_max_model_length: 4096" in said
    assert "vllm_gpu_memory_utilization: 0.27" in said


def test_of_an_engine_over_two_gpus_each_holds_half_of_the_longest_sequence() -> None:
    # 0.12 of 80 GB are 9.6, less 8.1 and 1.5: nothing is left; of 20,000 tokens each holds 1.44 GB, 0.018 of a GPU.
    (said,) = estimate(plan(utilization=0.12, max_model_length=20_000, tensor_parallel=2)).problems
    assert "vllm_gpu_memory_utilization: 0.15" in said


def test_groups_that_divide_an_engine_are_as_many_players() -> None:
    four = plan(num_gpus=8, tensor_parallel=4, sequences=512)
    assert four.num_players == 2
    # A step of 256 sequences of a fourth of the model, by each of the two groups.
    step = decoding_step(H100, SHAPE.parameters / 4, SHAPE.kv_values * 2 / 4, sequences=256, context=CONTEXT)
    assert estimate(four).sampled_rate == pytest.approx(2 * 256 / step)
    assert "A rollout: 512 sequences in play on each group of 4 processes at most." in report(estimate(four))


def test_an_engine_over_several_gpus_is_proposed_where_it_makes_a_model_fit() -> None:
    large = replace(ADAPTERS, shape=replace(SHAPE, parameters=40_000_000_000))
    found = estimate(plan(large, num_gpus=8))
    # 80 GB of weights. ZeRO-3 leaves 10 of them in the update; into vLLM's 40 GB a fourth of them fits, half does not.
    assert "vllm_tensor_parallel_size: 4 and zero3.yaml (--sharding zero3)" in found.problems[-1]
    assert "size: 2" not in found.problems[-1]
    assert "size: 8" not in found.problems[-1]  # one engine where two are possible
    alone = estimate(plan(large)).problems[-1]
    assert alone.startswith("Nothing that was tried makes it fit: use shorter completions, a smaller model")


def test_a_smaller_share_for_the_engine_is_proposed_where_it_makes_a_run_fit() -> None:
    # 16 + 1.6 + 8 + 12 GB in the update, and 72 of vLLM: 29.6 too many, or 0.37.
    assert "vllm_gpu_memory_utilization: 0.52" in estimate(plan(utilization=0.9)).problems[-1]


def test_lengths_that_vllm_refuses_are_refused_and_those_that_it_cuts_are_named() -> None:
    (said,) = estimate(plan(prompt=4096)).problems
    assert "a prompt of 4,096 tokens leaves 8B no room for a completion: both together are 4,096" in said
    assert "is 50,000, but 8B takes 40,000 tokens at most" in estimate(plan(max_model_length=50_000)).problems[0]
    cut = report(estimate(plan(prompt=1000)))
    assert "After a prompt of 1,000 tokens a completion is cut at 3,096, where 4,096 are reached" in cut
    assert "is cut" not in report(estimate(plan()))


def test_an_engine_that_does_not_start_has_no_speed() -> None:
    assert "Tokens a second" in report(estimate(plan()))
    small = estimate(plan(utilization=0.2))
    assert "Tokens a second" not in report(small)
    assert "vllm_max_model_length" not in small.problems[0].partition("Set ")[2]  # no length fits into an empty cache


def test_what_is_too_large_names_each_single_change_that_makes_it_fit() -> None:
    found = estimate(plan(WHOLE, num_gpus=8, sampler="generate", sequences=16))
    # 8 B x 16 bytes, and 4 of DDP's buckets, do not fit. ZeRO-2: 16 + 112 / 8 + 12 + 8 = 50; ZeRO-3 and FSDP2: 36.
    assert found.problems[0].startswith("an update takes 180.0 GB on each GPU, of which optimizer states 64.0")
    for sharding in ("zero2", "zero3", "fsdp2"):
        assert f"{sharding}.yaml" in found.problems[-1]
    alone = estimate(plan(WHOLE, sampler="generate", sequences=128))
    assert alone.problems[-1] == "It fits with 8 GPUs with zero3.yaml (--num_gpus 8 --sharding zero3)."


def test_a_model_on_a_server_takes_nothing_of_the_trainers_gpus() -> None:
    found = estimate(plan(replace(ADAPTERS, on_server=True), sampler="server"))
    assert sum(found.update.values()) == pytest.approx(16e9 + 1.6e9 + 8e9 + 12e9)
    assert found.engines[0].budget == pytest.approx(72e9)  # 0.9 of a GPU of its own


@pytest.mark.parametrize("assumed", [SMALL, LARGE])
def test_the_assumed_engines_are_on_the_line(assumed: Any) -> None:
    # Eight sequences, few enough that reading the cache takes nothing.
    step = decoding_step(H100, assumed.parameters, 0.0, sequences=8, context=650)
    assert step == pytest.approx(assumed.step_s + 8 * assumed.row_s)


def test_no_step_is_quicker_than_its_reads() -> None:
    # 1.7 B: 3.4 GB of weights and 256 x 650 tokens of 114,688 bytes, 22.5 GB at 3.35 TB/s.
    expected = (3.4e9 + 256 * 650 * 114_688) / 3.35e12
    assert decoding_step(H100, 1.7e9, 114_688, sequences=256, context=650) == pytest.approx(expected)


def test_an_update_takes_eight_operations_for_each_parameter_and_token() -> None:
    assert update_rate(H100, 8e9) == pytest.approx(0.4e15 / 64e9)
    assert update_rate(GPUS["a100"], 8e9) == pytest.approx(0.4e15 / 64e9 * 312 / 989)
