"""On what a benchmark ran: processor, cores, load, versions, commit; and the memory of its process."""

from __future__ import annotations

import os
import platform
import re
import subprocess
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from typing import Any


HERE = Path(__file__).parent
OURS = ("torch", "transformers", "trl", "peft", "accelerate", "vllm")


def machine() -> dict[str, Any]:
    """All of it; versions of what is installed where this runs."""
    return {
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "cpu": cpu(),
        "cores": os.cpu_count(),
        "load": os.getloadavg(),
        "system": platform.platform(),
        "python": platform.python_version(),
        "commit": commit(),
        "versions": versions((*_peers(), *OURS)),
    }


def kind(gpu: str = "") -> str:
    """Machines of which the figures may be compared: the processor's name and its cores, or the GPU's name.

    Example:
        `"intel-xeon-processor-2-cores"`.
    """
    words = gpu or re.sub(r"\((R|TM)\)|CPU|@.*", " ", cpu(), flags=re.IGNORECASE)
    name = re.sub(r"[^a-z0-9]+", "-", words.lower()).strip("-") or "unknown"
    return name if gpu else f"{name}-{os.cpu_count()}-cores"


def cpu() -> str:
    """The processor's name, as the kernel gives it."""
    info = Path("/proc/cpuinfo")
    lines = info.read_text().splitlines() if info.exists() else []
    models = [line.split(":")[1].strip() for line in lines if line.startswith("model name")]
    return models[0] if models else platform.processor() or platform.machine()


def saved_on(machine_kind: str, folder: Path) -> list[Path]:
    """The files MACHINE-COMMIT.json of a kind of machine, and of no other whose name begins as its does."""
    found = folder.glob(f"{machine_kind}-*.json")
    return [file for file in found if re.fullmatch(r"-\w+(-changed)?", file.stem.removeprefix(machine_kind))]


def commit() -> str:
    """The checkout's commit, with "+changes" where the files differ from it; "unknown" outside a checkout."""
    head = _git("rev-parse", "HEAD")
    # What a benchmark saves is no change of what was measured.
    changed = _git("status", "--porcelain", "--", ".", ":!benchmarks/results")
    return head + ("+changes" if changed else "") if head else "unknown"


def process_memory(name: str) -> int:
    """Bytes of this process by the kernel's name for them: `VmRSS` now, `VmHWM` at the most. Linux.

    `getrusage` would begin with those of the process that started it.
    """
    lines = Path("/proc/self/status").read_text().splitlines()
    return 1024 * next(int(line.split()[1]) for line in lines if line.startswith(name + ":"))


def versions(names: tuple[str, ...]) -> dict[str, str]:
    """Of distributions; "not installed" where there is none."""
    found = {}
    for name in names:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            found[name] = "not installed"
    return found


def _peers() -> list[str]:
    return [line.split("==")[0] for line in (HERE / "peers.txt").read_text().splitlines() if "==" in line]


def _git(*arguments: str) -> str:
    try:
        done = subprocess.run(["git", *arguments], cwd=HERE.parent, capture_output=True, text=True, check=False)
    except FileNotFoundError:
        return ""
    return done.stdout.strip()
