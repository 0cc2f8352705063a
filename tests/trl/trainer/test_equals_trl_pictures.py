"""With one agent and one turn the trainer is TRL's GRPOTrainer on pictures, too: the same gradients and weights."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from datasets import Dataset
from trl import GRPOTrainer

from pettingllms_envs import conversation
from picture_books import PictureBook, drawn, rows_of_trl
from tiny_vlms import FAMILIES
from twins import Run, assert_equal, our_trainer, run, their_trainer


NUM_ROWS = 12
LOSSES = ("grpo", "dapo", "dr_grpo", "bnpo", "cispo")
OPTIONS: dict[str, Any] = {"generation_kwargs": None, "bf16": False, "gradient_accumulation_steps": 1, "max_steps": 2}
QUICK = [("qwen", "grpo", 0.0), ("qwen", "dapo", 0.1), ("gemma", "bnpo", 0.1)]
CASES = [
    pytest.param(family, loss, beta, marks=() if (family, loss, beta) in QUICK else pytest.mark.slow)
    for family in FAMILIES
    for loss in LOSSES
    for beta in (0.0, 0.1)
]


@pytest.fixture(autouse=True)
def trl_takes_rows_without_a_picture(monkeypatch: pytest.MonkeyPatch) -> None:
    """TRL gives its processor `None` for the pictures of a row without one beside others, which raises TypeError."""
    tokenize = GRPOTrainer._tokenize_prompts

    def with_lists(self: GRPOTrainer, prompts: Any) -> Any:
        ids, images, fields = tokenize(self, prompts)
        return ids, images and [own or [] for own in images], fields

    monkeypatch.setattr(GRPOTrainer, "_tokenize_prompts", with_lists)


def runs_of(family: str, change: dict[str, Any], path: Path) -> tuple[Run, Run]:
    """TRL's run and ours, of the same rows."""
    make_processor, make_model = FAMILIES[family]
    options = {**OPTIONS, **change}
    peft = options.pop("peft", False)
    one, other = make_processor(), make_processor()
    make_model(one).save_pretrained(model := str(path / "model"))  # from where TRL loads its reference
    rows = rows_of_trl(NUM_ROWS)
    theirs = run(their_trainer(model, path / "t", dict(options), peft=peft, processing_class=one, train_dataset=rows))
    rows = Dataset.from_dict({"seed": range(NUM_ROWS)})
    more = {"processing_class": other, "env": PictureBook, "train_dataset": rows}
    return theirs, run(our_trainer(model, path / "o", dict(options), peft=peft, **more))


@pytest.mark.parametrize(("family", "loss", "beta"), CASES)
def test_a_model_with_vision_trains_as_with_trl(family: str, loss: str, beta: float, tmp_path: Path) -> None:
    theirs, ours = runs_of(family, {"loss_type": loss, "beta": beta}, tmp_path)
    assert_equal(theirs, ours)
    assert len(ours.gradients) == 2
    seen = [name for name in ours.gradients[0] if ("visual" in name or "vision_tower" in name) and "weight" in name]
    assert seen
    assert all(float(ours.gradients[0][name].abs().max()) > 0 for name in seen)


STALE = {"num_iterations": 2, "steps_per_generation": 4, "per_device_train_batch_size": 4, "max_steps": 3}
MORE: dict[str, dict[str, Any]] = {
    "stale": STALE,
    "padded": {"pad_to_multiple_of": 16},
    "checkpointing": {"gradient_checkpointing": True},
    "adapter": {"peft": True, **STALE, "beta": 0.1},
}


@pytest.mark.slow
@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("name", MORE)
def test_old_log_probabilities_padding_and_adapters_are_as_with_trl(family: str, name: str, tmp_path: Path) -> None:
    assert_equal(*runs_of(family, MORE[name], tmp_path))


# ---- The columns of TRL's data sets --------------------------------------------------------------------------------


def rows_with_an_image(num_rows: int) -> Dataset:
    """Rows as those of TRL's script grpo_vlm.py."""
    rows = []
    for seed in range(num_rows):
        prompt = [{"role": "system", "content": "Think."}, {"role": "user", "content": f"Question {seed % 3}?"}]
        picture = drawn(seed, ((56, 56), (112, 84))[seed % 2])
        rows.append({"prompt": prompt, "image": picture, "solution": "P" * (seed % 3)})
    return Dataset.from_list(rows)


DATA_SETS = {"image": rows_with_an_image, "images": rows_of_trl}


@pytest.mark.parametrize(
    ("family", "column"),
    [
        ("qwen", "image"),
        *(pytest.param(*case, marks=pytest.mark.slow) for case in (("qwen", "images"), ("gemma", "images"))),
    ],
)
def test_a_conversation_about_rows_with_pictures_trains_as_with_trl(family: str, column: str, tmp_path: Path) -> None:
    make_processor, make_model = FAMILIES[family]
    one, other = make_processor(), make_processor()
    make_model(one).save_pretrained(model := str(tmp_path / "model"))
    given: list[dict[str, Any]] = []

    def paid(prompts: Any, completions: Any, **columns: Any) -> list[float]:
        asked = [[part for message in prompt for part in message["content"]] for prompt in prompts]
        given.append({**columns, "asked": asked})
        return [float(sum(map(ord, completion[0]["content"])) % 7) for completion in completions]

    rows = DATA_SETS[column](NUM_ROWS)
    more: dict[str, Any] = {"reward_funcs": paid, "train_dataset": rows}
    theirs = run(their_trainer(model, tmp_path / "t", dict(OPTIONS), processing_class=one, **more))
    calls = len(given)
    more["env"] = conversation(["solver"])
    ours = run(our_trainer(model, tmp_path / "o", dict(OPTIONS), processing_class=other, **more))
    assert_equal(theirs, ours)
    assert any("visual" in name or "vision_tower" in name for name in ours.gradients[0])
    of_theirs, of_ours = (
        [each for call in part for each in as_pixels(call, column)] for part in (given[:calls], given[calls:])
    )
    assert len(of_theirs) == len(of_ours) > 0
    assert all(each in of_theirs for each in of_ours)


def as_pixels(call: dict[str, Any], column: str) -> list[Any]:
    """What a reward function was given of each completion: the row's pictures and the prompt's parts."""

    def plain(value: Any) -> Any:
        if isinstance(value, list):
            return list(map(plain, value))
        if isinstance(value, dict):
            return {name: plain(each) for name, each in value.items() if each is not None}
        return value.tobytes() if hasattr(value, "tobytes") else value

    return list(zip(plain(call[column]), plain(call["asked"]), strict=True))
