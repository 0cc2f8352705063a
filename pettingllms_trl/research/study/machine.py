"""What a run was made with, by which a rerun is judged: versions, code, processor, threads, CPU time."""

from __future__ import annotations

import hashlib
import importlib.metadata
import os
import platform
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

import torch
from transformers import TrainerCallback

import pettingllms_envs
import pettingllms_trl
from pettingllms_envs.episodes import files


PACKAGES = ("pettingllms", "torch", "transformers", "trl", "peft")


def machine_facts() -> dict[str, Any]:
    """The fields of a result that say what it was made with; asked for when a run starts."""
    own = [Path(package.__file__ or "").parent for package in (pettingllms_envs, pettingllms_trl)]
    return {
        "packages": {name: importlib.metadata.version(name) for name in PACKAGES},
        "code": code(tuple(own)),
        "machine": machine(),
    }


@cache  # what this process has imported, even if the files change while it runs
def code(folders: Sequence[Path]) -> str:
    """A digest of the source of packages, whose version stays the same while a checkout changes."""
    digest = hashlib.sha256()
    for folder in folders:
        for file in sorted(folder.rglob("*")):
            if file.is_file() and file.suffix != ".pyc":
                digest.update(f"{folder.name}/{file.relative_to(folder)}\n".encode())
                digest.update(hashlib.sha256(file.read_bytes()).digest())
    return digest.hexdigest()[:16]


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
    """Counts the CPU time of a run over all of its starts: up to the checkpoint that it resumes from, and since."""

    def __init__(self, file: Path, *, resumes: bool) -> None:
        self._file = file
        before = float(file.read_text("utf-8")) if resumes and file.is_file() else 0.0
        self._zero = cpu_time() - before

    @property
    def total(self) -> float:
        return cpu_time() - self._zero

    def on_save(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Keep the count with the checkpoint; see `TrainerCallback`."""
        files.write_whole(self._file, f"{self.total:.1f}")
