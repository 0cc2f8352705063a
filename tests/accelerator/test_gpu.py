"""A step on a real GPU beside the same step on the simulated accelerator, where this PyTorch has such devices."""

from __future__ import annotations

import json
import math
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
import torch
from packaging.version import Version

import flash_reference
from on_device import ROOT
from pettingllms_trl.cli.estimate import RELEASE
from pettingllms_trl.cli.train import prepare
from pettingllms_trl.testing import byte_tokenizer, save_tiny_model
from pettingllms_trl.update.packing import segment_attention
from pettingllms_trl.update.packing.pack import pack
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
    if Version(torch.__version__) < Version(RELEASE):
        return {}
    return reports_of(tmp_path_factory.mktemp("simulated"), NAMES)


@pytest.mark.parametrize("name", NAMES)
def test_on_a_gpu_the_host_waits_in_no_pass_as_on_the_simulated_device(
    name: str, cuda: Cuda, simulated: dict[str, Any], tmp_path: Path, record_property: Callable[[str, Any], None]
) -> None:
    torch.cuda.reset_peak_memory_stats()
    _, _, trainer = trained({**SLOW, **MATRIX}[name], tmp_path, cuda, on_cpu=False)
    waits = [(wait.kind, wait.place, number) for wait, number in Counter(trainer.waits).items()]
    report = {"waits": waits, "phases": phases_of(trainer.marks, trainer.waits)}
    expected = simulated.get(name, report)
    found = {
        "waits": of_files(report),
        "waits, simulated": of_files(expected),
        "max_memory_allocated": torch.cuda.max_memory_allocated(),
    }
    for key, value in found.items():
        record_property(key, value)
    print(found)
    check_waits(report, num_passes=len(expected["phases"]["forward to backward"]))
    assert of_files(report).keys() <= of_files(expected).keys()
    assert found["max_memory_allocated"] > 0


@pytest.mark.parametrize("heads", [(16, 8, 128), (4, 4, 64)])
def test_the_kernel_for_segments_gives_what_its_reference_gives(heads: tuple[int, int, int]) -> None:
    of_queries, of_keys, size = heads
    generator = torch.Generator().manual_seed(0)
    ids = torch.randint(2, 97, (4, 150 + 70), generator=generator)
    ids[:3, :150] = ids[0, :150]
    mask = torch.ones_like(ids)
    for row, (start, end) in enumerate([(0, 220), (0, 151), (0, 190), (149, 220)]):
        mask[row, :start] = mask[row, end:] = 0
    segments = pack(ids, mask, 70, device=torch.device("cuda")).layout.segments
    assert segments.queries_from.diff().tolist() == [149, 70, 1, 40, 70]
    number = int(segments.queries_from[-1])
    given = [torch.randn(number, each, size, generator=generator) for each in (of_queries, of_keys, of_keys)]
    weights = torch.randn(number, of_queries, size, generator=generator).bfloat16().cuda()
    results = []
    for kernels, dtype in ((segment_attention.aten, torch.bfloat16), (flash_reference.KERNELS, torch.float32)):
        own = [each.bfloat16().to("cuda", dtype).requires_grad_() for each in given]
        assert segment_attention.takes(own[0], own[2]) == (dtype == torch.bfloat16)
        with mock.patch.object(segment_attention, "aten", kernels):
            found = segment_attention.attend_by_segments(*own, segments, None)
            results.append([found.detach(), *torch.autograd.grad(found, own, weights.to(dtype))])
    for name, found, expected in zip(("values", "queries", "keys", "values"), *results, strict=True):
        assert found.dtype == torch.bfloat16
        assert float((found.float() - expected).norm() / expected.norm()) < 0.01, name


@pytest.mark.parametrize("layout", ["L1", "L2", "L3"])
def test_a_shipped_configuration_trains_in_bfloat16_is_evaluated_saved_and_resumed(
    layout: str, tmp_path: Path
) -> None:
    model = save_tiny_model(tmp_path / "model", byte_tokenizer(), hidden_size=64, max_position_embeddings=4096)
    argv = (
        *("--config", str(ROOT / f"examples/configs/plan_path_{layout}_1.7B.yaml"), "--model_name_or_path", model),
        *("--generation_batch_size", "16", "--gradient_accumulation_steps", "1", "--max_completion_length", "16"),
        *("--eval_seeds", "0", "4", "--eval_steps", "2", "--save_steps", "1", "--num_trees", "0"),
        *("--learning_rate", "0.001", "--output_dir", str(tmp_path / "out")),
    )
    prepare((*argv, "--max_steps", "2"))()
    prepare((*argv, "--max_steps", "3", "--resume_from_checkpoint", "true"))()
    steps = [json.loads(line) for line in (tmp_path / "out" / "metrics.jsonl").read_text().splitlines()]
    assert max(each["step"] for each in steps) == 3
    losses = [each["loss"] for each in steps if "loss" in each]
    assert losses
    assert all(map(math.isfinite, losses))
    assert any(key.startswith("eval") for each in steps for key in each)
