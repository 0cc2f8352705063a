"""The recipe of docs/small_model.md, with a tiny model: a GGUF file, a warm-up, then AT-GRPO on its adapters, and more
supervision on them beside it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from gguf_files import tiny_llama, write_gguf
from pettingllms_trl import load_gguf
from pettingllms_trl.cli import __main__ as cli


CONFIGS = Path(__file__).parents[3] / "examples" / "configs"
GAMES = {
    "archives": ({"hops": 2, "size": 8, "results": 1, "facts": 1, "order": "question"}, ("librarian", "answerer")),
    "plan_path": ({"workflow": "draft_plan", "size": 4, "num_turns": 1}, ("drafter", "planner")),
}


@pytest.mark.slow
@pytest.mark.parametrize("game", GAMES)
def test_the_adapters_of_a_warm_up_on_a_gguf_model_are_trained_on(game: str, tmp_path: Path) -> None:
    settings, roles = GAMES[game]
    base, warm, trained, supervised = (str(tmp_path / name) for name in ("model", "warm", "trained", "supervised"))
    for part in load_gguf(write_gguf(tmp_path / "tiny.gguf", tiny_llama())):
        part.save_pretrained(base)
    here = ["--model_name_or_path", base, "--use_cpu", "--bf16", "false", "--report_to", "none"]
    small = ["--max_steps", "2", "--per_device_train_batch_size", "4"]
    demonstrations = ["--env", game, "--env_kwargs", json.dumps(settings), "--policies", "lora", "--num_episodes", "4"]
    assert cli.sft([*demonstrations, *here, *small, "--output_dir", warm]) == 0
    config = ["--config", str(CONFIGS / f"{game}_L2_135M.yaml"), "--adapters", warm, "--output_dir", trained]
    assert cli.train([*config, *here, "--max_steps", "2"]) == 0
    assert (
        cli.sft([*demonstrations, *here, *small, "--first_seed", "0", "--adapters", warm, "--output_dir", supervised])
        == 0
    )
    state = json.loads((Path(trained) / "checkpoint-2" / "trainer_state.json").read_text())
    assert len([line for line in state["log_history"] if "loss" in line]) == 2
    for role in roles:
        before, *both = (
            load_file(Path(folder) / role / "adapter_model.safetensors") for folder in (warm, trained, supervised)
        )
        for after in both:
            assert before.keys() == after.keys()
            assert all(torch.isfinite(weight).all() for weight in after.values())
