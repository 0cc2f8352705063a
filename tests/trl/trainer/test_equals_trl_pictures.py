"""With one agent and one turn the trainer is TRL's GRPOTrainer on pictures, too: the same gradients and weights."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from datasets import Dataset
from trl import GRPOTrainer

from picture_books import PictureBook, rows_of_trl
from tiny_vlms import FAMILIES
from twins import STEPS, assert_equal, our_trainer, run, their_trainer


NUM_ROWS = 12
LOSSES = ("grpo", "dapo", "dr_grpo", "bnpo", "cispo")
OPTIONS: dict[str, Any] = {"generation_kwargs": None, "bf16": False}


@pytest.fixture(autouse=True)
def trl_takes_rows_without_a_picture(monkeypatch: pytest.MonkeyPatch) -> None:
    """TRL gives its processor `None` for the pictures of a row without one beside others, which raises TypeError."""
    tokenize = GRPOTrainer._tokenize_prompts

    def with_lists(self: GRPOTrainer, prompts: Any) -> Any:
        ids, images, fields = tokenize(self, prompts)
        return ids, images and [own or [] for own in images], fields

    monkeypatch.setattr(GRPOTrainer, "_tokenize_prompts", with_lists)


@pytest.mark.parametrize("beta", [0.0, 0.1])
@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("family", FAMILIES)
def test_a_model_with_vision_trains_as_with_trl(family: str, loss: str, beta: float, tmp_path: Path) -> None:
    make_processor, make_model = FAMILIES[family]
    options = {**OPTIONS, "loss_type": loss, "beta": beta}
    one, other = make_processor(), make_processor()
    theirs = run(
        their_trainer(
            make_model(one), tmp_path / "t", options, processing_class=one, train_dataset=rows_of_trl(NUM_ROWS)
        )
    )
    ours = run(
        our_trainer(
            make_model(other),
            tmp_path / "o",
            options,
            processing_class=other,
            env=PictureBook,
            train_dataset=Dataset.from_dict({"seed": range(NUM_ROWS)}),
        )
    )
    assert_equal(theirs, ours)
    assert len(ours.gradients) == STEPS
    seen = [name for name in ours.gradients[0] if ("visual" in name or "vision_tower" in name) and "weight" in name]
    assert seen and all(float(ours.gradients[0][name].abs().max()) > 0 for name in seen)
