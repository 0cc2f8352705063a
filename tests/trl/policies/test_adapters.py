"""Adapters: what is active already is not switched again, and what PEFT has frozen since is trainable afterwards."""

from __future__ import annotations

from typing import Any

import pytest
from peft import PeftModel
from transformers import Qwen3Config, Qwen3ForCausalLM

from pettingllms_trl.policies.adapters import acting_as, activate, attach_adapters
from short_runs import adapter


NAMES = ("opener", "closer", "frozen")
TRAINED = ("opener", "closer")


@pytest.fixture
def model() -> PeftModel:
    config = Qwen3Config(
        vocab_size=10, hidden_size=8, intermediate_size=8, num_hidden_layers=2, num_attention_heads=1, head_dim=8
    )
    return attach_adapters(Qwen3ForCausalLM(config), NAMES, adapter(), trained=TRAINED)


def trainable(model: PeftModel) -> set[str]:
    """The adapters of which every weight has a gradient; no adapter may have some."""
    of_adapter = {
        name: {p.requires_grad for each, p in model.named_parameters() if f".{name}." in each} for name in NAMES
    }
    assert all(len(found) == 1 for found in of_adapter.values())
    return {name for name, found in of_adapter.items() if found == {True}}


@pytest.fixture
def switched(model: PeftModel, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The adapters that PEFT was asked for."""
    names: list[str] = []
    set_adapter = model.set_adapter

    def noted(name: str, **options: Any) -> None:
        names.append(name)
        set_adapter(name, **options)

    monkeypatch.setattr(model, "set_adapter", noted)
    return names


def test_an_adapter_is_switched_to_once(model: PeftModel, switched: list[str]) -> None:
    for name in ("opener", "opener", "closer", "closer", "frozen", "frozen", "opener"):
        activate(model, name, TRAINED)
        assert model.active_adapters == [name]
        assert trainable(model) == {*TRAINED}
    assert switched == ["closer", "frozen", "opener"]


def test_what_was_frozen_in_between_is_trainable_again(model: PeftModel, switched: list[str]) -> None:
    with model.disable_adapter():
        pass
    assert trainable(model) == {"opener"}
    activate(model, "opener", TRAINED)
    assert trainable(model) == {*TRAINED}
    model.set_requires_grad("frozen", True)
    activate(model, "opener", TRAINED)
    assert trainable(model) == {*TRAINED}
    assert switched == ["opener", "opener"]


def test_others_may_be_trained_than_before(model: PeftModel) -> None:
    activate(model, "opener", ("opener",))
    assert trainable(model) == {"opener"}
    activate(model, "opener", TRAINED)
    assert trainable(model) == {*TRAINED}


@pytest.mark.parametrize("other", [None, "closer", "frozen"])
def test_after_acting_as_another_the_adapter_is_as_it_was(other: str | None, model: PeftModel) -> None:
    with acting_as(model, other, TRAINED):
        assert model.base_model.model.model.layers[1].mlp.up_proj.disable_adapters == (other is None)
    assert model.active_adapters == ["opener"]
    assert not model.base_model.model.model.layers[1].mlp.up_proj.disable_adapters
    assert trainable(model) == {*TRAINED}
