"""What users of models with vision start from runs: the script, the configuration, and what TRL's own tests ask."""

from __future__ import annotations

import runpy
from pathlib import Path
from typing import Any

import pytest
import torch
from datasets import Dataset
from peft import LoraConfig

from pettingllms_trl import MultiAgentGRPOTrainer
from pettingllms_trl.cli.train import make_trainer
from pettingllms_trl.testing import save_tiny_gemma
from picture_books import PictureBook
from shipped_configs import CONFIGS, EXAMPLES, parsed
from short_runs import settings
from tiny_vlms import qwen, qwen_processor


@pytest.fixture
def model(tmp_path: Path) -> str:
    """A tiny Gemma 3 with its processor, in a folder."""
    return save_tiny_gemma(tmp_path / "model")


def test_the_script_takes_the_arguments_of_trls_and_trains_a_describer_and_a_solver(
    model: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    of_trl = ["--learning_rate", "1e-5", "--dtype", "float32", "--max_completion_length", "4", "--log_completions"]
    adapters = ["--use_peft", "--lora_target_modules", "q_proj", "v_proj"]
    small = ["--max_steps", "1", "--num_generations", "2", "--per_device_train_batch_size", "2"]
    here = ["--use_cpu", "--bf16", "false", "--report_to", "none", "--shared_prefix", "false"]
    out = tmp_path / "out"
    start = ["grpo_vlm.py", "--model_name_or_path", model, "--output_dir", str(out)]
    monkeypatch.setattr("sys.argv", [*start, *of_trl, *adapters, *small, *here])
    runpy.run_path(str(EXAMPLES / "grpo_vlm.py"), run_name="__main__")
    assert {path.parent.name for path in out.glob("*/adapter_config.json")} == {"describer", "solver"}
    assert {path.parent.name for path in out.glob("*/processor_config.json")} == {"describer", "solver"}


def test_the_configuration_of_a_model_with_vision_makes_a_trainer_whose_describer_sees(
    model: str, tmp_path: Path
) -> None:
    trainer = make_trainer(*parsed(CONFIGS / "plan_path_image_L2_3B.yaml", model, tmp_path / "out"))
    assert set(trainer.routing.of_agent.values()) == {"describer", "solver"} == set(trainer.image_inputs)
    assert trainer.args.image_gain_steps == 10
    (shown,) = [env.observe("describer_0")["parts"][0] for env in trainer.envs[""]]
    assert shown.alt == "the board"


TRL_TESTS = {
    "test_train_vlm": {},
    "test_train_vlm_with_pad_to_multiple_of": {"pad_to_multiple_of": 7},
    "test_train_vlm_beta_non_zero": {"beta": 0.1},
    "test_train_vlm_peft": {"peft_config": LoraConfig(target_modules=["q_proj", "v_proj"])},
    "test_train_vlm_and_importance_sampling": {"steps_per_generation": 2, "max_steps": 2},
    "test_train_vlm_multi_image": {},  # two in some rows of the book
    "test_train_vlm_log_multimodal_false": {"log_completions": True, "log_multimodal": False},
}


QUICK = ("test_train_vlm_peft", "test_train_vlm_and_importance_sampling", "test_train_vlm_multi_image")


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=() if name in QUICK else pytest.mark.slow) for name in TRL_TESTS]
)
def test_a_training_with_pictures_moves_every_weight_as_trls_own_test_asks(name: str, tmp_path: Path) -> None:
    options: dict[str, Any] = dict(TRL_TESTS[name])
    peft_config = options.pop("peft_config", None)
    qwen(processor := qwen_processor()).save_pretrained(tmp_path / "model")
    trainer = MultiAgentGRPOTrainer(
        str(tmp_path / "model"),
        PictureBook,
        settings(tmp_path / "out", **{"learning_rate": 0.1, "shared_prefix": False, **options}),
        Dataset.from_dict({"seed": [0, 1, 3, 5]}),
        processing_class=processor,
        peft_config=peft_config,
    )
    before = {n: p.detach().clone() for n, p in trainer.model.named_parameters() if p.requires_grad}
    trainer.train()
    assert "train_loss" in trainer.state.log_history[-1]
    after = dict(trainer.model.named_parameters())
    still = [n for n, tensor in before.items() if torch.equal(tensor, after[n])]
    # The matrix A of an adapter has no gradient while B is zero.
    assert [n for n in still if "lora_A" not in n] == []
