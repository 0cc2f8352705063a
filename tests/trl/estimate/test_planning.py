"""A run's memory and speed put together, against values worked out by hand."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from pettingllms_trl.engines.vllm.kind import VLLM
from pettingllms_trl.estimate.activations import PassBytes
from pettingllms_trl.estimate.gpus import GPUS
from pettingllms_trl.estimate.planning import estimate
from pettingllms_trl.estimate.remedies import advise
from pettingllms_trl.estimate.report import report
from pettingllms_trl.estimate.runs import ModelPlan, RunPlan
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
    name="8B",
    shape=SHAPE,
    width=2,
    is_trained=False,
    passes=lambda rows, length, is_sharded: PassBytes(peak=12_000_000_000, kept=0),
    num_adapters=2,
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
        "engine": VLLM.options,
        "utilization": 0.5,
        "sleeps": False,
        "tensor_parallel": 1,
        "max_model_length": 4096,
        "generation_batch": 128,
        "num_candidates": 4,
        "max_envs": None,
        "is_parallel": False,
        "prompt": 500,
        "completion": 3596,
        "rows": 4,
        "accumulation": 16,
        "num_iterations": 1,
        "sampling_width": 2,
    }
    return RunPlan(**{**chosen, **more})


def test_an_update_has_the_engine_beside_it_unless_that_sleeps() -> None:
    found, asleep = advise(plan()), advise(plan(sleeps=True))
    # Adapters: 16 GB frozen, 100 M x 16 bytes; 8 GB of headroom; 12 of the pass; half of 80 for vLLM.
    assert sum(found.update.values()) == pytest.approx(16e9 + 1.6e9 + 8e9 + 12e9 + 40e9)
    assert sum(asleep.update.values()) == pytest.approx(16e9 + 1.6e9 + 8e9 + 12e9)
    assert sum(found.rollout.values()) == sum(asleep.rollout.values()) == pytest.approx(16e9 + 1.6e9 + 8e9 + 40e9)


def test_a_cache_is_what_weights_and_overhead_leave_of_the_engines_share() -> None:
    (engine,) = advise(plan()).engines
    # 40 - 16.2 (8 B and two adapters in bfloat16) - 1.5 = 22.3 GB; blocks of 16 tokens of 144,000 bytes.
    assert engine.cache == pytest.approx(22.3e9)
    assert engine.tokens == 22_300_000_000 // (16 * 144_000) * 16


def test_two_models_share_vllms_memory_by_their_sizes() -> None:
    small = replace(WHOLE, shape=replace(SHAPE, parameters=2_000_000_000))
    first, second = advise(plan(models=(WHOLE, small))).engines
    assert (first.budget, second.budget) == (pytest.approx(32e9), pytest.approx(8e9))


def test_a_cache_without_room_for_a_sequence_is_refused_with_what_to_set() -> None:
    # 0.25 of 80 GB are 20, less 16.2 and 1.5: 2.3 GB hold 15,968 tokens; 20,000 need 2.88 GB.
    said, cures = advise(plan(utilization=0.25, max_model_length=20_000)).problems
    assert "hold 15,968 tokens; it does not start with less than one sequence of 20,000" in said
    # 16.2 + 1.5 + 2.88 GB are 0.257 of 80.
    assert cures == "It fits with vllm_gpu_memory_utilization: 0.26, or vllm_max_model_length: 4096."


def test_of_an_engine_over_two_gpus_each_holds_half_of_the_longest_sequence() -> None:
    # 0.12 of 80 GB are 9.6, less 8.1 and 1.5: nothing is left; of 20,000 tokens each holds 1.44 GB, 0.018 of a GPU.
    found = advise(plan(utilization=0.12, max_model_length=20_000, tensor_parallel=2, num_gpus=2))
    assert found.problems[-1] == "It fits with vllm_gpu_memory_utilization: 0.14."


def test_groups_that_divide_an_engine_are_as_many_players() -> None:
    four = plan(num_gpus=8, tensor_parallel=4, generation_batch=1024)
    assert four.num_players == 2
    # A step of 256 sequences of a fourth of the model, by each of the two groups.
    step = decoding_step(H100, SHAPE.parameters / 4, SHAPE.kv_values * 2 / 4, sequences=256, context=CONTEXT)
    assert advise(four).sampled_rate == pytest.approx(2 * 256 / step)
    assert "A rollout: 512 sequences in play on each group of 4 processes at most." in report(advise(four))


LARGE_ADAPTERS = replace(ADAPTERS, shape=replace(SHAPE, parameters=40_000_000_000))


def test_an_engine_over_several_gpus_is_proposed_where_it_makes_a_model_fit() -> None:
    # 80 GB of weights. ZeRO-3 leaves 10 of them in the update; into vLLM's 40 GB a fourth of them fits, half does not.
    # With 512 sequences in play, two engines over four GPUs are faster than one over eight.
    cure = "vllm_tensor_parallel_size: 4 and zero3.yaml (--sharding zero3)"
    found = advise(plan(LARGE_ADAPTERS, num_gpus=8, generation_batch=1024))
    assert found.problems[-1] == f"It fits with {cure}."
    alone = advise(plan(LARGE_ADAPTERS, generation_batch=1024))
    # Rollouts stay at 1,024 sequences, and updates at 64: 4 x 16 on one GPU, 8 x 4 x 2 on eight.
    options = "--num_gpus 8 --sharding zero3 --generation_batch_size 1024 --gradient_accumulation_steps 2"
    cure = f"8 GPUs with zero3.yaml and vllm_tensor_parallel_size: 4 ({options})"
    assert alone.problems[-1] == f"It fits with {cure}."


def test_of_engines_that_fit_the_fastest_is_proposed() -> None:
    # 38.2 GB of weights in vLLM's 40.8 GB, over two GPUs, leave 1.1 GB on each, or 15,264 tokens for 19 sequences of
    # 800; over four, 20.2 GB or 561,000 tokens for 256 sequences: two engines with more than thirteen times as many.
    middle = replace(ADAPTERS, shape=replace(SHAPE, parameters=38_100_000_000))
    found = advise(plan(middle, num_gpus=8, utilization=0.51, generation_batch=1024))
    assert found.problems[-1] == "It fits with vllm_tensor_parallel_size: 4 and zero3.yaml (--sharding zero3)."
    half = estimate(plan(middle, num_gpus=8, utilization=0.51, tensor_parallel=2, sharding="zero3"))
    assert half.engines[0].tokens == 15_264
    assert half.problems == ()
    # With 256 sequences in play one engine over eight GPUs is 5% faster than two over four, without what GPUs send.
    few = advise(plan(LARGE_ADAPTERS, num_gpus=8, generation_batch=256))
    assert few.problems[-1] == "It fits with vllm_tensor_parallel_size: 4 and zero3.yaml (--sharding zero3)."


def test_a_share_of_the_memory_is_not_proposed_where_the_weights_alone_do_not_fit() -> None:
    # 80 GB of weights in the trainer alone.
    assert "vllm_gpu_memory_utilization" not in " ".join(advise(plan(LARGE_ADAPTERS)).problems)


def test_a_pass_is_measured_for_the_sharding_that_is_tried() -> None:
    def passes(rows: int, length: int, is_sharded: bool) -> PassBytes:
        return PassBytes(peak=(10 if is_sharded else 45) * 1_000_000_000, kept=0)

    # ZeRO-3 leaves 128 / 8 = 16 GB, 8 of headroom, vLLM's 40, and the pass: 74 GB with a sharded one, else 109.
    found = advise(plan(replace(WHOLE, passes=passes), num_gpus=8))
    assert "zero3.yaml (--sharding zero3)" in found.problems[-1]
    assert "zero2" not in found.problems[-1]  # 16 + 112 / 8 + 8 + 40 + 10 = 88


@pytest.mark.parametrize(
    ("each", "cure"),
    [
        # 16 + 1.6 + 8 + 40 GB leave 14.4 for the pass.
        (7_000_000_000, "per_device_train_batch_size: 2 (gradient_accumulation_steps: 32 for the same mini-batch)"),
        (14_000_000_000, "per_device_train_batch_size: 1 (gradient_accumulation_steps: 64 for the same mini-batch)"),
    ],
)
def test_of_rows_the_most_that_fit_are_proposed(each: int, cure: str) -> None:
    model = replace(ADAPTERS, passes=lambda rows, length, is_sharded: PassBytes(rows * each, 0))
    assert cure in advise(plan(model)).problems[-1]


def test_of_instances_in_play_the_most_that_fit_are_proposed() -> None:
    # 16 + 1.6 + 8 GB leave 54.4. A sequence takes 4,096 x 144,000 bytes and 8 x 150,000 of logits, 0.591 GB: 92 of
    # them fit, or 23 instances of 4.
    found = advise(plan(sampler="generate"))
    assert "It fits with max_envs: 23" in found.problems[-1]


def test_where_nothing_else_fits_shorter_completions_are_proposed() -> None:
    # 25.6 GB leave room for 54.4 / 0.027 = 2,014 tokens, 1,514 of them a completion; three eighths of 3,596 are 1,348.
    model = replace(ADAPTERS, passes=lambda rows, length, is_sharded: PassBytes(length * 27_000_000, 0))
    found = advise(plan(model, rows=1, sampler="generate", generation_batch=4))
    assert found.problems[-1] == "It fits with max_completion_length: 1348."


def test_an_update_is_of_sequences_as_long_as_vllm_takes_them() -> None:
    asked: list[int] = []

    def passes(rows: int, length: int, is_sharded: bool) -> PassBytes:
        asked.append(length)
        return PassBytes(length * 3_000_000, 0)  # 12.3 GB for 4,096 tokens; 14.4 GB are left for 4,800

    model = replace(ADAPTERS, passes=passes)
    found = advise(plan(model, completion=16_000))
    assert found.problems == ()
    assert asked[0] == 4096
    assert "4 sequences of 500 + 3,596 tokens at most" in report(found)
    # An eighth of the way from 4,096 to 16,500 is 5,646, which does not fit.
    cut = "After a prompt of 500 tokens a completion is cut at 3,596, where 4,096 are reached (vllm_max_model_length)."
    assert found.notes == (f"{cut} Set max_completion_length: 3596.",)
    more = advise(plan(model, completion=4000))  # 4,500 tokens fit
    assert more.notes == (f"{cut} Set max_completion_length: 3596, or vllm_max_model_length: 4500.",)
    served = advise(plan(replace(model, on_server=True), completion=16_000, sampler="server"))
    assert "4 sequences of 500 + 3,596 tokens at most" in report(served)
    local = advise(plan(model, completion=16_000, sampler="generate", generation_batch=4))
    assert "4 sequences of 500 + 16,000 tokens at most" in report(local)  # `generate` knows the model's context alone


def test_the_mini_batch_and_its_updates_are_those_of_the_number_of_gpus() -> None:
    one, eight = (report(advise(plan(num_gpus=number))) for number in (1, 8))
    assert "x 16 (gradient_accumulation_steps) x 1 GPU = 64 sequences." in one
    assert "Updates for each rollout: 128 (generation_batch_size) / 64 = 2." in one
    assert "For 1 GPU; give --num_gpus (and --sharding) for several." in one
    assert "x 8 GPUs = 512 sequences.\nUpdates for each rollout: 128 (generation_batch_size) / 512 = 0.25." in eight
    assert "For 1 GPU" not in eight


def test_a_run_takes_as_many_tokens_and_hours_as_its_rollouts() -> None:
    found = advise(plan(max_steps=400))
    # Two updates a rollout: 200 of 128 sequences of 300 tokens are 7.68 M.
    hours = 7.68e6 / found.trained_rate / 3600
    said = f"max_steps 400: 200 rollouts; for each decision of an episode 7.7 M completion tokens, {hours:.2g} hours"
    assert said in report(found)
    assert "max_steps" not in report(advise(plan()))


def test_models_on_servers_need_a_server_each() -> None:
    served = replace(WHOLE, on_server=True)
    both = advise(
        plan(models=(served, replace(served, name="other")), num_gpus=16, sharding="zero3", sampler="server")
    )
    assert "Each of these models needs a server of its own, which vllm_server_urls names by policy." in report(both)
    assert "of its own, which" not in report(advise(plan(served, num_gpus=16, sharding="zero3", sampler="server")))


def test_a_smaller_share_for_the_engine_is_proposed_where_it_makes_a_run_fit() -> None:
    # 16 + 1.6 + 8 + 12 GB in the update, and 72 of vLLM: 29.6 too many, or 0.37.
    assert "vllm_gpu_memory_utilization: 0.53" in advise(plan(utilization=0.9)).problems[-1]


def test_lengths_that_vllm_refuses_are_refused_and_those_that_it_cuts_are_named() -> None:
    said, cure = advise(plan(prompt=4096)).problems
    assert "a prompt of 4,096 tokens leaves 8B no room for a completion: both together are 4,096" in said
    assert cure == "It fits with vllm_max_model_length: 7692."
    said, cure = advise(plan(max_model_length=50_000)).problems
    assert "is 50,000, but 8B takes 40,000 tokens at most" in said
    assert cure == "It fits with vllm_max_model_length: 4096."
    cut = report(advise(plan(prompt=1000)))
    assert "After a prompt of 1,000 tokens a completion is cut at 3,096, where 4,096 are reached" in cut
    assert "is cut" not in report(advise(plan()))


def test_an_engine_that_does_not_start_has_no_speed() -> None:
    assert "Tokens a second" in report(advise(plan()))
    small = advise(plan(utilization=0.2))
    assert "Tokens a second" not in report(small)
    assert "vllm_max_model_length" not in small.problems[0].partition("Set ")[2]  # no length fits into an empty cache


def test_what_is_too_large_names_each_single_change_that_makes_it_fit() -> None:
    found = advise(plan(WHOLE, num_gpus=8, sampler="generate"))
    # 8 B x 16 bytes, and 4 of DDP's buckets, do not fit. ZeRO-2: 16 + 112 / 8 + 12 + 8 = 50; ZeRO-3 and FSDP2: 36.
    assert found.problems[0].startswith("an update takes 180.0 GB on each GPU, of which optimizer states 64.0")
    for sharding in ("zero2", "zero3", "fsdp2"):
        assert f"{sharding}.yaml" in found.problems[-1]
    alone = advise(plan(WHOLE, sampler="generate"))
    options = "--num_gpus 8 --sharding zero3 --generation_batch_size 128 --gradient_accumulation_steps 2"
    assert alone.problems[-1] == f"It fits with 8 GPUs with zero3.yaml ({options})."


def test_more_gpus_are_proposed_only_where_the_rollout_can_be_shared_out() -> None:
    # 96 sequences: 8 GPUs with 8 each are a step of 64, which does not divide them; 8 x 12 do.
    assert "8 GPUs" not in advise(plan(WHOLE, sampler="generate", generation_batch=96, rows=8)).problems[-1]
    assert "8 GPUs" in advise(plan(WHOLE, sampler="generate", generation_batch=96, rows=12)).problems[-1]


def test_a_model_on_a_server_takes_nothing_of_the_trainers_gpus() -> None:
    found = advise(plan(replace(ADAPTERS, on_server=True), sampler="server"))
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
