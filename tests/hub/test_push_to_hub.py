"""`trainer.push_to_hub()`: every policy of a team in a folder of its own, with a card, to a Hub on this machine."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

from huggingface_hub import ModelCard

from taking_hub import serving


def run(tmp_path: Path, endpoint: str, what: str, layout: str) -> None:
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("HF_", "HUGGING"))}
    environment |= {"HF_ENDPOINT": endpoint, "HF_HUB_DISABLE_TELEMETRY": "1", "HF_HOME": str(tmp_path / "home")}
    environment |= {"HF_HUB_DISABLE_PROGRESS_BARS": "1", "HF_HUB_DISABLE_XET": "1"}
    done = subprocess.run(
        [sys.executable, str(Path(__file__).parent / "team_to_hub.py"), str(tmp_path / "out"), what, layout],
        env=environment,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]


def test_a_teams_policies_and_its_card_arrive(tmp_path: Path) -> None:
    with serving() as fake:
        run(tmp_path, fake.endpoint, "push", "lora")
    files = fake.files["model/me/team"]
    for role in ("drafter", "planner"):
        assert json.loads(files[f"{role}/adapter_config.json"])["r"] > 0
        assert (
            files[f"{role}/adapter_model.safetensors"]
            == (tmp_path / "out" / role / "adapter_model.safetensors").read_bytes()
        )
        assert f"{role}/tokenizer.json" in files
    assert not any(b"hf_fake" in content for content in files.values())  # the token, which arguments hold
    card = ModelCard(files["README.md"].decode("utf-8"))
    assert "A team for `plan_path_v0`" in card.text
    assert "| `planner_0` | the LoRA adapter `planner` | `planner/` |" in card.text
    assert "| env workflow | `draft_plan` |" in card.text
    assert "| num_generations | `4` |" in card.text
    assert "| eval | 0.0% | [0.0, 43.4] | 5 | 1 |" in card.text  # Wilson of 0 of 5


def test_a_shared_policys_upload_has_no_token_either(tmp_path: Path) -> None:
    with serving() as fake:
        run(tmp_path, fake.endpoint, "push", "shared")
    files = fake.files["model/me/team"]
    assert "training_args.bin" in files
    assert not any(b"hf_fake" in content for content in files.values())


def test_nothing_is_uploaded_unless_asked(tmp_path: Path) -> None:
    with serving() as fake:
        run(tmp_path, fake.endpoint, "save", "shared")
    assert not fake.requests
