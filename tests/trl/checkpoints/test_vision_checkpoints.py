"""Checkpoints and saved policies of models with vision: pictures in a generation, processors, references, cards."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from datasets import Dataset
from huggingface_hub import ModelCard
from transformers import AutoModelForImageTextToText, AutoProcessor

from mortal import equal
from moved_weights import weights as weights_of
from pettingllms_trl import MultiAgentGRPOConfig, MultiAgentGRPOTrainer
from pettingllms_trl.checkpoints.model_card import team_card
from pettingllms_trl.policies.routing import route
from picture_books import PictureBook
from tiny_vlms import FAMILIES
from twins import arguments


INSIDE = {"gradient_accumulation_steps": 1, "steps_per_generation": 2, "max_steps": 3, "save_steps": 1}
OPTIONS: dict[str, Any] = {
    **INSIDE,
    "shared_prefix": False,
    "save_strategy": "steps",
    "generation_kwargs": None,
    "bf16": False,
}


def trainer_of(family: str, output_dir: Path, policies: str, **options: Any) -> MultiAgentGRPOTrainer:
    make_processor, make_model = FAMILIES[family]
    processor = make_processor()
    return MultiAgentGRPOTrainer(
        model=make_model(processor),
        env=PictureBook,
        processing_class=processor,
        policies=policies,
        args=MultiAgentGRPOConfig(**arguments(output_dir, **{**OPTIONS, **options})),
        train_dataset=Dataset.from_dict({"seed": range(12)}),
    )


@pytest.mark.parametrize(
    ("family", "policies", "beta"),
    [
        pytest.param("qwen", "shared", 0.0, marks=pytest.mark.slow),
        ("gemma", "lora", 0.1),
        pytest.param("gemma", "shared", 0.0, marks=pytest.mark.slow),
        pytest.param("qwen", "lora", 0.1, marks=pytest.mark.slow),
        pytest.param("qwen", "full", 0.1, marks=pytest.mark.slow),
        pytest.param("gemma", "full", 0.1, marks=pytest.mark.slow),
    ],
)
def test_a_run_resumed_inside_a_generation_with_pictures_equals_one_never_interrupted(
    family: str, policies: str, beta: float, tmp_path: Path
) -> None:
    whole = trainer_of(family, tmp_path / "whole", policies, beta=beta)
    before = weights_of(whole)
    whole.train()
    resumed = trainer_of(family, tmp_path / "resumed", policies, beta=beta)
    resumed.train(str(tmp_path / "whole" / "checkpoint-1"))
    assert equal(weights_of(resumed), weights_of(whole))
    assert not equal(before, weights_of(whole))


def test_the_best_model_is_read_back_although_its_parameters_have_other_names_in_files(tmp_path: Path) -> None:
    trainer = trainer_of("qwen", tmp_path, "shared", max_steps=1)
    trainer.train()
    best = weights_of(trainer)
    with torch.no_grad():
        for parameter in trainer.model.parameters():
            parameter.add_(1.0)
    trainer.state.best_model_checkpoint = str(tmp_path / "checkpoint-1")
    trainer._load_best_model()
    assert equal(weights_of(trainer), best)


def test_a_saved_policy_is_loaded_with_its_processor_as_its_card_says(tmp_path: Path) -> None:
    trainer = trainer_of("gemma", tmp_path / "run", "full")
    trainer.save_model(str(tmp_path / "team"))
    folder = tmp_path / "team" / "solver"
    model, own = AutoModelForImageTextToText.from_pretrained(folder), trainer.team.weights_of("solver")
    assert equal(dict(model.named_parameters()), dict(own.named_parameters()))
    content = [{"type": "image"}, {"type": "text", "text": "Moves?"}]
    written = [
        processor.apply_chat_template([{"role": "user", "content": content}], tokenize=False)
        for processor in (AutoProcessor.from_pretrained(folder), trainer.team.profiles["solver"].processing_class)
    ]
    assert written[0] == written[1] == "<start_of_turn>user\n<start_of_image>Moves?<end_of_turn>\n"
    trainer.create_model_card("me/team")
    text = ModelCard.load(tmp_path / "run" / "README.md").text
    assert 'model = AutoModelForImageTextToText.from_pretrained("me/team", subfolder="solver")' in text
    assert 'processor = AutoProcessor.from_pretrained("me/team", subfolder="solver")' in text


def test_the_card_of_a_seeing_and_a_blind_policy_loads_each_by_its_class() -> None:
    card = team_card(
        name="me/team",
        environment="game",
        routing=route({"describer": "describer", "solver": "solver"}, ["describer_0", "solver_0"]),
        sources={"describer": "you/vlm", "solver": "you/vlm"},
        tags=["trl"],
        vision_policies=["describer"],
    )
    assert "from transformers import AutoModelForImageTextToText, AutoProcessor\n" in card
    assert 'base = AutoModelForImageTextToText.from_pretrained("you/vlm")' in card
