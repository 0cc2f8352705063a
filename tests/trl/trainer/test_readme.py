"""The README's training script trains, and so does every example that the documentation builds on it."""

from __future__ import annotations

import re
import runpy
from pathlib import Path
from typing import Any

import pytest

from pettingllms_trl import MultiAgentGRPOTrainer
from pettingllms_trl.credit import resolve


ROOT = Path(__file__).parents[3]
README = (ROOT / "README.md").read_text(encoding="utf-8")
(TRAIN,) = re.findall(r"<!-- tested by .*? -->\n```python\n(.*?)```", README, flags=re.S)
(CREDIT, *_) = re.findall(
    r"```python\n(.*?)```", (ROOT / "docs" / "add_credit_scheme.md").read_text(encoding="utf-8"), flags=re.S
)


def run(code: str, folder: Path) -> dict[str, Any]:
    """Run a block as a script and return what it defines."""
    script = folder / "block.py"
    script.write_text(code, encoding="utf-8")
    return runpy.run_path(str(script))


def test_the_training_script_trains_and_saves(model_path: str, tmp_path: Path) -> None:
    """On the tiny model, for two steps and short completions; the rest as it stands."""
    code = TRAIN
    small = '"plan-path-team", max_completion_length=4, max_steps=2, use_cpu=True, report_to="none",'
    for given, tiny in (
        ("Qwen/Qwen3-1.7B", model_path),
        ('"plan-path-team",', small.replace("plan-path-team", str(tmp_path))),
        ("range(1000)", "range(8)"),
    ):
        assert given in code
        code = code.replace(given, tiny)
    run(code, tmp_path)
    for role in ("drafter", "planner"):
        assert (tmp_path / role / "adapter_model.safetensors").is_file()


def test_the_credit_scheme_of_the_docs_is_one(tmp_path: Path) -> None:
    scheme = run(CREDIT, tmp_path)["best_minus_rest"]
    resolve(scheme, sampling="tree", scale="group", num_candidates=4)


DOCUMENTS = {
    "README": README,
    "docs/training.md": (ROOT / "docs" / "training.md").read_text(encoding="utf-8"),
    "the trainer's docstring": str(MultiAgentGRPOTrainer.__doc__),
}


@pytest.mark.parametrize("text", DOCUMENTS.values(), ids=DOCUMENTS)
def test_every_example_that_trains_qwen3_turns_its_thinking_off(text: str) -> None:
    """It thinks by default, and is cut off before it answers."""
    examples = [code for code in re.findall(r"```python\n(.*?)```", text, re.S) if "GRPOTrainer(" in code]
    trainings = [
        part for code in examples for part in code.split("MultiAgentGRPOTrainer(")[1:] if "Qwen/Qwen3" in part
    ]
    assert trainings
    assert all('chat_template_kwargs={"enable_thinking": False}' in part for part in trainings)
