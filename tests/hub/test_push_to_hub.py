"""`trainer.push_to_hub()`: every policy of a team in a folder of its own, with a card, to a Hub on this machine."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import pytest
from huggingface_hub import ModelCard

from taking_hub import FakeHub, serving


class Pushed(NamedTuple):
    hub: FakeHub
    folder: Path
    asked_for_saved: list[str]
    """Requests until the first team was saved."""


@pytest.fixture(scope="module")
def pushed(tmp_path_factory: pytest.TempPathFactory) -> Pushed:
    """The Hub after one team was saved and two were pushed to it, and the folder with theirs."""
    folder = tmp_path_factory.mktemp("pushed")
    with serving() as fake:
        environment = {name: value for name, value in os.environ.items() if not name.startswith(("HF_", "HUGGING"))}
        environment |= {"HF_ENDPOINT": fake.endpoint, "HF_HUB_DISABLE_TELEMETRY": "1", "HF_HOME": str(folder / "home")}
        environment |= {"HF_HUB_DISABLE_PROGRESS_BARS": "1", "HF_HUB_DISABLE_XET": "1"}
        with open(folder / "errors", "w+") as errors:
            program = [sys.executable, str(Path(__file__).parent / "team_to_hub.py"), str(folder)]
            pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": errors}
            with subprocess.Popen(program, env=environment, text=True, **pipes) as process:
                assert process.stdout is not None
                said = "saved" in map(str.strip, process.stdout)
                asked_for_saved = list(fake.requests)
                process.communicate("\n", timeout=300)
            errors.seek(0)
            assert process.returncode == 0, errors.read()[-3000:]
    assert said
    return Pushed(fake, folder, asked_for_saved)


def test_a_teams_policies_and_its_card_arrive(pushed: Pushed) -> None:
    files = pushed.hub.files["model/me/team"]
    for role in ("drafter", "planner"):
        assert json.loads(files[f"{role}/adapter_config.json"])["r"] > 0
        saved = pushed.folder / "team" / role / "adapter_model.safetensors"
        assert files[f"{role}/adapter_model.safetensors"] == saved.read_bytes()
        assert f"{role}/tokenizer.json" in files
    assert not any(b"hf_fake" in content for content in files.values())  # the token, which arguments hold
    card = ModelCard(files["README.md"].decode("utf-8"))
    assert "A team for `plan_path_v0`" in card.text
    assert "| `planner_0` | the LoRA adapter `planner` | `planner/` |" in card.text
    assert "| env workflow | `draft_plan` |" in card.text
    assert "| num_generations | `4` |" in card.text
    assert "| eval | 0.0% | [0.0, 43.4] | 5 | 1 |" in card.text  # Wilson of 0 of 5


def test_a_shared_policys_upload_has_no_token_either(pushed: Pushed) -> None:
    files = pushed.hub.files["model/me/shared"]
    assert "training_args.bin" in files
    assert not any(b"hf_fake" in content for content in files.values())


def test_nothing_is_uploaded_unless_asked(pushed: Pushed) -> None:
    assert (pushed.folder / "saved" / "model.safetensors").is_file()
    assert pushed.asked_for_saved == []
    assert set(pushed.hub.files) == {"model/me/team", "model/me/shared"}
