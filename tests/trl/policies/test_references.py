"""References that follow their policies: each its own, moved by the rule of TR-DPO, kept by a checkpoint."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest
import torch
from datasets import Dataset
from transformers import AutoModelForCausalLM

from pettingllms_trl import MultiAgentGRPOTrainer, Policy
from short_runs import adapter, settings
from third_party import Relay


def team(path: str, tmp_path: Path, policies: Any, *, peft_config: Any = None, **options: Any) -> Any:
    synced = {"beta": 0.1, "sync_ref_model": True, "ref_model_sync_steps": 2, "ref_model_mixup_alpha": 0.25}
    return MultiAgentGRPOTrainer(
        path,
        lambda: Relay(1),
        settings(tmp_path, **{"max_steps": 3, **synced, **options}),
        Dataset.from_dict({"seed": range(24)}),
        policies=policies,
        peft_config=peft_config,
    )


def state(model: Any) -> dict[str, torch.Tensor]:
    return {name: value.clone() for name, value in model.state_dict().items()}


def test_each_policys_reference_moves_towards_its_own_weights_and_no_others(model_path: str, tmp_path: Path) -> None:
    trainer = team(model_path, tmp_path, "full", max_steps=2)
    start = state(AutoModelForCausalLM.from_pretrained(model_path))
    trainer.train()
    moved = {}
    for role in ("opener", "closer"):
        after, reference = state(trainer.model.models[role]), state(trainer.team.profiles[role].ref_model)
        for name in start:
            torch.testing.assert_close(reference[name], 0.75 * start[name] + 0.25 * after[name])
        moved[role] = reference
    assert any(not torch.equal(moved["opener"][name], moved["closer"][name]) for name in start)


def test_without_it_policies_of_one_model_share_a_reference_that_stays(model_path: str, tmp_path: Path) -> None:
    trainer = team(model_path, tmp_path, "full", max_steps=2, sync_ref_model=False)
    before = state(trainer.team.profiles["opener"].ref_model)
    trainer.train()
    assert trainer.team.profiles["opener"].ref_model is trainer.team.profiles["closer"].ref_model
    after = state(trainer.team.profiles["opener"].ref_model)
    assert all(torch.equal(before[name], after[name]) for name in before)


@pytest.mark.parametrize("policies", [pytest.param("shared", marks=pytest.mark.slow), "full"])
def test_a_resumed_run_goes_on_with_the_references_where_they_were(
    policies: str, model_path: str, tmp_path: Path
) -> None:
    saving = {"save_strategy": "steps", "save_steps": 2, "max_steps": 4, "ref_model_sync_steps": 1}
    whole = team(model_path, tmp_path / "whole", policies, **saving)
    whole.train()
    resumed = team(model_path, tmp_path / "resumed", policies, **saving)
    resumed.train(resume_from_checkpoint=str(tmp_path / "whole" / "checkpoint-2"))
    for one, other in [(whole.model, resumed.model), *zip(references(whole), references(resumed), strict=True)]:
        one, other = state(one), state(other)
        assert [name for name in one if not torch.equal(one[name], other[name])] == []
    assert references(whole)


def references(trainer: Any) -> list[Any]:
    return [voice.ref_model for voice in trainer.team.profiles.values() if voice.ref_model is not None]


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"policies": "shared", "beta": 0.0}, "no policy has a KL term, .* Set beta"),
        ({"policies": {"opener": Policy(beta=0.0), "closer": Policy(beta=0.0)}}, "no policy has a KL term"),
        ({"policies": "lora"}, "'opener', 'closer' is an adapter, .* is not an adapter of the mean weights"),
        ({"policies": "shared", "peft_config": adapter()}, "'default' is an adapter, expected full models"),
    ],
    ids=["no beta", "no policy's beta", "adapters", "one adapter"],
)
def test_references_that_cannot_follow_are_refused_before_a_model_is_loaded(
    given: dict[str, Any], message: str, tmp_path: Path
) -> None:
    given = copy.copy(given)
    with pytest.raises(ValueError, match=message):
        team("/nowhere", tmp_path, given.pop("policies"), **given)
