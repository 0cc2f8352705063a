"""The model that is several: what goes to the active one, what to each, and that no other is touched."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from peft import LoraConfig, get_peft_model
from transformers import AutoModelForCausalLM, GraniteConfig, GraniteForCausalLM

from pettingllms_trl.policies.multi_model import MultiPolicyModel
from pettingllms_trl.policies.routing import Policy, route
from pettingllms_trl.policies.weights import assemble, parameters_of


IDS = torch.tensor([[5, 6, 7, 8]])


def granite() -> GraniteForCausalLM:
    torch.manual_seed(1)
    return GraniteForCausalLM(
        GraniteConfig(
            vocab_size=50,
            hidden_size=16,
            intermediate_size=32,
            num_hidden_layers=1,
            num_attention_heads=2,
            num_key_value_heads=1,
            logits_scaling=4.0,
        )
    )


@pytest.fixture
def team(model_path: str) -> MultiPolicyModel:
    qwen = AutoModelForCausalLM.from_pretrained(model_path)
    adapted = get_peft_model(AutoModelForCausalLM.from_pretrained(model_path), LoraConfig(r=2), adapter_name="coder")
    return MultiPolicyModel({"planner": qwen, "base": adapted, "judge": granite()})


@pytest.mark.parametrize("active", ["planner", "base", "judge"])
def test_a_pass_forward_and_back_goes_through_the_active_model_alone(active: str, team: MultiPolicyModel) -> None:
    team.active = active
    expected = team.models[active](input_ids=IDS).logits
    found = team(input_ids=IDS).logits
    assert torch.equal(found, expected)
    found.sum().backward()
    touched = {name.split(".")[1] for name, p in team.named_parameters() if p.grad is not None}
    assert touched == {active}


@pytest.mark.parametrize("active", ["planner", "judge"])
def test_the_active_model_generates(active: str, team: MultiPolicyModel) -> None:
    team.active = active
    options = {"input_ids": IDS, "attention_mask": torch.ones_like(IDS), "max_new_tokens": 5, "do_sample": False}
    assert torch.equal(team.generate(**options), team.models[active].generate(**options))


def test_checkpointing_is_switched_on_and_off_in_all_and_changes_no_gradient(team: MultiPolicyModel) -> None:
    gradients = []
    for checkpointing in (False, True):
        if checkpointing:
            team.activation_checkpointing_enable({"use_reentrant": False})
        assert team.is_activation_checkpointing == checkpointing
        for name, model in team.models.items():
            flags = {m.gradient_checkpointing for m in model.modules() if hasattr(m, "gradient_checkpointing")}
            assert flags == {checkpointing}
            team.active = name
            team(input_ids=IDS).logits.square().sum().backward()
        gradients.append({name: p.grad for name, p in team.named_parameters() if p.grad is not None})
        team.zero_grad()
    assert gradients[0].keys() == gradients[1].keys()
    assert {name.split(".")[1] for name in gradients[0]} == {"planner", "base", "judge"}
    assert all(torch.equal(gradients[0][name], gradients[1][name]) for name in gradients[0])
    team.activation_checkpointing_disable()
    assert not team.is_activation_checkpointing


def test_what_is_set_on_its_configuration_is_set_on_no_model(team: MultiPolicyModel) -> None:
    team.config.pad_token_id = team.generation_config.pad_token_id = 42
    assert all(model.config.pad_token_id != 42 for model in team.models.values())
    assert all(model.generation_config.pad_token_id != 42 for model in team.models.values())


def test_each_model_is_saved_to_a_folder_that_loads_alone(team: MultiPolicyModel, tmp_path: Path) -> None:
    team.save_pretrained(tmp_path)
    for name in ("planner", "judge"):
        loaded = AutoModelForCausalLM.from_pretrained(tmp_path / name)
        assert type(loaded) is type(team.models[name])
        assert torch.equal(loaded(input_ids=IDS).logits, team.models[name](input_ids=IDS).logits)


# ---- Put together ---------------------------------------------------------------------------------------------------


def test_one_object_given_to_several_policies_is_copied_for_each_but_the_first() -> None:
    model = granite()
    policies = {"a": Policy(model=model), "b": Policy(model=model), "c": "adapter"}
    made = assemble(
        route(policies, "abc"),
        model,
        peft_config=LoraConfig(target_modules="all-linear"),
        load=_never,
        with_reference=(),
    ).model
    assert list(made.models) == ["base", "a", "b"]
    assert made.models["a"] is model
    pointers = [{p.data_ptr() for p in made.models[name].parameters()} for name in ("base", "a", "b")]
    assert not pointers[0] & pointers[1] | pointers[0] & pointers[2] | pointers[1] & pointers[2]
    for one, other in zip(model.parameters(), made.models["b"].parameters(), strict=True):
        assert torch.equal(one, other)


def test_policies_that_start_from_one_model_share_one_reference(model_path: str) -> None:
    loaded = []

    def load(path: str, is_base: bool) -> AutoModelForCausalLM:
        loaded.append((path, is_base))
        return AutoModelForCausalLM.from_pretrained(path)

    routing = route("full", ["a_0", "b_0", "c_0"], model=model_path)
    made = assemble(routing, model_path, peft_config=None, load=load, with_reference=("a", "c"))
    assert loaded == [(model_path, False)] * 3
    assert set(made.references) == {"a", "c"}
    assert made.references["a"] is made.references["c"]
    assert not any(p.requires_grad for p in made.references["a"].parameters())
    assert not made.references["a"].training


def test_frozen_models_get_no_gradients_and_a_frozen_base_leaves_its_adapters_theirs() -> None:
    policies = {"a": Policy(model=granite(), trainable=False), "b": "adapter", "c": Policy(trainable=False)}
    routing = route(policies, "abc")
    made = assemble(
        routing, granite(), peft_config=LoraConfig(target_modules="all-linear"), load=_never, with_reference=()
    ).model
    trainable = [name for name, p in made.named_parameters() if p.requires_grad]
    assert trainable
    assert all(".lora_" in name and name.startswith("models.base.") for name in trainable)
    assert len(parameters_of(made, routing.trained[0])) == len(trainable)


def _never(path: str, is_base: bool) -> None:
    raise AssertionError(f"{path} was loaded")
