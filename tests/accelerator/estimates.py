"""Estimates several configurations in one child process: `python on_device.py estimates FILE`.

FILE has the arguments of each by its name, and is given what came of it.
"""

from __future__ import annotations

import json
import traceback
from dataclasses import asdict
from pathlib import Path
from typing import Any

from pettingllms_trl.cli import estimate


def outcome(device: Any, argv: list[str], folder: Path) -> dict[str, Any]:
    kept: list[Any] = []
    report = estimate.report
    estimate.report = lambda found: (kept.append(found), report(found))[1]
    try:
        estimate.main(device, str(folder / "one.json"), *argv)
    except Exception:  # noqa: BLE001  # reported
        return {"problems": [traceback.format_exc()]}
    finally:
        estimate.report = report
    found: dict[str, Any] = json.loads((folder / "one.json").read_text("utf-8"))
    for each in kept:
        found |= {
            "memory": dict(each.memory),
            "seconds": dict(each.seconds),
            "state": asdict(each.state),
            "rate": each.trained_rate,
            "work": {name: asdict(phase.work) for name, phase in each.step.phases.items()},
            "alive": {name: phase.peak for name, phase in each.step.phases.items()},
            "held": [asdict(part) for part in each.step.held],
            "run": {name: getattr(each.run, name) for name in ("sampler", "sequences", "tensor_parallel", "pass_width")},
            "tokens": [engine.tokens for engine in each.engines],
        }
    return found


def main(device: Any, file: str) -> None:
    path = Path(file)
    cases = json.loads(path.read_text("utf-8"))
    path.write_text(json.dumps({name: outcome(device, argv, path.parent) for name, argv in cases.items()}), "utf-8")
