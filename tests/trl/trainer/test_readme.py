"""The README's Python runs, and prints what the README says it prints."""

from __future__ import annotations

import re
import runpy
from pathlib import Path
from typing import Any

import pytest

from pettingllms_trl import MultiAgentGRPOTrainer
from pettingllms_trl.credit import resolve


README = (Path(__file__).parents[3] / "README.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"<!-- tested by .*? -->\n```python\n(.*?)```(?:\n\n```text\n(.*?)```)?", README, flags=re.S)
TRAIN, CREDIT, PLAY = BLOCKS


def run(code: str, folder: Path) -> dict[str, Any]:
    """Run a block as a script and return what it defines."""
    script = folder / "block.py"
    script.write_text(code, encoding="utf-8")
    return runpy.run_path(str(script))


def test_playing_prints_what_the_readme_shows(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, shown = PLAY
    run(code, tmp_path)
    assert capsys.readouterr().out == shown


def test_the_training_script_trains_saves_and_evaluates(
    model_path: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """On the tiny model, for two steps and short completions; the rest as it stands."""
    code = TRAIN[0]
    for given, tiny in (
        ("Qwen/Qwen3-1.7B", model_path),
        ('"plan-path-team"', repr(str(tmp_path))),
        ("max_completion_length=256,", "max_completion_length=4, max_steps=2, use_cpu=True, report_to='none',"),
        ('range(50), "split": ["validation"] * 50', 'range(2), "split": ["validation"] * 2'),
    ):
        assert given in code
        code = code.replace(given, tiny)
    run(code, tmp_path)
    assert 0.0 <= float(capsys.readouterr().out.splitlines()[-1]) <= 1.0
    for role in ("drafter", "planner"):
        assert (tmp_path / role / "adapter_model.safetensors").is_file()


def test_the_credit_scheme_of_the_readme_is_one(tmp_path: Path) -> None:
    scheme = run(CREDIT[0], tmp_path)["best_minus_rest"]
    resolve(scheme, sampling="tree", scale="group", num_candidates=4)


DOCUMENTS = {
    "README": README,
    "docs/training.md": (Path(__file__).parents[3] / "docs" / "training.md").read_text(encoding="utf-8"),
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
