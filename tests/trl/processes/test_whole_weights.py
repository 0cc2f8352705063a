"""Sharded weights are made whole one at a time by all processes in one order, also where one fails."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

from pettingllms_trl.processes.whole_weights import give_whole
from pettingllms_trl.records import NamedTensors
from two_processes import FORKS, in_two_processes


WEIGHT = torch.arange(6.0).reshape(2, 3)


def given(tensors: dict[str, Any], take: Callable[[NamedTensors], object] | None = None) -> dict[str, torch.Tensor]:
    """What `give_whole` gives."""
    taken: dict[str, torch.Tensor] = {}
    give_whole(tensors, take or taken.update)
    return taken


def sharded() -> nn.Module:
    """A model whose rows lie on different processes, its head tied to its first layer."""
    model = nn.Sequential(nn.Linear(3, 2, bias=False), nn.Linear(2, 3), nn.Linear(3, 2, bias=False))
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(torch.arange(float(parameter.numel())).view_as(parameter))
    model[2].weight = model[0].weight
    fully_shard(model, mesh=init_device_mesh("cpu", (2,)))
    return model


def test_alone_each_tensor_is_given_as_it_is_under_each_of_its_names() -> None:
    tied = nn.Parameter(WEIGHT)
    found = given({"embed": tied, "head": tied})
    assert list(found) == ["embed", "head"]
    assert all(torch.equal(tensor, WEIGHT) and not tensor.requires_grad for tensor in found.values())


@FORKS
def test_each_process_is_given_whole_tensors(tmp_path: Path) -> None:
    for found in in_two_processes(lambda process: given(sharded().state_dict(keep_vars=True)), tmp_path):
        assert list(found) == ["0.weight", "1.weight", "1.bias", "2.weight"]
        assert torch.equal(found["0.weight"], WEIGHT)
        assert torch.equal(found["1.weight"], WEIGHT.reshape(3, 2))
        assert torch.equal(found["2.weight"], WEIGHT)


@pytest.mark.parametrize("num_taken", [0, 2])
@FORKS
def test_one_that_fails_in_the_middle_gathers_the_rest_and_all_raise(num_taken: int, tmp_path: Path) -> None:
    def fails_on_1(process: int) -> None:
        def take(state: NamedTensors) -> None:
            for number, _ in enumerate(state):
                if process == 1 and number == num_taken:
                    raise MemoryError("the engine has no room")

        given(sharded().state_dict(keep_vars=True), take)

    first, second = in_two_processes(fails_on_1, tmp_path)
    assert isinstance(second, MemoryError)
    assert str(first).startswith("process 1 of 2 failed: MemoryError: the engine has no room")


@FORKS
def test_one_that_needs_none_of_it_does_not_hold_up_the_others(tmp_path: Path) -> None:
    def only_0(process: int) -> list[str]:
        taken: list[str] = []
        give_whole(
            sharded().state_dict(keep_vars=True),
            lambda state: taken.extend(name for name, _ in state) if process == 0 else None,
        )
        return taken

    assert in_two_processes(only_0, tmp_path) == [["0.weight", "1.weight", "1.bias", "2.weight"], []]


@pytest.mark.parametrize(
    ("of_1", "difference"),
    [
        (lambda names: [*names[:1], *reversed(names[1:])], r"from tensor 1 on: \['1.weight'\] and \['2.weight'\]"),
        (lambda names: names[:-1], r"from tensor 3 on: \['2.weight'\] and no more"),
    ],
)
@FORKS
def test_another_order_on_one_process_raises_on_all_and_nobody_waits(
    of_1: Callable[[list[str]], list[str]], difference: str, tmp_path: Path
) -> None:
    def unequal(process: int) -> dict[str, torch.Tensor]:
        state = sharded().state_dict(keep_vars=True)
        names = of_1(list(state)) if process == 1 else list(state)
        return given({name: state[name] for name in names})

    for error in in_two_processes(unequal, tmp_path):
        with pytest.raises(ValueError, match=difference):
            raise error
