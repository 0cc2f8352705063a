"""Who is played by what: tables of `policies=`, and adapters that stay trainable however requests are routed."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from peft import LoraConfig, PeftModel
from transformers import AutoModelForCausalLM

from pettingllms_trl.policies import Policy, activate, attach_adapters, parameters_of, role_of, route


TEAM = ("drafter_0", "planner_0", "planner_1")


@pytest.mark.parametrize(
    ("agent", "role"),
    [
        ("planner_0", "planner"),
        ("planner_12", "planner"),
        ("code_writer_3", "code_writer"),
        ("solver", "solver"),
        ("agent_x", "agent_x"),
        ("gpt_4_0", "gpt_4"),
    ],
)
def test_a_role_is_the_agents_name_without_its_number(agent: str, role: str) -> None:
    assert role_of(agent) == role


@pytest.mark.parametrize(
    ("policies", "of_agent", "adapters"),
    [
        ("shared", ("shared", "shared", "shared"), ()),
        ("lora", ("drafter", "planner", "planner"), ("drafter", "planner")),
        ({"drafter": "d", "planner": "p"}, ("d", "p", "p"), ("d", "p")),
        ({"drafter_0": "d", "planner_0": "p", "planner_1": "q"}, ("d", "p", "q"), ("d", "p", "q")),
        ({"drafter": "d", "planner": "p", "planner_1": "q"}, ("d", "p", "q"), ("d", "p", "q")),
        ({"drafter": "one", "planner": "one"}, ("one", "one", "one"), ("one",)),
    ],
    ids=["shared", "lora", "roles", "agents", "an agent before its role", "one adapter"],
)
def test_each_agent_is_routed_to_its_policy(
    policies: Any, of_agent: tuple[str, ...], adapters: tuple[str, ...]
) -> None:
    routing = route(policies, TEAM)
    assert routing.of_agent == dict(zip(TEAM, of_agent, strict=True))
    assert routing.adapters == adapters
    assert tuple(policy.name for policy in routing.policies) == (adapters or ("shared",))


def test_a_policy_carries_its_own_settings() -> None:
    fast = Policy(adapter="p", learning_rate=1e-3, max_grad_norm=0.5)
    assert route({"drafter": "d", "planner": fast}, TEAM).policies == (Policy(adapter="d"), fast)


@pytest.mark.parametrize(
    ("policies", "message"),
    [
        ("full", r"policies='full', expected 'shared', 'lora', or a dict"),
        (
            {"drafter": "d", "planer": "p"},
            r"policies names 'planer', but the environment has the agents drafter_0, planner_0, planner_1\. "
            r"Did you mean 'planner'\? Name an agent, or a role",
        ),
        ({"drafter": "d", "planner": "p", "xyz": "x"}, r"names 'xyz', but .*planner_1\. Name an agent"),
        ({"drafter": "d", "planner_0": "p"}, r"leaves out the agent 'planner_1'\. Give every agent, or its role"),
        (
            {"drafter": Policy(adapter="x", learning_rate=1.0), "planner": "x"},
            r"adapter 'x' is given two different settings",
        ),
        ({"drafter": "d", "planner": Policy()}, r"gives 'planner_0' no adapter\..* use policies='shared'"),
        ({"drafter": "d", "planner": "a.b"}, r"adapter name 'a\.b' of agent 'planner_0': use letters, digits"),
        ({"drafter": "d", "planner": ""}, r"adapter name '' of agent"),
        ({"drafter": "d", "planner": "lora_x"}, r"adapter name 'lora_x' .* do not begin with 'lora'"),
        ({"drafter": "d", "planner": "ora"}, r"adapter name 'ora' .* take no part of 'lora_'\. Choose another"),
    ],
    ids=["layout", "typo", "stranger", "left out", "conflict", "no adapter", "dot", "empty", "lora", "part of lora"],
)
def test_a_table_that_does_not_fit_the_team_is_refused(policies: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        route(policies, TEAM)


ROUTING = route({"drafter": "plan", "planner": "planner"}, TEAM)


@pytest.fixture
def model(model_path: str) -> PeftModel:
    base = AutoModelForCausalLM.from_pretrained(model_path)
    return attach_adapters(base, ROUTING.adapters, LoraConfig(r=2, target_modules="all-linear"))


def trainable(model: PeftModel) -> set[str]:
    return {name for name, p in model.named_parameters() if p.requires_grad}


def test_every_adapter_is_trainable_whichever_is_active_and_the_base_never(model: PeftModel) -> None:
    expected = {name for name, _ in model.named_parameters() if "lora_" in name}
    assert len(expected) == 2 * 2 * 14  # two adapters, A and B, seven linear layers in each of two blocks
    assert trainable(model) == expected
    for adapter in (*ROUTING.adapters, ROUTING.adapters[0]):
        activate(model, adapter, ROUTING.adapters)
        assert model.active_adapters == [adapter]
        assert trainable(model) == expected


def test_a_policys_parameters_are_its_adapters_even_when_one_name_begins_with_the_other(model: PeftModel) -> None:
    first, second = (parameters_of(model, policy, ROUTING.adapters) for policy in ROUTING.policies)
    assert (len(first), len(second)) == (28, 28)
    assert not {id(p) for p in first} & {id(p) for p in second}


def test_a_forward_pass_goes_through_the_active_adapter_alone(model: PeftModel) -> None:
    for policy in ROUTING.policies:
        activate(model, policy.name, ROUTING.adapters)
        model.zero_grad()
        model(input_ids=torch.tensor([[5, 6, 7]])).logits.sum().backward()
        moved = [
            any(p.grad is not None for p in parameters_of(model, p_, ROUTING.adapters)) for p_ in ROUTING.policies
        ]
        assert moved == [p_ == policy for p_ in ROUTING.policies]


def test_adapters_that_a_model_already_carries_are_kept(model: PeftModel) -> None:
    with torch.no_grad():
        for p in parameters_of(model, ROUTING.policies[0], ROUTING.adapters):
            p.fill_(0.5)
    again = attach_adapters(model, ("plan", "new"), LoraConfig(r=2, target_modules="all-linear"))
    assert again is model
    assert set(model.peft_config) == {"plan", "planner", "new"}
    assert all(bool((p == 0.5).all()) for p in parameters_of(model, Policy(adapter="plan"), ("plan", "new")))
