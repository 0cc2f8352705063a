"""What several processes do together, as far as one can see it alone; `test_two_ranks.py` starts two."""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from accelerate.utils import DistributedType
from torch import distributed, nn
from torch.distributed.fsdp import StateDictType

from pettingllms_trl import MultiAgentGRPOConfig, Policy
from pettingllms_trl.policies.routing import route
from pettingllms_trl.processes.distributed import (
    average_gradients,
    check_is_loaded,
    check_processes,
    check_sharding,
    replaced_generate,
)
from pettingllms_trl.processes.row_sharing import share_of
from pettingllms_trl.records import EnvironmentFailure
from pettingllms_trl.rollout import Rollout, merge
from pettingllms_trl.trainer.dataloading import EvaluatedRows, numbered
from plays import play
from schedules import Patient, babble
from third_party import Relay
from two_processes import FORKS, in_two_processes


# ---- A rollout shared ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("num_continuations", [0, 2])
@pytest.mark.parametrize("sampling", ["tree", "parallel"])
@pytest.mark.parametrize("num_processes", [1, 2, 3, 7])
def test_shares_of_a_rollout_are_together_what_one_process_plays(
    num_processes: int, sampling: Any, num_continuations: int
) -> None:
    # What `babble` says depends on the ticket, and of its few letters many are worth the same: ties are many.
    rows = [{"seed": seed} for seed in range(5)]
    if sampling == "parallel":
        num_continuations = 0
    options: dict[str, Any] = {
        "make_env": Relay,
        "sampling": sampling,
        "num_candidates": 3,
        "num_continuations": num_continuations,
        "choose": "value" if num_continuations else "reward",
        "keep_continuations": True,
        "seed": "any",
    }
    whole = play(rows, engine=Patient(babble), **options)
    parts = [
        play(rows, only=share_of(5, num_processes, process), engine=Patient(babble), **options)
        for process in range(num_processes)
    ]
    assert merge(parts, num_rows=5) == whole
    assert [len(part.episodes) for part in parts] == [
        len(share_of(5, num_processes, process)) * (1 if sampling == "tree" else 3) for process in range(num_processes)
    ]


def test_what_all_have_dropped_is_judged_together() -> None:
    one, other = Rollout([], {0: "it broke"}, retried=2), Rollout([], {7: "it broke again"}, retried=3)
    assert merge([one, other], num_rows=10) == Rollout([], {0: "it broke", 7: "it broke again"}, retried=5)
    with pytest.raises(EnvironmentFailure, match=r"2 of 9 instances were dropped.*The last: it broke again"):
        merge([one, other], num_rows=9)  # more than a fifth, and more than one


# ---- Gradients ------------------------------------------------------------------------------------------------------


def averaged(process: int) -> list[torch.Tensor | None]:
    parameters = [nn.Parameter(torch.zeros(2)) for _ in range(3)]
    for parameter, gradient in zip(parameters, gradients(process), strict=True):
        parameter.grad = None if gradient is None else torch.tensor(gradient)
    average_gradients(parameters)
    return [parameter.grad for parameter in parameters]


def gradients(process: int) -> list[Any]:
    return [[[1.0, 2.0], [3.0, 6.0]][process], [[4.0, 4.0], None][process], None]


@FORKS
def test_gradients_are_averaged_and_one_that_nobody_has_stays_none(tmp_path: Path) -> None:
    for first, second, third in in_two_processes(averaged, tmp_path):
        assert first.tolist() == [2.0, 4.0]
        assert second.tolist() == [2.0, 2.0]  # a zero of the process that has none
        assert third is None  # with a zero, the optimizer's momentum would move a policy that had no rows


def test_gradients_of_float16_are_divided_before_they_are_summed(monkeypatch: pytest.MonkeyPatch) -> None:
    # Two processes with the same gradient: their sum, 80000, is more than the 65504 that float16 holds.
    monkeypatch.setattr(distributed, "get_world_size", lambda: 2)
    monkeypatch.setattr(distributed, "all_reduce", lambda flat, *operation: None if operation else flat.mul_(2))
    parameter = nn.Parameter(torch.zeros(2, dtype=torch.float16))
    parameter.grad = torch.tensor([40000.0, -3.0], dtype=torch.float16)
    average_gradients([parameter])
    assert parameter.grad.tolist() == [40000.0, -3.0]


class Generates:
    def generate(self, **options: Any) -> dict[str, Any]:
        return options


def test_generate_is_another_for_a_while_and_then_what_it_was_before() -> None:
    model = Generates()
    with replaced_generate(model, synced_gpus=False):
        assert model.generate(stop="!") == {"synced_gpus": False, "stop": "!"}
        with replaced_generate(model, lambda **options: "other"):
            assert model.generate() == "other"
        assert model.generate() == {"synced_gpus": False}
    assert "generate" not in vars(model)


# ---- The door -------------------------------------------------------------------------------------------------------


AGENTS = ("opener_0", "closer_0")


def arguments(kind: DistributedType, **given: Any) -> Any:
    """As of a launch with two processes."""
    state = SimpleNamespace(distributed_type=kind)
    accelerator = SimpleNamespace(split_batches=False)
    about = {"world_size": 2, "use_vllm": False, "accelerator_config": accelerator, "distributed_state": state}
    return SimpleNamespace(**{**about, **given})


def test_split_batches_are_refused_on_two_processes() -> None:
    routing = route("lora", AGENTS)
    check_processes(routing, arguments(DistributedType.MULTI_GPU))
    split = SimpleNamespace(split_batches=True)
    with pytest.raises(ValueError, match="split_batches=True with 2 processes; expected False"):
        check_processes(routing, arguments(DistributedType.MULTI_GPU, accelerator_config=split))


def test_a_norm_of_its_own_is_refused_under_deepspeed_alone() -> None:
    routing = route({"opener": "opener", "closer": Policy(adapter="closer", max_grad_norm=0.1)}, AGENTS)
    check_processes(routing, arguments(DistributedType.MULTI_GPU))
    with pytest.raises(ValueError, match=r"'closer' has max_grad_norm=0\.1, but DeepSpeed clips by the common norm"):
        check_processes(routing, arguments(DistributedType.DEEPSPEED))


def accelerator(kind: DistributedType, **plugins: Any) -> Any:
    state = SimpleNamespace(**{"deepspeed_plugin": None, **plugins})
    return SimpleNamespace(distributed_type=kind, state=state)


def test_the_older_fsdp_and_states_saved_in_shards_are_refused() -> None:
    routing = route("lora", AGENTS)

    def fsdp(version: int, kind: StateDictType) -> Any:
        plugin = SimpleNamespace(fsdp_version=version, state_dict_type=kind)
        return accelerator(DistributedType.FSDP, fsdp_plugin=plugin)

    check_sharding(routing, fsdp(2, StateDictType.FULL_STATE_DICT))
    with pytest.raises(ValueError, match="fsdp_version=1, expected 2"):
        check_sharding(routing, fsdp(1, StateDictType.FULL_STATE_DICT))
    with pytest.raises(ValueError, match="fsdp_state_dict_type is SHARDED_STATE_DICT, expected FULL_STATE_DICT"):
        check_sharding(routing, fsdp(2, StateDictType.SHARDED_STATE_DICT))


def deepspeed(zero: Any = None, **config: Any) -> Any:
    plugin = SimpleNamespace(deepspeed_config={"zero_optimization": zero or {"stage": 2}, **config})
    return accelerator(DistributedType.DEEPSPEED, deepspeed_plugin=plugin)


def test_an_offloaded_optimizer_is_refused_for_several_policies() -> None:
    kept = deepspeed({"stage": 2, "offload_optimizer": {"device": "none"}})
    offloaded = deepspeed({"stage": 2, "offload_optimizer": {"device": "cpu"}})
    check_sharding(route("lora", AGENTS), kept)
    check_sharding(route("shared", AGENTS, model="any"), offloaded)
    with pytest.raises(ValueError, match="offloaded to 'cpu' with 2 trained policies"):
        check_sharding(route("lora", AGENTS), offloaded)


def test_weights_that_are_not_gathered_for_generation_are_refused_with_zero_3_alone() -> None:
    routing = route("lora", AGENTS)
    check_sharding(routing, deepspeed({"stage": 2}), gathers=False)
    check_sharding(routing, accelerator(DistributedType.NO), gathers=False)
    check_sharding(routing, deepspeed({"stage": 3}), gathers=True)
    saved = {"stage": 3, "stage3_gather_16bit_weights_on_model_save": True}
    check_sharding(route("shared", AGENTS, model="any"), deepspeed(saved))
    with pytest.raises(ValueError, match=r"saved without weights\. Set zero3_save_16bit_model: true"):
        check_sharding(route("shared", AGENTS, model="any"), deepspeed({"stage": 3}))
    with pytest.raises(ValueError, match="ds3_gather_for_generation=False with ZeRO-3, expected True"):
        check_sharding(routing, deepspeed({"stage": 3}), gathers=False)


def test_a_rate_of_its_own_is_refused_where_deepspeed_makes_the_optimizer() -> None:
    routing = route({"opener": "opener", "closer": Policy(adapter="closer", learning_rate=0.1)}, AGENTS)

    check_sharding(routing, deepspeed())
    with pytest.raises(ValueError, match="'closer' has a learning_rate of its own, but DeepSpeed's configuration"):
        check_sharding(routing, deepspeed(optimizer={"type": "AdamW"}))
    check_sharding(route("lora", AGENTS), deepspeed(optimizer={"type": "AdamW"}))


def test_one_process_is_let_through(tmp_path: Any) -> None:
    check_processes(route("lora", AGENTS), MultiAgentGRPOConfig(str(tmp_path), use_cpu=True, bf16=False))


def test_a_streams_rows_are_evaluated_once_though_accelerate_repeats_them() -> None:
    def gather(rows: list[dict[str, int]], use_gather_object: bool) -> list[dict[str, int]]:
        return [*rows, *rows[:1]]  # the other process was given the first row again

    accelerator: Any = SimpleNamespace(gather_for_metrics=gather)
    evaluated_rows = EvaluatedRows(accelerator)
    first, last = ([numbered({"seed": 7}, number) for number in batch] for batch in ([1, 0], [2]))
    evaluated = [evaluated_rows.gather(rows) for rows in (first, last)]
    assert evaluated == [[{"seed": 7}] * 2, [{"seed": 7}]]


@pytest.mark.parametrize(
    ("is_efficient", "num_processes", "is_refused"), [(True, 2, True), (False, 2, False), (True, 1, False)]
)
def test_a_model_whose_weights_only_the_main_process_has_read_is_refused(
    is_efficient: bool, num_processes: int, is_refused: bool
) -> None:
    plugin = SimpleNamespace(cpu_ram_efficient_loading=is_efficient)
    accelerator: Any = SimpleNamespace(
        state=SimpleNamespace(fsdp_plugin=plugin), num_processes=num_processes, distributed_type=DistributedType.FSDP
    )
    with pytest.raises(RuntimeError, match="only the main process has the weights") if is_refused else nullcontext():
        check_is_loaded(torch.nn.Linear(1, 1), accelerator)
