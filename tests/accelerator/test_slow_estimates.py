"""Every shipped configuration is estimated at its lengths, with a tiny model, or it is told why not."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from on_device import ROOT, launched
from test_estimates import QWEN


pytestmark = pytest.mark.slow
FILES = sorted((ROOT / "examples" / "configs").glob("*.yaml"))
WHY = {
    "observes images": ("plan_path_image",),
}
"""Words of what is told, and the first words of the names of those that are told it."""
ON_GPUS = {"gpus_8x80_L2_8B": 8, "gpus_8x80_L1_8B": 8, "gpus_2x8x80_L2_8B": 16, "gpus_none": 2}


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    folder = tmp_path_factory.mktemp("estimates")
    long = {**QWEN.to_dict(), "max_position_embeddings": 40_960}
    for name in ("qwen", "llama"):  # the second for the count of operations
        type(QWEN)(**long).save_pretrained(folder / name)
    model = ["--model_name_or_path", str(folder / "qwen"), "--use_cpu", "false"]
    gpus = {path.stem: ["--num_gpus", str(ON_GPUS.get(path.stem, 1))] for path in FILES}
    cases = {path.stem: ["--config", str(path), *model, *gpus[path.stem]] for path in FILES}
    file = folder / "cases.json"
    file.write_text(json.dumps(cases), "utf-8")
    launched("estimates", str(file), timeout=7200)
    found: dict[str, Any] = json.loads(file.read_text("utf-8"))
    return found


def test_memory_of_an_update_is_what_the_profiler_counts_on_the_cpu(tmp_path: Path) -> None:
    script, file = ROOT / "benchmarks" / "bench_estimate.py", tmp_path / "figures.json"
    command = [sys.executable, str(script), "--json", str(file)]
    path = os.pathsep.join((str(ROOT), str(ROOT / "benchmarks")))
    subprocess.run(command, env={**os.environ, "PYTHONPATH": path, "HF_HUB_OFFLINE": "1"}, check=True, timeout=3600)
    figures = json.loads(file.read_text("utf-8"))
    found = re.findall(r'"ours": \[\s*([\d.]+)', json.dumps(figures))
    assert len(found) == 2 + 2 * 9
    assert all(abs(float(ratio) - 1) < 0.05 for ratio in found)


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_a_configuration_is_estimated_or_it_is_told_why_not(file: Path, found: dict[str, Any]) -> None:
    said = " ".join(found[file.stem]["problems"])
    why = [words for words, names in WHY.items() if file.stem.startswith(names)]
    assert all(words in said for words in why) if said else found[file.stem]["memory"]
