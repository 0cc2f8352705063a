"""What a run was made with, by which a rerun is judged: versions, processor, threads, CPU time."""

from __future__ import annotations

import importlib.metadata
import os
import platform
from pathlib import Path
from typing import Any

import torch
from transformers import TrainerCallback

from pettingllms_envs.episodes import files


PACKAGES = ("pettingllms", "torch", "transformers", "trl", "peft")


def packages() -> dict[str, str]:
    """Versions of the packages that results depend on."""
    return {name: importlib.metadata.version(name) for name in PACKAGES}


def machine() -> dict[str, Any]:
    """What decides how torch rounds: processor, the instructions that it chose for it, threads, and the platform."""
    gpu = {"gpu": torch.cuda.get_device_name()} if torch.cuda.is_available() else {}
    return {
        "processor": processor(),
        "instructions": torch.backends.cpu.get_cpu_capability(),
        "threads": torch.get_num_threads(),
        "platform": platform.platform(),
        **gpu,
    }


def processor(info: Path = Path("/proc/cpuinfo")) -> str:
    """The processor's name with its family and model, as one name may stand for several; as the kernel gives them."""
    lines = info.read_text("utf-8").splitlines() if info.exists() else []
    fields = {name.strip(): value.strip() for name, _, value in (line.partition(":") for line in reversed(lines))}
    if "model name" not in fields:
        return platform.processor() or platform.machine()
    return f"{fields['model name']} (family {fields.get('cpu family')}, model {fields.get('model')})"


def cpu_time() -> float:
    """CPU seconds of this process and of its children that have ended."""
    return sum(os.times()[:4])


class CpuSeconds(TrainerCallback):
    """Counts the CPU time of a run over all of its starts: up to the checkpoint that it resumes from, and since.

    Args:
        file: Keeps the count for a run that is resumed.
        resumes: Whether this start resumes.
    """

    def __init__(self, file: Path, *, resumes: bool) -> None:
        self._file = file
        before = float(file.read_text("utf-8")) if resumes and file.is_file() else 0.0
        self._zero = cpu_time() - before

    @property
    def total(self) -> float:
        """Until now."""
        return cpu_time() - self._zero

    def on_save(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Keep the count with the checkpoint; see `TrainerCallback`."""
        files.write_whole(self._file, f"{self.total:.1f}")
