"""Engines on two processes are given weights and compared together: if it fails on one it raises on both."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from peft import LoraConfig, get_peft_model
from torch import distributed, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

from pettingllms_trl.engines.canary import Canary, Own
from pettingllms_trl.engines.vllm.kind import _shares
from pettingllms_trl.engines.weight_store import ServedPolicies, StaleWeights, WeightsVersion, check_one_version
from pettingllms_trl.policies.routing import Policy
from pettingllms_trl.records import NamedTensors, Prompt, Scored
from two_processes import FORKS, in_two_processes


ADAPTERS = ("opener", "closer")
POLICIES = tuple(Policy(adapter=name) for name in ADAPTERS)


class Keeps:
    """An engine that keeps what it is given, and fails when it is given the named policy."""

    can_load_base = True

    def __init__(self, fails_at: str = "") -> None:
        self.fails_at = fails_at
        self.given: list[str] = []
        self.tensors: dict[str, torch.Tensor] = {}

    def load(self, policy: str, state: NamedTensors, version: int) -> None:
        if policy == self.fails_at:
            raise MemoryError("no room for it")
        self.given.append(f"{policy} {version}")
        self.tensors = {f"{policy} {name}": tensor.clone() for name, tensor in state}

    def load_base(self, state: NamedTensors, version: int) -> None:
        self.given.append(f"base {version}")
        self.tensors = {name: tensor.clone() for name, tensor in state}


class Layer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.q_proj = nn.Linear(2, 4, bias=False)
        nn.init.constant_(self.q_proj.weight, 3.0)


def adapters(*, sharded: bool) -> Any:
    """A model with two adapters, all of whose weights may be spread over both processes."""
    config = LoraConfig(r=2, target_modules=["q_proj"])
    model = get_peft_model(Layer(), config, adapter_name=ADAPTERS[0])
    model.add_adapter(ADAPTERS[1], config)
    for name, parameter in model.named_parameters():
        nn.init.constant_(parameter, 1.0 + ADAPTERS.index("closer" if "closer" in name else "opener"))
    return fully_shard(model, mesh=init_device_mesh("cpu", (2,))) if sharded else model


def served(engine: Any) -> ServedPolicies:
    return ServedPolicies(POLICIES, engine, {name: name for name in ADAPTERS}, is_in_memory=True)


@FORKS
def test_engines_are_given_whole_adapters_and_the_model_that_they_stand_on(tmp_path: Path) -> None:
    def sync(process: int) -> Any:
        engine = Keeps()
        model, policies = adapters(sharded=True), served(engine)
        policies.sync_weights(model, WeightsVersion())
        policies.sync_weights(model, WeightsVersion(trained=1))
        return engine.given, engine.tensors

    for given, tensors in in_two_processes(sync, tmp_path):
        assert given == ["base 0", "opener 0", "closer 0", "opener 1", "closer 1"]
        names = [f"closer base_model.model.q_proj.lora_{matrix}.weight" for matrix in "AB"]
        assert {name: tensor.tolist() for name, tensor in tensors.items()} == {
            names[0]: [[2.0, 2.0]] * 2,
            names[1]: [[2.0, 2.0]] * 4,
        }


@pytest.mark.parametrize("sharded", [False, True])
@FORKS
def test_if_an_engine_takes_no_weights_all_raise_and_all_are_given_the_next_version(
    sharded: bool, tmp_path: Path
) -> None:
    def sync(process: int) -> Any:
        engine = Keeps("closer" if process == 1 else "")
        model, policies = adapters(sharded=sharded), served(engine)
        try:
            policies.sync_weights(model, WeightsVersion())
        except (MemoryError, RuntimeError) as error:
            engine.given.append(str(error))
        engine.fails_at = ""
        policies.sync_weights(model, WeightsVersion(trained=1))
        return engine.given

    loaded = ["base 0", "opener 0", "closer 0"]
    first, second = in_two_processes(sync, tmp_path)
    why = "process 1 of 2 failed: MemoryError: no room for it. What it said is in its log."
    assert first == [*loaded, why, "opener 1", "closer 1"]
    assert second == [*loaded[:-1], "no room for it", "opener 1", "closer 1"]


@FORKS
def test_weights_changed_on_one_process_alone_raise_on_both(tmp_path: Path) -> None:
    def check(process: int) -> None:
        check_one_version(WeightsVersion())
        check_one_version(WeightsVersion(trained=process, frozen=process))

    for error in in_two_processes(check, tmp_path):
        with pytest.raises(StaleWeights, match=r"versions of the weights: .*trained=0.*trained=1.*on every process"):
            raise error


class Scores:
    """Two policies of an engine that scores as the trainer does, but that it may be off, or fail at the first."""

    served = ADAPTERS

    def __init__(self, *, off: float, fails: bool) -> None:
        self.off, self.fails = off, fails

    def given(self, policy: str) -> int:
        return 0

    def score(self, policy: str, prompt: Prompt) -> list[Scored]:
        if self.fails:
            raise MemoryError("no answer")
        return [Scored("this process", f"{policy}-v0", tuple(-1.0 - self.off for _ in prompt.ids))]


def own(policy: str, prompt: Prompt) -> Own:
    """The trainer's forward pass, which gathers weights from both processes."""
    distributed.barrier()
    exact = np.full(len(prompt.ids), -1.0)
    return Own(exact, exact)


def canary_of(engines: Any) -> Canary:
    policies = {policy.name: policy for policy in POLICIES}
    return Canary(
        engines,
        policies,
        text_of=lambda name: Prompt([], (1, 2, 3)),
        score=own,
        action="stop",
        every=1,
        largest_at_start=0.1,
    )


@pytest.mark.parametrize(
    ("of_1", "error", "message"),
    [
        ({"off": 1.0, "fails": False}, StaleWeights, "step 4: the engine does not sample from the weights"),
        ({"off": 0.0, "fails": True}, MemoryError, "no answer"),
    ],
)
@FORKS
def test_a_stale_or_broken_engine_on_one_process_stops_both_and_nobody_waits_in_a_forward_pass(
    of_1: Mapping[str, Any], error: type[Exception], message: str, tmp_path: Path
) -> None:
    def check(process: int) -> None:
        engines: Any = Scores(**of_1) if process == 1 else Scores(off=0.0, fails=False)
        canary_of(engines).check(WeightsVersion(), step=4)

    first, second = in_two_processes(check, tmp_path)
    assert isinstance(second, error)
    assert str(second).startswith(message)
    assert str(first).startswith(f"process 1 of 2 failed: {error.__name__}: {message}")


@pytest.mark.parametrize(("compares_on_1", "expected"), [(True, 0.02), (False, 0.01)])
@FORKS
def test_of_several_engines_the_largest_difference_is_reported_on_all(
    compares_on_1: bool, expected: float, tmp_path: Path
) -> None:
    def check(process: int) -> dict[str, float]:
        engines: Any = Scores(off=0.01 * (process + 1), fails=False)
        if process == 1 and not compares_on_1:  # as with servers, which the main process compares
            engines.score = lambda policy, prompt: ()
        return canary_of(engines).check(WeightsVersion(), step=0)

    for differences in in_two_processes(check, tmp_path):
        assert differences == {"opener": pytest.approx(expected), "closer": pytest.approx(expected)}


def test_memory_is_shared_by_the_size_of_a_whole_model_where_zero_has_partitioned_it() -> None:
    parameters = [SimpleNamespace(ds_numel=numel, numel=lambda: 0) for numel in (12, 36)]
    models: Any = [SimpleNamespace(parameters=lambda own=own: [own]) for own in parameters]
    assert [*_shares(models)] == [0.25, 0.75]
