"""Runs `main(device, *arguments)` of a module of this folder in a process that has the simulated accelerator.

    python on_device.py MODULE ARGUMENT...

`estimates` has one whose floats are shapes, the others one that keeps waits.

The device is there before the module, and with it accelerate and transformers, is imported.
"""

from __future__ import annotations

import importlib
import os
import subprocess
import sys
from pathlib import Path

from pettingllms_trl.estimate.simulated_shapes import ShapesDevice
from watched_device import WatchedDevice


HERE = Path(__file__).parent
ROOT = HERE.parents[1]


def launched(module: str, *arguments: str, timeout: float = 900) -> None:
    """Run a module in a child process; what it prints is shown if it fails."""
    path = os.pathsep.join(map(str, (ROOT, HERE, HERE.parent / "trl", ROOT / "benchmarks")))
    run = subprocess.run(
        [sys.executable, __file__, module, *arguments],
        env={
            **os.environ,
            "OMP_NUM_THREADS": "1",
            "HF_HUB_OFFLINE": "1",
            "HF_HUB_DISABLE_TELEMETRY": "1",
            "PYTHONPATH": path,
        },
        capture_output=True,
        text=True,
        timeout=timeout,
        check=False,
    )
    assert run.returncode == 0, (run.stdout + run.stderr)[-8000:]


if __name__ == "__main__":
    device = (ShapesDevice if sys.argv[1] == "estimates" else WatchedDevice).install()
    importlib.import_module(sys.argv[1]).main(device, *sys.argv[2:])
