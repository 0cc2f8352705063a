"""`benchmarks/bench_vision.py` measures both trainers on the same pictures, and writes a figure of each round."""

from __future__ import annotations

import json
from pathlib import Path

import pytest


bench_vision = pytest.importorskip("bench_vision")


def test_a_step_of_both_trainers_is_measured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "vision.json"
    monkeypatch.setattr("sys.argv", ["bench_vision.py", "--steps", "1", "--length", "2", "--json", str(file)])
    bench_vision.main()
    (step,) = json.loads(file.read_text())["figures"]  # of memory there is none without a GPU
    assert step["name"] == "a step with pictures, Qwen2.5-VL tiny"
    assert len(step["ours"]) == len(step["peer"]) == 1
    assert min(*step["ours"], *step["peer"]) > 0
