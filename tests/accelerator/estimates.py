"""Estimates several configurations in child processes: `python on_device.py estimates FILE`.

FILE has the arguments of each by its name, and is given what came of it. Each runs in a process of its own: trainers
that are still alive would count in the peaks of the next.
"""

from __future__ import annotations

import json
import traceback
from dataclasses import asdict
from pathlib import Path
from typing import Any
from unittest import mock

import torch
from children import in_child
from transformers import AutoConfig, AutoModelForCausalLM

from pettingllms_trl.cli import estimate
from pettingllms_trl.estimate.report import report
from pettingllms_trl.estimate.simulated_shapes import Work
from pettingllms_trl.estimate.stand_ins import put_on_device


def outcome(device: Any, argv: list[str], folder: Path) -> dict[str, Any]:
    kept: list[Any] = []

    def kept_report(found: Any) -> str:
        kept.append(found)
        return report(found)

    try:
        with mock.patch.object(estimate, "report", kept_report):
            estimate.main(device, str(folder / "one.json"), *argv)
    except Exception:  # noqa: BLE001  # reported
        return {"problems": [traceback.format_exc()]}
    found: dict[str, Any] = json.loads((folder / "one.json").read_text("utf-8"))
    for each in kept:
        found |= {
            "memory": dict(each.memory),
            "seconds": dict(each.seconds),
            "state": asdict(each.state),
            "rate": each.trained_rate,
            "work": {name: asdict(phase.work) for name, phase in each.step.phases.items()},
            "held": [asdict(part) for part in each.step.held],
            "run": {
                name: getattr(each.run, name) for name in ("sampler", "sequences", "tensor_parallel", "pass_width")
            },
            "tokens": [engine.tokens for engine in each.engines],
        }
    return found


def operations(device: Any, folder: Path) -> float:
    """Of a forward and backward pass of 2 rows of 50 tokens."""
    with torch.device("meta"):
        model: Any = AutoModelForCausalLM.from_config(AutoConfig.from_pretrained(folder))
    put_on_device(model, device)
    before = device.since(Work())
    ids = torch.zeros((2, 50), dtype=torch.long).to("mlu")
    model(input_ids=ids, use_cache=False).logits.sum().backward()
    return float(device.since(before).flops)


def main(device: Any, file: str) -> None:
    path = Path(file)
    cases = json.loads(path.read_text("utf-8"))
    found: dict[str, Any] = {name: in_child(outcome, device, argv, path.parent) for name, argv in cases.items()}
    found["operations"] = {name: operations(device, path.parent / name) for name in ("qwen", "llama")}
    path.write_text(json.dumps(found), "utf-8")
