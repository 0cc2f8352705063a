"""What GPUs hold and how long they take, from a made-up step, against values worked out by hand."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from pettingllms_trl.engines.vllm.kind import VLLM
from pettingllms_trl.estimate.gpus import GPUS
from pettingllms_trl.estimate.memory import Weights
from pettingllms_trl.estimate.planning import Run, Sampled, estimate
from pettingllms_trl.estimate.report import report
from pettingllms_trl.estimate.simulated_shapes import Work
from pettingllms_trl.estimate.speed import CONTEXT, LARGE, SMALL, decoding_step
from pettingllms_trl.estimate.step import Measured, Phase


H100 = GPUS["h100"]
BASE = Sampled(name="8B", parameters=8_100_000_000, kv_values=72_000, context=40_000)  # 144,000 bytes a token
ADAPTERS = [
    Weights(parameters=8_000_000_000, width=2, is_trained=False),
    Weights(parameters=100_000_000, width=4, is_trained=True),
]
WHOLE = [Weights(parameters=8_000_000_000, width=4, is_trained=True)]


def step(held: list[Weights], *, alive: float = 30e9) -> Measured:
    """Of a pass in which so many bytes are alive, and 20 GB in scoring."""
    names = ("creation", "references", "rollout", "scoring", "backward", "optimizer step", "save")
    phases = {name: Phase() for name in names}
    phases["scoring"] = Phase(int(20e9), Work(seconds=3.0))
    phases["backward"] = Phase(int(alive), Work(seconds=8.0))
    phases["optimizer step"].work.seconds = 0.5
    trained = sum(part.parameters * part.width for part in held if part.is_trained)
    return Measured(phases, held, 2 * trained, [], 3596)


def run(**more: Any) -> Run:
    chosen: dict[str, Any] = {
        "gpu": H100,
        "num_gpus": 1,
        "sharding": "ddp",
        "width": 2,
        "pass_width": 2,
        "models": (BASE,),
        "sampler": "colocate",
        "engine": VLLM.options,
        "utilization": 0.5,
        "sleeps": False,
        "tensor_parallel": 1,
        "max_length": 4096,
        "sequences": 128,
        "generation_batch": 128,
        "mini_batch": 64,
        "num_passes": 4,
        "num_iterations": 1,
        "num_candidates": 4,
        "agents": 2,
        "prompt": 500,
        "completion": 3596,
    }
    return Run(**{**chosen, **more})


def test_an_engine_is_beside_the_update_unless_it_sleeps() -> None:
    # 8 GB of headroom, and half of 80 for vLLM.
    assert estimate(run(), step(ADAPTERS)).memory["backward"] == pytest.approx(30e9 + 8e9 + 40e9)
    asleep = estimate(run(sleeps=True), step(ADAPTERS))
    assert asleep.memory["backward"] == pytest.approx(30e9 + 8e9)
    # Weights of 16.4 GB and states of 0.8.
    assert asleep.memory["rollout"] == pytest.approx(16.4e9 + 0.8e9 + 8e9 + 40e9)


def test_a_sharding_takes_the_place_of_one_process_s_own_state() -> None:
    # ZeRO-3 on 8: weights of 32 GB become 2, gradients the same, 64 of moments 12; what is above the state stays.
    measured = step(WHOLE, alive=140e9)
    for name, peak in {
        "creation": 40,
        "references": 33,
        "rollout": 100,
        "scoring": 110,
        "optimizer step": 135,
        "save": 98,
    }.items():
        measured.phases[name].peak = peak * 10**9
    found = estimate(run(num_gpus=8, sharding="zero3", sampler="generate"), measured).memory
    expected = {
        "creation": 40 - 32 + 2 + 8,
        "references": 33 - 32 + 2 + 8,
        "rollout": 100 - 96 + 14 + 8 + 16,  # no gradients, and whole weights in bfloat16
        "scoring": 110 - 96 + 14 + 8,
        "backward": 140 - 128 + 16 + 8,
        "optimizer step": 135 - 128 + 16 + 8,
        "save": 98 - 96 + 14 + 8,
    }
    assert found == pytest.approx({name: size * 1e9 for name, size in expected.items()})
    beside = estimate(run(num_gpus=8, sharding="zero3"), measured).memory  # an engine of 40 GB
    more = {name: 40 * (name != "creation") - 16 * (name == "rollout") for name in expected}
    assert beside == pytest.approx({name: (expected[name] + more[name]) * 1e9 for name in expected})
    # Without moments there are float32 copies of the weights alone: 64 GB become 2 + 2 + 4.
    plain = estimate(run(num_gpus=8, sharding="zero3", sampler="generate"), replace(measured, optimizer=0))
    assert plain.memory["backward"] == pytest.approx((140 - 64 + 8 + 8) * 1e9)
    # Under FSDP2 a step ran in bfloat16 whose weights are in float32: 8 x 16 bytes over 8.
    half = [replace(part, width=2) for part in WHOLE]
    found = estimate(run(num_gpus=8, sharding="fsdp2", width=4, sampler="generate"), step(half, alive=76e9))
    assert found.memory["backward"] == pytest.approx((76 - 64 + 16 + 8) * 1e9)


def test_a_cache_is_what_weights_and_overhead_leave_of_the_engines_share() -> None:
    # 40 - 16.2 - 1.5 = 22.3 GB; blocks of 16 tokens of 144,000 bytes.
    (engine,) = estimate(run(), step(ADAPTERS)).engines
    assert engine.tokens == 22_300_000_000 // (16 * 144_000) * 16
    small = replace(BASE, parameters=2_025_000_000)
    first, second = estimate(run(models=(BASE, small)), step(ADAPTERS)).engines
    assert [first.budget, second.budget] == pytest.approx([32e9, 8e9])
    said = estimate(run(utilization=0.25, max_length=20_000), step(ADAPTERS)).problems
    assert "hold 15,968 tokens; it does not start with less than one sequence of 20,000" in said[0]
    assert said[0].endswith(
        ". Set vllm_max_model_length (4,096 here), or a larger vllm_gpu_memory_utilization or "
        "vllm_tensor_parallel_size."
    )
    # One that does not hold a prompt and its reply is not helped by a shorter limit.
    said = estimate(run(utilization=0.2), step(ADAPTERS)).problems
    assert said[-1].endswith(". Set a larger vllm_gpu_memory_utilization or vllm_tensor_parallel_size.")
    (said,) = estimate(run(max_length=50_000), step(ADAPTERS)).problems
    assert said == "vllm_max_model_length is 50,000, but 8B takes 40,000 tokens at most; vLLM does not start."
    served = estimate(run(models=(replace(BASE, servers=1),), sampler="server"), step(ADAPTERS))
    assert served.engines[0].budget == pytest.approx(72e9)  # 0.9 of a GPU of its own
    assert served.memory["backward"] == pytest.approx(38e9)


def test_what_does_not_fit_is_told_with_a_sharding_that_does_or_what_takes_less() -> None:
    said, cure = estimate(run(sampler="generate"), step(WHOLE, alive=140e9)).problems
    assert said == "backward takes 148.0 GB on each GPU; h100 has 80."
    # DDP on 8 takes 32 GB of buckets more; ZeRO-2 16 + 14, ZeRO-3 and FSDP2 16, and 20 beside.
    assert cure == (
        "It fits on 8 GPUs with zero2.yaml (--sharding zero2) or zero3.yaml (--sharding zero3) or fsdp2.yaml "
        "(--sharding fsdp2)."
    )
    _, cure = estimate(run(utilization=0.9), step(ADAPTERS)).problems
    assert cure == (
        "Take a smaller vllm_gpu_memory_utilization, a smaller per_device_train_batch_size or max_completion_length, "
        "or a smaller model."
    )
    _, cure = estimate(run(sampler="generate"), step(WHOLE, alive=300e9)).problems
    assert cure.endswith("or max_completion_length, adapters (policies: lora), or a smaller model.")


def test_speed_depends_on_lengths_and_on_who_samples() -> None:
    found = estimate(run(), step(ADAPTERS))
    # 256 sequences on 128 places (of 37 that the cache holds): 3,596 steps each.
    at_once = found.engines[0].tokens // 4096
    one = decoding_step(H100, 8.1e9, 144_000, sequences=at_once, context=500 + 3596 / 2)
    read = 2 * 8.1e9 * 500 / 4 / (0.6 * 989e12)
    assert found.seconds["rollout"] == pytest.approx(256 * (3596 * one / at_once + read))
    # Scoring once, and two updates of 8.5 seconds.
    assert found.of_generation == pytest.approx(found.seconds["rollout"] + 3 + 2 * 8.5)
    assert found.trained_rate == pytest.approx(256 * 3596 / found.of_generation)
    short = estimate(run(completion=100), step(ADAPTERS))
    assert short.seconds["rollout"] < found.seconds["rollout"] / 36
    # Three turns of 100 tokens: the context is half of them on average.
    talk = estimate(run(completion=100, turns=3, max_steps=2), step(ADAPTERS))
    one = decoding_step(H100, 8.1e9, 144_000, sequences=128, context=500 + 150)
    assert talk.seconds["rollout"] == pytest.approx(3 * 256 * (100 * one / 128 + read))
    assert talk.trained_rate == pytest.approx(3 * 256 * 100 / talk.of_generation)
    assert "candidates of 3 decisions of each;" in report(talk)
    assert "hours with 3 decisions of each agent in an episode." in report(talk)
    local = estimate(run(sampler="generate"), step(ADAPTERS))
    assert local.seconds["rollout"] == 0.0  # of the made-up step
    hours = 200 * found.of_generation / 3600
    assert f"200 generations, {hours:.2g} hours" in report(estimate(run(max_steps=400), step(ADAPTERS)))


def test_engines_and_models_are_told_by_where_they_are() -> None:
    assert "vLLM over 4 processes, 8B: 4.0 GB of weights" in report(
        estimate(run(num_gpus=8, tensor_parallel=4), step(ADAPTERS))
    )
    served = replace(BASE, servers=1)
    both = estimate(run(models=(served, replace(served, name="other")), sampler="server"), step(ADAPTERS))
    assert "Each of these models needs servers of its own, which vllm_server_urls names by policy." in report(both)
    assert "For 1 GPU; give --num_gpus" in report(both)


@pytest.mark.parametrize(("servers", "parallel", "at_once"), [(1, 1, 92), (8, 1, 32), (0, 4, 128)])
def test_servers_share_all_sequences_and_engines_over_several_processes_those_of_them(
    servers: int, parallel: int, at_once: int
) -> None:
    # 256 sequences. A server has 72 - 16.2 - 1.5 = 54.3 GB, 23,567 blocks of 16 tokens: 92 of 4,096 tokens.
    # Two engines over 4 of 8 GPUs each have 4 * (40 - 4.05 - 1.5) = 137.8 GB: 233, and 128 in play.
    chosen = {"models": (replace(BASE, servers=servers),), "sampler": "server" if servers else "colocate"}
    one = decoding_step(H100, 8.1e9 / parallel, 144_000 / parallel, sequences=at_once, context=500 + 3596 / 2)
    read = 2 * 8.1e9 * 500 / 4 / parallel / (0.6 * 989e12)
    expected = 256 / (servers or 2) * (3596 * one / at_once + read)
    found = estimate(run(num_gpus=8, tensor_parallel=parallel, **chosen), step(ADAPTERS))
    assert found.seconds["rollout"] == pytest.approx(expected)


@pytest.mark.parametrize(
    ("sharding", "num_gpus", "seconds"),
    [
        ("ddp", 1, 0.0),
        ("ddp", 8, 2 * 7 / 8 * 4 * 8e9 / 300e9),  # gradients, once
        ("zero3", 8, 4 * 7 / 8 * 2 * (2 * 8e9 + 8e9) / 300e9),  # weights twice and gradients, in each of four passes
        ("fsdp2", 16, 4 * 15 / 16 * 2 * (2 * 8e9 + 8e9) / 35e9),
    ],
)
def test_sharded_weights_are_sent_in_each_pass(sharding: Any, num_gpus: int, seconds: float) -> None:
    reference = replace(WHOLE[0], is_trained=False, is_reference=True)  # in no pass of the update
    found = estimate(run(num_gpus=num_gpus, sharding=sharding, sampler="generate"), step([*WHOLE, reference]))
    assert found.seconds["network"] == pytest.approx(seconds)
    twice = estimate(replace(found.run, num_iterations=2), found.step)
    assert twice.of_generation == pytest.approx(3 + 2 * 2 * (8.5 + seconds))


@pytest.mark.parametrize("assumed", [SMALL, LARGE])
def test_the_assumed_engines_are_on_the_line(assumed: Any) -> None:
    # Eight sequences, few enough that reading the cache takes nothing.
    found = decoding_step(H100, assumed.parameters, 0.0, sequences=8, context=CONTEXT)
    assert found == pytest.approx(assumed.step_s + 8 * assumed.row_s)


def test_what_reads_takes_scales_with_the_bandwidth_and_a_longer_context_is_read() -> None:
    # 3.5 ms for 6.3B parameters more: of 2.5 ms 0.944 are of 1.7B parameters, and 1.556 of launches.
    ratio = 3.35 / 4.8
    found = decoding_step(GPUS["h200"], SMALL.parameters, 144_000, sequences=8, context=CONTEXT + 1000)
    expected = 0.0015556 + 0.0009444 * ratio + 8 * (0.00001 * ratio + 1000 * 144_000 / 4.8e12)
    assert found == pytest.approx(expected, rel=1e-4)


def test_no_step_is_quicker_than_its_reads() -> None:
    # 1.7 B: 3.4 GB of weights and 256 x 650 tokens of 114,688 bytes, 22.5 GB at 3.35 TB/s.
    expected = (3.4e9 + 256 * 650 * 114_688) / 3.35e12
    assert decoding_step(H100, 1.7e9, 114_688, sequences=256, context=650) == pytest.approx(expected)
