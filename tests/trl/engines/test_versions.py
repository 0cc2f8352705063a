"""Every rollout samples from the weights that the trainer holds, whatever has changed them; none are given twice."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from datasets import Dataset
from peft import PeftModel
from safetensors.torch import load_file
from transformers import Qwen3ForCausalLM

from pettingllms_trl import Policy
from pettingllms_trl.engines.weight_store import WeightsVersion
from shadow import shadowed
from short_runs import adapter


SAVING = {"save_strategy": "steps", "save_steps": 1}
ROW = [{"seed": 1}]


def change(model: torch.nn.Module, within: str = "") -> None:
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if within in name:
                parameter += 0.1


@pytest.mark.parametrize("policies", [pytest.param("shared", marks=pytest.mark.slow), "lora"])
def test_the_best_checkpoint_loaded_after_the_last_step_is_what_is_evaluated_and_played(
    policies: str, model_path: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every evaluation has the same number of decisions, so that the first checkpoint stays the best."""
    trainer, (engine,) = shadowed(
        monkeypatch,
        model_path,
        tmp_path,
        policies=policies,
        peft_config=adapter() if policies == "lora" else None,
        max_steps=2,
        eval_strategy="steps",
        eval_steps=1,
        load_best_model_at_end=True,
        metric_for_best_model="eval_rollout/decisions",
        greater_is_better=False,
        **SAVING,
    )
    trainer.train()
    assert trainer.state.best_model_checkpoint == str(tmp_path / "checkpoint-1")
    assert trainer.state.global_step == 2
    trainer.evaluate()
    trainer.play(ROW)
    assert list(engine.stale) == ["3/0", "3/eval/1/0", "3/1", "3/eval/2/0", "3/play"]
    assert set(engine.stale.values()) == {0.0}
    if policies == "shared":
        best, last = (load_file(tmp_path / f"checkpoint-{step}" / "model.safetensors") for step in (1, 2))
        own = engine.model.state_dict()
        assert all(torch.equal(own[name], tensor) for name, tensor in best.items())
        assert any(not torch.equal(own[name], tensor) for name, tensor in last.items())


def test_each_batch_of_an_evaluation_has_random_numbers_of_its_own(
    model_path: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Their seeds follow from the rollout's name and the place in it. Three rows, two at once, of two data sets."""
    trainer, (engine,) = shadowed(monkeypatch, model_path, tmp_path, per_device_eval_batch_size=2)
    rows = Dataset.from_dict({"seed": [1, 2, 3]})
    for _ in range(2):
        trainer.evaluate({"a": rows, "b": rows})
        assert list(engine.stale) == ["3/eval_a/0/0", "3/eval_a/0/2", "3/eval_b/0/0", "3/eval_b/0/2"]
    engine.stale.clear()
    for _ in range(2):
        trainer.predict(rows)
        assert list(engine.stale) == ["3/test/0/0", "3/test/0/2"]


def test_a_second_training_begins_with_the_weights_that_the_first_one_left(
    model_path: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each has a single generation, at the step 0."""
    trainer, (engine,) = shadowed(monkeypatch, model_path, tmp_path)
    trainer.train()
    engine.stale.clear()  # the second rollout has the name of the first one
    trainer.train()
    assert engine.given == ["base", "base"]
    assert engine.stale == {"3/0": 0.0}


def test_a_run_that_is_resumed_samples_from_the_checkpoint(
    model_path: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """From step 1 of one run, in a trainer whose engine has the weights of step 1 of another."""
    trainer, (engine,) = shadowed(monkeypatch, model_path, tmp_path / "one", **SAVING)
    trainer.train()
    trainer.args.output_dir = str(tmp_path / "other")
    trainer.train()
    trainer.evaluate()
    engine.stale.clear()
    trainer.args.max_steps = 2
    trainer.train(resume_from_checkpoint=str(tmp_path / "one" / "checkpoint-1"))
    assert engine.stale == {"3/1": 0.0}


def test_weights_changed_by_hand_are_given_when_the_trainer_is_told(
    model_path: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trainer, (engine,) = shadowed(monkeypatch, model_path, tmp_path)
    trainer.play(ROW, name="before")
    change(trainer.model)
    trainer.play(ROW, name="untold")
    trainer.weights_changed()
    trainer.play(ROW, name="told")
    assert engine.stale == {"3/before": 0.0, "3/untold": pytest.approx(0.1), "3/told": 0.0}


def test_the_same_weights_are_given_once(model_path: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    trainer, (engine,) = shadowed(
        monkeypatch, model_path, tmp_path, max_steps=4, gradient_accumulation_steps=1, steps_per_generation=2
    )
    trainer.train()  # two generations, of two steps each
    assert engine.given == ["base"] * 2
    for _ in range(2):
        trainer.evaluate()
        trainer.play(ROW)
    assert engine.given == ["base"] * 3


def test_a_frozen_adapter_and_its_model_are_given_once_and_again_when_they_may_have_changed(
    model_path: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    base = Qwen3ForCausalLM.from_pretrained(model_path)
    carried = PeftModel(base, adapter(), adapter_name="closing")
    trainer, (engine,) = shadowed(
        monkeypatch,
        model_path,
        tmp_path,
        model=carried,
        policies={"opener": "opening", "closer": Policy(adapter="closing", trainable=False)},
        peft_config=adapter(),
        max_steps=2,
        **SAVING,
    )
    trainer.train()
    assert engine.given == ["model", "opening", "closing", "opening"]
    trainer._load_from_checkpoint(str(tmp_path / "checkpoint-1"))
    trainer.play(ROW)
    assert engine.given[4:] == ["model", "opening", "closing"]
    change(trainer.model, within="layers.0")
    trainer.weights_changed()
    trainer.play(ROW)
    assert engine.given[7:] == ["model", "opening", "closing"]
    assert set(engine.stale.values()) == {0.0}


def test_a_model_that_the_engine_loaded_itself_is_given_only_after_a_change_by_hand(
    model_path: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trainer, engines = shadowed(
        monkeypatch,
        model_path,
        tmp_path,
        policies={"opener": "opening", "closer": Policy(model=model_path, name="closing", trainable=False)},
        peft_config=adapter(),
        **SAVING,
    )
    trainer.train()
    trainer._load_from_checkpoint(str(tmp_path / "checkpoint-1"))
    trainer.play(ROW)
    assert [engine.given for engine in engines] == [["opening"] * 2, []]
    change(trainer.model)
    trainer.weights_changed()
    trainer.play(ROW)
    assert [engine.given for engine in engines] == [["opening"] * 2 + ["model", "opening"], ["model"]]
    assert [set(engine.stale.values()) for engine in engines] == [{0.0}, {0.0}]


TRAINED, FROZEN, PARTNER = Policy(adapter="a"), Policy(adapter="b", trainable=False), Policy(trainable=False)


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ([], (0, 0, 0)),
        (["after_step"] * 3, (3, 0, 0)),
        (["after_step", "after_load"], (2, 1, 0)),
        (["after_load", "after_change_by_hand", "after_step"], (3, 2, 1)),
    ],
)
def test_a_version_counts_the_changes_that_can_concern_a_policy(changes: list[str], expected: tuple[int, ...]) -> None:
    version = WeightsVersion()
    for change in changes:
        version = getattr(version, change)()
    assert tuple(map(version.of, (TRAINED, FROZEN, PARTNER))) == expected
