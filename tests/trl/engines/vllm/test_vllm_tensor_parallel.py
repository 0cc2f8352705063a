"""An engine over two processes answers, and trains, as one in a single process. Run with `-m "vllm and slow"`."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import torch

from launches import launched, report, two
from vllm_teams import check_same, team


pytestmark = [
    pytest.mark.vllm,
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::UserWarning", "ignore::FutureWarning"),
]

HERE = Path(__file__).parents[2]
EXACT = 2e-5  # of log-probabilities in float32; other weights are off by 1e-2 and more


def answers(out: Path, model: str, *launcher: str) -> Mapping[str, Any]:
    """What `tensor_parallel_ranks.py` found."""
    cpu = {"OMP_NUM_THREADS": "1", "VLLM_CPU_KVCACHE_SPACE": "1", "HF_HUB_OFFLINE": "1"}
    path = os.pathsep.join([str(HERE.parents[1]), os.environ.get("PYTHONPATH", "")])
    run = subprocess.run(
        [sys.executable, *launcher, str(HERE / "tensor_parallel_ranks.py"), model, str(out)],
        env={**os.environ, **cpu, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        timeout=900,
        check=False,
    )
    assert run.returncode == 0, (run.stdout + run.stderr)[-8000:]
    found: Mapping[str, Any] = torch.load(out, weights_only=False)
    return found


@pytest.fixture(autouse=True)
def nothing_left_behind() -> None:
    """vLLM's processes on CPUs meet over files of fixed names, which stay where they were killed."""
    for path in Path("/dev/shm").glob("-tp:*-cpushm_*"):
        path.unlink()


def test_an_engine_over_two_processes_answers_and_scores_as_over_one(base_path: str, tmp_path: Path) -> None:
    pytest.importorskip("vllm", reason="needs the extra `vllm`")
    one = answers(tmp_path / "one.pt", base_path)
    two = answers(tmp_path / "two.pt", base_path, "-m", "torch.distributed.run", "--standalone", "--nproc_per_node=2")
    for kind in ("adapters", "whole"):
        assert one[kind]["answers"].keys() == two[kind]["answers"].keys() == set(range(8))
        for ticket, completions in one[kind]["answers"].items():
            for (ids, logprobs), (other_ids, others) in zip(completions, two[kind]["answers"][ticket], strict=True):
                assert ids == other_ids
                assert logprobs == pytest.approx(others, abs=EXACT)
        assert len(one[kind]["score"]) == 36
        assert one[kind]["score"] == pytest.approx(two[kind]["score"], abs=EXACT)
    assert one["adapters"]["answers"] != one["whole"]["answers"]


def test_two_processes_that_share_their_engines_train_as_one(base_path: str, tmp_path: Path) -> None:
    split = {layout: team(layout, vllm_tensor_parallel_size=2) for layout in ("lora", "full", "mixture")}
    launched(tmp_path / "one", split, base_path)
    launched(tmp_path / "two", split, base_path, *two())
    for layout in split:
        check_same(
            report(tmp_path / "one", layout), report(tmp_path / "two", layout), f"{layout}, an engine over both"
        )
