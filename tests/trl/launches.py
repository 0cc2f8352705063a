"""Launches `ranks.py` on one process or several, and reads what it reports."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml


HERE = Path(__file__).parent
ROOT = HERE.parents[1]
CONFIGS = ROOT / "examples" / "accelerate_configs"


def spec(layout: str, *, about: Mapping[str, Any] | None = None, **options: Any) -> dict[str, Any]:
    """A team: `about` it and its rollouts, and options of the configuration."""
    return {"layout": layout, **(about or {}), "options": {"batch_size": 12, **options}}


def listed(out: Path, specs: Mapping[str, Mapping[str, Any]], model_path: str) -> Path:
    """The file of specifications that `ranks.py` reads."""
    file = out / "specs.json"
    file.write_text(json.dumps([{"name": name, "model": model_path, **about} for name, about in specs.items()]))
    return file


def launched(
    out: Path, specs: Mapping[str, Mapping[str, Any]], model_path: str, *launcher: str, succeeds: bool = True
) -> str:
    """Run `ranks.py` on all specifications; what it said."""
    out.mkdir(parents=True, exist_ok=True)
    run = subprocess.run(
        [sys.executable, *launcher, str(HERE / "ranks.py"), str(listed(out, specs, model_path)), str(out)],
        env=environment(),
        capture_output=True,
        text=True,
        timeout=900,
        check=False,
    )
    said = run.stdout + run.stderr
    assert (run.returncode == 0) == succeeds, said[-8000:]
    return said


def environment() -> dict[str, str]:
    cpu = {"OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": "", "DS_ACCELERATOR": "cpu", "DS_BUILD_OPS": "0"}
    path = os.pathsep.join([str(ROOT), str(HERE), os.environ.get("PYTHONPATH", "")])
    return {**os.environ, **cpu, "HF_HUB_OFFLINE": "1", "PYTHONPATH": path}


def free_port() -> str:
    with socket.socket() as any_port:
        any_port.bind(("localhost", 0))
        return str(any_port.getsockname()[1])


def two() -> list[str]:
    return ["-m", "torch.distributed.run", "--nproc_per_node=2", f"--master_port={free_port()}"]


def report(out: Path, name: str) -> dict[str, Any]:
    return torch.load(out / f"{name}.pt", weights_only=False)


def difference(one: Mapping[str, Any], other: Mapping[str, Any]) -> float:
    assert one["weights"].keys() == other["weights"].keys()
    return max(float((one["weights"][n] - other["weights"][n]).abs().max()) for n in one["weights"])


def on_two_cpus(kind: str, folder: Path, **more: Any) -> Path:
    """The configuration of `examples/accelerate_configs`, for two processes without a GPU."""
    config = yaml.safe_load((CONFIGS / f"{kind}.yaml").read_text())
    changed = {"num_processes": 2, "use_cpu": True, "mixed_precision": "no"}
    file = folder / f"{kind}.yaml"
    file.write_text(yaml.safe_dump({**config, **changed, **more}))
    return file


def accelerated(kind: str, folder: Path) -> list[str]:
    config = on_two_cpus(kind, folder)
    return ["-m", "accelerate.commands.launch", f"--config_file={config}", f"--main_process_port={free_port()}"]


NEEDS_DEEPSPEED = pytest.mark.skipif(find_spec("deepspeed") is None, reason="needs deepspeed")
KINDS = ["fsdp2", pytest.param("zero2", marks=NEEDS_DEEPSPEED), pytest.param("zero3", marks=NEEDS_DEEPSPEED)]
