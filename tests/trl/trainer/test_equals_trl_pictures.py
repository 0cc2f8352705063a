"""With one agent and one turn the trainer is TRL's GRPOTrainer on pictures, too: the same gradients and weights."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from datasets import Dataset
from trl import GRPOTrainer

from picture_books import PictureBook, rows_of_trl
from tiny_vlms import FAMILIES
from twins import assert_equal, our_trainer, run, their_trainer


NUM_ROWS = 12
LOSSES = ("grpo", "dapo", "dr_grpo", "bnpo", "cispo")
OPTIONS: dict[str, Any] = {"generation_kwargs": None, "bf16": False, "gradient_accumulation_steps": 1, "max_steps": 2}
CASES = [(family, loss, beta) for family in FAMILIES for loss in LOSSES for beta in (0.0, 0.1)]
QUICK = [("qwen", "grpo", 0.0), ("qwen", "dapo", 0.1), ("gemma", "bnpo", 0.1)]


@pytest.fixture(autouse=True)
def trl_takes_rows_without_a_picture(monkeypatch: pytest.MonkeyPatch) -> None:
    """TRL gives its processor `None` for the pictures of a row without one beside others, which raises TypeError."""
    tokenize = GRPOTrainer._tokenize_prompts

    def with_lists(self: GRPOTrainer, prompts: Any) -> Any:
        ids, images, fields = tokenize(self, prompts)
        return ids, images and [own or [] for own in images], fields

    monkeypatch.setattr(GRPOTrainer, "_tokenize_prompts", with_lists)


@pytest.mark.parametrize(
    ("family", "loss", "beta"),
    [pytest.param(*case, marks=() if case in QUICK else pytest.mark.slow) for case in CASES],
)
def test_a_model_with_vision_trains_as_with_trl(family: str, loss: str, beta: float, tmp_path: Path) -> None:
    make_processor, make_model = FAMILIES[family]
    options = {**OPTIONS, "loss_type": loss, "beta": beta}
    one, other = make_processor(), make_processor()
    make_model(one).save_pretrained(model := str(tmp_path / "model"))  # from where TRL loads its reference
    theirs = run(
        their_trainer(model, tmp_path / "t", options, processing_class=one, train_dataset=rows_of_trl(NUM_ROWS))
    )
    ours = run(
        our_trainer(
            model,
            tmp_path / "o",
            options,
            processing_class=other,
            env=PictureBook,
            train_dataset=Dataset.from_dict({"seed": range(NUM_ROWS)}),
        )
    )
    assert_equal(theirs, ours)
    assert len(ours.gradients) == 2
    seen = [name for name in ours.gradients[0] if ("visual" in name or "vision_tower" in name) and "weight" in name]
    assert seen
    assert all(float(ours.gradients[0][name].abs().max()) > 0 for name in seen)
