"""A step on a real GPU beside the same step on the simulated accelerator. It has not run on one yet."""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import torch

from slow_trainings import SLOW
from training_checks import check_waits, of_files, reports_of
from trainings import MATRIX, phases_of, trained
from watched_device import Wait, place


pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")]
NAMES = ("L2", "conversation")


@dataclass
class Cuda:
    """The waits that PyTorch reports of a GPU, as `WatchedDevice` keeps its own."""

    waits: list[Wait] = field(default_factory=list)
    autocast_results: set[Any] = field(default_factory=set)


@pytest.fixture
def cuda() -> Iterator[Cuda]:
    device = Cuda()

    def keep(message: Warning | str, *_: Any, **__: Any) -> None:
        if "synchronizing CUDA operation" in str(message):
            device.waits.append(Wait("cuda", place()))

    with warnings.catch_warnings():
        warnings.simplefilter("always")
        warnings.showwarning = keep
        torch.cuda.set_sync_debug_mode("warn")
        try:
            yield device
        finally:
            torch.cuda.set_sync_debug_mode("default")


@pytest.fixture(scope="module")
def simulated(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    return reports_of(tmp_path_factory.mktemp("simulated"), NAMES)


@pytest.mark.parametrize("name", NAMES)
def test_on_a_gpu_the_host_waits_in_no_pass_as_on_the_simulated_device(
    name: str, cuda: Cuda, simulated: dict[str, Any], tmp_path: Path, record_property: Callable[[str, Any], None]
) -> None:
    torch.cuda.reset_peak_memory_stats()
    _, _, trainer = trained({**SLOW, **MATRIX}[name], tmp_path, cuda, on_cpu=False)
    waits = [(wait.kind, wait.place, number) for wait, number in Counter(trainer.waits).items()]
    report = {"waits": waits, "phases": phases_of(trainer.marks, trainer.waits)}
    found = {
        "waits": of_files(report),
        "waits, simulated": of_files(simulated[name]),
        "max_memory_allocated": torch.cuda.max_memory_allocated(),
    }
    for key, value in found.items():
        record_property(key, value)
    print(found)
    check_waits(report, num_passes=len(simulated[name]["phases"]["forward to backward"]))
    assert of_files(report).keys() <= of_files(simulated[name]).keys()
    assert found["max_memory_allocated"] > 0
