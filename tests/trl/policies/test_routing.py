"""Who is played by what: tables of `policies=`, what is refused, and adapters that stay trainable when routed."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from peft import LoraConfig, PeftModel
from transformers import AutoModelForCausalLM

from pettingllms_trl.policies.adapters import acting_as, activate, attach_adapters, keep_reference
from pettingllms_trl.policies.routing import Policy, route
from pettingllms_trl.policies.weights import parameters_of
from pettingllms_trl.records import role_of


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
        ("shared", ("base", "base", "base"), ()),
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
    assert tuple(policy.name for policy in routing.policies) == (adapters or ("base",))


def test_a_policy_carries_its_own_settings() -> None:
    fast = Policy(adapter="p", learning_rate=1e-3, max_grad_norm=0.5)
    assert route({"drafter": "d", "planner": fast}, TEAM).policies == (Policy(adapter="d"), fast)


def test_the_layout_full_is_a_policy_of_the_model_for_each_role() -> None:
    routing = route("full", TEAM, model="m")
    assert routing.policies == (Policy(name="drafter", model="m"), Policy(name="planner", model="m"))
    assert routing.of_agent == {"drafter_0": "drafter", "planner_0": "planner", "planner_1": "planner"}
    assert (routing.adapters, routing.uses_model) == ((), False)


ONE, OTHER = Policy(model="m"), Policy(model="m")


@pytest.mark.parametrize(
    ("policies", "of_agent"),
    [
        ({"drafter": ONE, "planner": ONE}, ("drafter", "drafter", "drafter")),
        ({"drafter": ONE, "planner": OTHER}, ("drafter", "planner", "planner")),
        ({"drafter": Policy(model="m", name="x"), "planner": Policy(model="m", name="x")}, ("x", "x", "x")),
        ({"drafter": "d", "planner_0": ONE, "planner_1": OTHER}, ("d", "planner_0", "planner_1")),
        ({"drafter": Policy(trainable=False), "planner": "p"}, ("base", "p", "p")),
        ({"drafter": Policy(api=str), "planner": Policy()}, ("drafter", "base", "base")),
    ],
    ids=["same object", "equal objects", "same name", "agents", "frozen base", "api"],
)
def test_a_policy_without_a_name_is_named_after_whom_it_plays_first(policies: Any, of_agent: tuple[str, ...]) -> None:
    assert route(policies, TEAM).of_agent == dict(zip(TEAM, of_agent, strict=True))


def test_only_policies_whose_weights_may_move_count_as_trained() -> None:
    routing = route(
        {"drafter": Policy(adapter="d", trainable=False), "planner_0": Policy(api=str), "planner_1": ONE}, TEAM
    )
    assert [policy.name for policy in routing.trained] == ["planner_1"]
    assert (routing.adapters, routing.trained_adapters) == (("d",), ())


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"adapter": "a", "model": "m"}, r"has adapter and model, expected one at most: .* Leave out all but one"),
        ({"model": "m", "api": str}, r"has model and api, expected one at most"),
        ({"adapter": "a", "name": "b"}, r"has name='b', but neither model nor api; .* Leave name out"),
        ({"name": "b"}, r"has name='b', but neither model nor api"),
        ({"trainable": False, "learning_rate": 1.0}, r"has learning_rate=1\.0 and trainable=False, but only a policy"),
        ({"model": "m", "trainable": False, "beta": 0.1}, r"has beta=0\.1 and trainable=False"),
        ({"api": str, "max_grad_norm": 1.0}, r"has max_grad_norm=1\.0 and an api, .* Leave one of them out"),
        (
            {"api": str, "tokenizer": "t"},
            r"an api and a tokenizer, but an api is given text\. Leave the tokenizer out",
        ),
        ({"learning_rate": -1.0}, r"learning_rate=-1\.0, expected a positive number"),
        ({"max_grad_norm": 0.0}, r"max_grad_norm=0\.0, expected a positive number"),
        ({"learning_rate": "fast"}, "learning_rate='fast', expected a positive number"),
        ({"beta": math.nan}, "beta=nan, expected a positive number"),
        ({"trainable": "no"}, r"trainable='no', expected a boolean\. Write true or false"),
    ],
    ids=lambda value: "-".join(value) if isinstance(value, dict) else "",
)
def test_a_policy_that_contradicts_itself_is_refused(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Policy(**fields)


@pytest.mark.parametrize(
    ("policies", "message"),
    [
        ("fulll", r"policies='fulll', expected 'shared', 'lora', 'full', or a dict"),
        ("full", r"policies='full' trains a copy of the model for each role, but model is None\. Set model="),
        (
            {"drafter": "d", "planer": "p"},
            r"policies names 'planer', but the environment has the agents drafter_0, planner_0, planner_1\. "
            r"Did you mean 'planner'\? Name an agent, or a role",
        ),
        ({"drafter": "d", "planner": "p", "xyz": "x"}, r"names 'xyz', but .*planner_1\. Name an agent"),
        ({"drafter": "d", "planner_0": "p"}, r"leaves out the agent 'planner_1'\. Give every agent, or its role"),
        (
            {"drafter": Policy(adapter="x", learning_rate=1.0), "planner": "x"},
            r"the name 'x' is given to two policies that differ in learning_rate, .* Name one otherwise",
        ),
        ({"drafter": "d", "planner_0": Policy(model="m", name="d"), "planner_1": "p"}, r"differ in adapter, model"),
        (
            {"drafter": "d", "planner": Policy()},
            r"gives 'planner_0', 'planner_1' the model itself to train, and 'drafter_0' the adapter 'd' on it; .* "
            r"Freeze the base \(Policy\(trainable=False\)\), .* use policies='shared'",
        ),
        ({"drafter": "base", "planner": "p"}, r"adapter name 'base' .*; not 'base'"),
        ({"drafter": "ref-d", "planner": "p"}, r"adapter name 'ref-d' of agent 'drafter_0': .* 'ref-'"),
        ({"drafter": "debias", "planner": "p"}, r"name 'debias' .* transformers takes for a bias or a norm"),
        (
            {"drafter": Policy(model="m", name="keys"), "planner": "p"},
            r"policy name 'keys' of agent 'drafter_0': .* no attribute of nn\.ModuleDict .* Policy\(name=\.\.\.\)",
        ),
        ({"drafter": "d", "planner": "a.b"}, r"adapter name 'a\.b' of agent 'planner_0': use letters, digits"),
        ({"drafter": "d", "planner": ""}, r"gives 'planner_0' an adapter without a name\. Name it"),
        ({"drafter": "d", "planner": "lora_x"}, r"adapter name 'lora_x' .* do not begin with 'lora'"),
        ({"drafter": "d", "planner": "ora"}, r"adapter name 'ora' .* take no part of 'lora_', nor .* Choose another"),
        (
            {"drafter": "d", "planner": "weight"},
            r"adapter name 'weight' .* nor a word of PEFT's parameter names \(weight",
        ),
        ({"drafter": "d", "planner": "modules_to_save"}, r"adapter name 'modules_to_save' .* nor a word of PEFT's"),
        ({"drafter": "d", "planner": "keys"}, r"adapter name 'keys' .* no attribute of nn\.ModuleDict as 'keys' is"),
    ],
    ids=[
        "layout",
        "nothing to copy",
        "typo",
        "unknown role",
        "left out",
        "conflict",
        "conflict of kinds",
        "adapters on a base that moves",
        "base",
        "reference",
        "bias",
        "method",
        "dot",
        "empty",
        "lora",
        "part of lora",
        "weight",
        "modules_to_save",
        "method of a dict",
    ],
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
    first, second = (parameters_of(model, policy) for policy in ROUTING.policies)
    assert (len(first), len(second)) == (28, 28)
    assert not {id(p) for p in first} & {id(p) for p in second}


@pytest.mark.parametrize("name", ["weight", "default", "A", "lora_A", "base_layer", "planner_2", "0"])
def test_an_adapter_owns_its_own_tensors_whatever_its_name(name: str, model: PeftModel) -> None:
    config = LoraConfig(r=2, target_modules="all-linear", modules_to_save=["input_layernorm"])
    model.add_adapter(name, config)
    model.set_requires_grad([*ROUTING.adapters, name], True)
    owned = [parameters_of(model, Policy(adapter=each)) for each in (*ROUTING.adapters, name)]
    assert [len(each) for each in owned] == [28, 28, 30]  # A and B of 14 linear layers; 2 norms
    assert len({id(p) for each in owned for p in each}) == len(trainable(model)) == 86


def test_a_forward_pass_goes_through_the_active_adapter_alone(model: PeftModel) -> None:
    for policy in ROUTING.policies:
        activate(model, policy.name, ROUTING.adapters)
        model.zero_grad()
        model(input_ids=torch.tensor([[5, 6, 7]])).logits.sum().backward()
        moved = [any(p.grad is not None for p in parameters_of(model, p_)) for p_ in ROUTING.policies]
        assert moved == [p_ == policy for p_ in ROUTING.policies]


def test_adapters_that_a_model_already_carries_are_kept(model: PeftModel) -> None:
    with torch.no_grad():
        for p in parameters_of(model, ROUTING.policies[0]):
            p.fill_(0.5)
    again = attach_adapters(model, ("plan", "new"), LoraConfig(r=2, target_modules="all-linear"))
    assert again is model
    assert set(model.peft_config) == {"plan", "planner", "new"}
    assert all(bool((p == 0.5).all()) for p in parameters_of(model, Policy(adapter="plan")))


IDS = torch.tensor([[5, 6, 7]])


def test_a_reference_is_a_frozen_copy_that_stays_when_the_adapter_moves(model: PeftModel) -> None:
    with torch.no_grad():
        for p in parameters_of(model, ROUTING.policies[0]):
            p.fill_(0.1)
    started = model(input_ids=IDS).logits
    name = keep_reference(model, "plan")
    activate(model, "plan", ROUTING.adapters)
    assert (name, trainable(model)) == (
        "ref-plan",
        {n for n, _ in model.named_parameters() if ".ref-" not in n and "lora_" in n},
    )
    with torch.no_grad():
        for p in parameters_of(model, ROUTING.policies[0]):
            p.fill_(0.2)
    assert not torch.equal(model(input_ids=IDS).logits, started)
    with acting_as(model, name, ROUTING.adapters):
        assert torch.equal(model(input_ids=IDS).logits, started)


@pytest.mark.parametrize("adapter", [None, "planner"])
def test_acting_as_another_leaves_everything_as_it_was(adapter: str | None, model: PeftModel, model_path: str) -> None:
    with torch.no_grad():
        for policy in ROUTING.policies:
            for p in parameters_of(model, policy):
                p.fill_(0.1 if policy.name == "plan" else 0.2)
    activate(model, "planner", ROUTING.adapters)
    expected = model(input_ids=IDS).logits
    if adapter is None:
        expected = AutoModelForCausalLM.from_pretrained(model_path)(input_ids=IDS).logits
    activate(model, "plan", ROUTING.adapters)
    before, states = model(input_ids=IDS).logits, trainable(model)
    with acting_as(model, adapter, ROUTING.adapters):
        assert torch.equal(model(input_ids=IDS).logits, expected)
    assert torch.equal(model(input_ids=IDS).logits, before)
    assert trainable(model) == states
    assert not torch.equal(before, expected)


@pytest.mark.filterwarnings("ignore:Model has `tie_word_embeddings")
@pytest.mark.parametrize(
    ("name", "config", "message"),
    [
        ("q_proj", None, r"adapter name 'q_proj' is also that of a module of Qwen3ForCausalLM, .* Choose another"),
        ("x", LoraConfig(target_modules=["lm_head"]), r"an adapter is on lm_head, .* Remove 'lm_head'"),
    ],
    ids=["module", "head"],
)
def test_an_adapter_that_would_not_be_trained_is_refused(
    name: str, config: LoraConfig | None, message: str, model_path: str
) -> None:
    with pytest.raises(ValueError, match=message):
        attach_adapters(AutoModelForCausalLM.from_pretrained(model_path), [name], config)
