"""Every shipped configuration is estimated at its lengths, with a tiny model, or it is told why not.

Configurations that differ in their environments alone, by their parsed arguments, are estimated once.
"""

from __future__ import annotations

import json
import os
import re
import runpy
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from on_device import ROOT, launched
from test_estimates import QWEN


pytestmark = pytest.mark.slow
FILES = sorted((ROOT / "examples" / "configs").glob("*.yaml"))
WHY = {"observes images": ("plan_path_image",)}
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
    launched("estimates", str(file), "once", timeout=7200)
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


# ---- The lines of the pages, at their real size ---------------------------------------------------------------------


PAPER, GPUS = ((ROOT / "docs" / name).read_text("utf-8") for name in ("paper.md", "gpus.md"))
VARIABLES = dict(re.findall(r'^(\w+)="([^"]*)"$', PAPER, re.M))
ROW = r"^\| ([^|]+) \| `([\w.]+)`(?: `([^`]*)`)? \| (\d+) \| `(\w+)\.yaml` \| ([\d.]+) \| ([\d.]+) \| ([\d,]+) \|$"
ROWS = re.findall(ROW, GPUS, re.M)


@pytest.fixture(scope="module")
def of_pages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    folder = tmp_path_factory.mktemp("pages")
    configs = runpy.run_path(str(ROOT / "examples" / "recipes.py"))["CONFIGS"]
    for size, config in configs.items():
        type(config)(**{**config.to_dict(), "architectures": ["Qwen3ForCausalLM"]}).save_pretrained(folder / size)
    for name in ("qwen", "llama"):
        QWEN.save_pretrained(folder / name)
    lines = [(name, options, "8", sharding) for name, sharding, options in paper_lines()]
    lines += [
        (name, with_prompts(task, options), number, sharding) for task, name, options, number, sharding, *_ in ROWS
    ]
    cases = {
        f"{name} {options}": [
            *("--config", str(ROOT / "examples" / "configs" / f"{name}.yaml"), *options.split()),
            *("--num_gpus", number, "--sharding", sharding),
            *("--model_name_or_path", str(folder / name.rsplit("_", 1)[1])),
        ]
        for name, options, number, sharding in lines
    }
    file = folder / "cases.json"
    file.write_text(json.dumps(cases), "utf-8")
    launched("estimates", str(file), "once", timeout=7200)
    found: dict[str, Any] = json.loads(file.read_text("utf-8"))
    return found


def with_prompts(task: str, options: str) -> str:
    prompt = re.search(r"prompts of ([\d,]+)", task)
    return f"{options} --prompt_tokens {prompt[1].replace(',', '')}" if prompt else options


def paper_lines() -> list[tuple[str, str, str]]:
    """Name, sharding and options of each command for eight GPUs, with the paper's longest prompt."""
    lines = re.findall(r"^train (\w+_L\d_[\d.]+B) (\w+)\.yaml (.*)$", PAPER, re.M)
    filled = [re.sub(r"\$(\w+)", lambda word: VARIABLES[word[1]], options) for *_, options in lines]
    names = [line[:2] for line in lines]
    return [(*own, f"{options} --prompt_tokens 8192") for own, options in zip(names, filled, strict=True)]


def test_each_line_of_the_pages_fits_its_gpus_with_the_figures_that_are_shown(of_pages: dict[str, Any]) -> None:
    assert len(paper_lines()) == 8
    assert ROWS
    for name, _, options in paper_lines():
        assert of_pages[f"{name} {options}"]["problems"] == [], name
    for task, name, options, _, _, update, rollout, rate in ROWS:
        found = of_pages[f"{name} {with_prompts(task, options)}"]
        assert found["problems"] == []
        most = max(found["memory"][phase] for phase in ("scoring", "backward"))
        assert (f"{most / 1e9:.1f}", f"{found['memory']['rollout'] / 1e9:.1f}") == (update, rollout), name
        assert found["rate"] == pytest.approx(float(rate.replace(",", "")), abs=1), name
