"""The team that starts is the team that was asked for: the base, the reference and what is trained."""

from __future__ import annotations

from itertools import product
from pathlib import Path
from typing import Any

import pytest
import torch
from datasets import Dataset
from peft import LoraConfig, PeftConfig, PeftModel, get_peft_model, inject_adapter_in_model
from peft.tuners.lora import KasaConfig, LoftQConfig, LoraGAConfig
from peft.tuners.lora.config import CordaConfig
from transformers import AutoModelForCausalLM

from pettingllms_trl import MultiAgentGRPOTrainer, Policy
from pettingllms_trl.policies.adapters import changed_by, check_base_is_kept, check_optimized, several, unchanged
from pettingllms_trl.sft.warm_up import load_adapters
from pettingllms_trl.testing import byte_tokenizer, save_tiny_model
from pettingllms_trl.update.schedule import Alternate
from short_runs import adapter, settings
from third_party import OneShot, Relay


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> str:
    return save_tiny_model(tmp_path_factory.mktemp("model"), byte_tokenizer(), initializer_range=0.2)


def trainer(model: Any, folder: Path, policies: Any = "shared", **options: Any) -> MultiAgentGRPOTrainer:
    """Of one role with `"shared"`, else of two."""
    own = {name: options.pop(name) for name in ("peft_config", "optimizers", "schedule") if name in options}
    return MultiAgentGRPOTrainer(
        model,
        OneShot if policies == "shared" else Relay,
        settings(folder, **options),
        Dataset.from_dict({"seed": range(8)}),
        policies=policies,
        processing_class=byte_tokenizer(),
        **own,
    )


def carrying(path: str, *names: str, **options: Any) -> PeftModel:
    """The base with random adapters, as `PeftModel.from_pretrained` leaves them without `is_trainable=True`."""
    model = get_peft_model(
        AutoModelForCausalLM.from_pretrained(path), adapter(init_lora_weights=False, **options), adapter_name=names[0]
    )
    for name in names[1:]:
        model.add_adapter(name, adapter(init_lora_weights=False, **options))
    model.requires_grad_(False)
    return model


CHANGING: dict[str, PeftConfig] = {
    "PiSSA": adapter(init_lora_weights="pissa"),
    "PiSSA by subspace iteration": adapter(init_lora_weights="pissa_niter_4"),
    "OLoRA": adapter(init_lora_weights="olora"),
    "CorDA": adapter(init_lora_weights="corda", corda_config=CordaConfig()),
    "LoftQ": adapter(init_lora_weights="loftq", loftq_config=LoftQConfig()),
    "LoRA-GA": adapter(init_lora_weights="lora_ga", lora_ga_config=LoraGAConfig()),
    "KaSA": adapter(kasa_config=KasaConfig()),
    "replicated layers": adapter(layer_replication=[(0, 2), (0, 2)]),
    "biases of the base": adapter(bias="all"),
}


@pytest.mark.parametrize("config", CHANGING.values(), ids=CHANGING.keys())
def test_what_changes_a_base_is_known(config: LoraConfig) -> None:
    assert changed_by(config)
    check_base_is_kept({"one": config}, None)
    with pytest.raises(ValueError, match=r"'one' has .* and 'one', 'two' stand on one base"):
        check_base_is_kept({"one": config}, several(["one", "two"]))


@pytest.mark.parametrize(
    ("policies", "beta", "why"),
    [
        ("lora", 0.0, "stand on one base"),
        ({"opener": "first", "closer": Policy(trainable=False)}, 0.0, "frozen partner"),
        ({"opener": "first", "closer": "first"}, 0.1, "KL divergence"),
        ("shared", 0.1, "KL divergence"),
    ],
    ids=["several", "partner", "beta of one", "beta of the model"],
)
def test_what_changes_a_base_in_use_is_refused(policies: Any, beta: float, why: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=why):
        trainer("is not loaded", tmp_path, policies, peft_config=CHANGING["PiSSA"], beta=beta)


def test_one_adapter_alone_may_change_its_base(path: str, tmp_path: Path) -> None:
    own = trainer(path, tmp_path, peft_config=adapter(init_lora_weights="pissa"))
    row = torch.arange(5, 25)[None]
    base = AutoModelForCausalLM.from_pretrained(path)(row).logits
    torch.testing.assert_close(own.model.eval()(row).logits, base, atol=1e-3, rtol=0)


def test_a_given_model_with_such_adapters_is_refused(path: str, tmp_path: Path) -> None:
    model = get_peft_model(
        AutoModelForCausalLM.from_pretrained(path), adapter(init_lora_weights="olora"), adapter_name="opener"
    )
    with pytest.raises(ValueError, match="'opener' has init_lora_weights='olora'"):
        trainer(model, tmp_path, "lora")


def test_saved_adapters_of_which_one_changes_the_base_are_not_loaded_together(path: str, tmp_path: Path) -> None:
    for name, how in (("opener", True), ("closer", "pissa")):
        base = AutoModelForCausalLM.from_pretrained(path)
        get_peft_model(base, adapter(init_lora_weights=how), adapter_name=name).save_pretrained(str(tmp_path))
    agents = ["opener_0", "closer_0"]
    with pytest.raises(ValueError, match="'closer' has init_lora_weights='pissa'"):
        load_adapters("is not loaded", tmp_path, policies="lora", agents=agents)
    load_adapters(path, tmp_path, policies={"closer": "closer"}, agents=["closer_0"])


def test_a_tensor_that_changes_is_found_by_its_checksum(path: str) -> None:
    model = AutoModelForCausalLM.from_pretrained(path)
    with unchanged(model):
        get_peft_model(model, adapter())
    with pytest.raises(ValueError, match="has changed"), unchanged(model):
        model.base_model.norm.weight.data[3] += 1e-7
    model = AutoModelForCausalLM.from_pretrained(path)
    with pytest.raises(ValueError, match="has changed 'weight' of a Linear"), unchanged(model):
        get_peft_model(model, adapter(init_lora_weights="olora"))


def test_a_tensor_inside_another_has_a_checksum_wherever_it_begins() -> None:
    layer, whole = torch.nn.Linear(4, 2, bias=False), torch.zeros(9, dtype=torch.bfloat16)
    layer.weight = torch.nn.Parameter(whole[1:].view(2, 4))  # 16 bytes, 2 after the beginning
    with unchanged(layer):
        pass
    with pytest.raises(ValueError, match="has changed 'weight' of a Linear"), unchanged(layer):
        whole[8] = 1.0


@pytest.mark.parametrize(("names", "active"), [(("default",), 0), (("default", "second"), 1), (("mine",), 0)])
def test_the_active_adapter_is_trained_and_its_start_is_the_reference(
    names: tuple[str, ...], active: int, path: str, tmp_path: Path
) -> None:
    model = carrying(path, *names)
    model.set_adapter(names[active], inference_mode=True)
    own = trainer(model, tmp_path, beta=0.1, max_steps=2)
    before = {name: p.detach().clone() for name, p in own.model.named_parameters()}
    own.train()
    moved = {name for name, p in own.model.named_parameters() if not torch.equal(p, before[name])}
    assert {name.split(".")[-2] for name in moved} == {names[active]}
    assert len(moved) == 28  # 2 matrices of 7 modules in 2 layers
    kl = [row["kl"] for row in own.state.log_history if "kl" in row]
    assert kl[0] == pytest.approx(0.0, abs=1e-6)


@pytest.mark.parametrize(
    ("how", "policies"),
    [*product(["loaded", "injected", "in its folder"], ["lora", "shared", "full"]), ("mixed", "lora")],
)
def test_an_adapter_that_no_peft_model_carries_is_refused(how: str, policies: str, path: str, tmp_path: Path) -> None:
    carrying(path, "default").save_pretrained(str(tmp_path / "saved"))
    model: Any = AutoModelForCausalLM.from_pretrained(path)
    if how == "loaded":
        model.load_adapter(str(tmp_path / "saved"), is_trainable=True)
    elif how == "injected":
        model = inject_adapter_in_model(adapter(), model)
    elif how == "mixed":
        model = get_peft_model(model, adapter(), mixed=True)
    else:  # beside a whole model: transformers loads both
        model.save_pretrained(tmp_path / "saved")
        model = str(tmp_path / "saved")
    with pytest.raises(ValueError, match=r"an adapter of model\.load_adapter, .*Load it with PeftModel"):
        trainer(model, tmp_path, policies)


@pytest.mark.filterwarnings("ignore:You are trying to modify a model with PEFT for a second time")
@pytest.mark.parametrize("how", ["unload", "merge_and_unload", "delete_adapter"])
def test_a_model_from_which_adapters_were_taken_carries_none(how: str, path: str, tmp_path: Path) -> None:
    given = carrying(path, "default")
    if how == "delete_adapter":
        given.save_pretrained(str(tmp_path / "saved"))
        model = AutoModelForCausalLM.from_pretrained(path)
        model.load_adapter(str(tmp_path / "saved"))
        model.delete_adapter("default")
    else:
        model = getattr(given, how)()
    assert trainer(model, tmp_path, "lora")


@pytest.mark.parametrize("how", ["merged", "trained", "another vocabulary"])
def test_a_model_that_has_changed_since_it_was_loaded_is_no_start_of_a_divergence(
    how: str, path: str, tmp_path: Path
) -> None:
    model = carrying(path, "default").merge_and_unload() if how == "merged" else None
    model = model or AutoModelForCausalLM.from_pretrained(path)
    if how == "another vocabulary":
        model.resize_token_embeddings(model.config.vocab_size + 2)
    elif how == "trained":
        model.model.norm.weight.data *= 1.1
    with pytest.raises(ValueError, match=r"'base' does not start from its reference: .* give that folder"):
        trainer(model.requires_grad_(True), tmp_path, beta=0.1)
    model.save_pretrained(tmp_path / "folder")
    assert trainer(str(tmp_path / "folder"), tmp_path, beta=0.1)


def test_two_active_adapters_are_refused(path: str, tmp_path: Path) -> None:
    model = carrying(path, "first", "second")
    model.base_model.set_adapter(["first", "second"])
    with pytest.raises(ValueError, match="active adapters first, second"):
        trainer(model, tmp_path)


def test_a_merged_adapter_is_refused(path: str, tmp_path: Path) -> None:
    model = carrying(path, "opener", "closer")
    model.merge_adapter()
    with pytest.raises(ValueError, match="are merged into the base"):
        trainer(model, tmp_path, "lora")


def test_adapters_that_were_switched_off_are_on(path: str, tmp_path: Path) -> None:
    model = carrying(path, "default")
    row = torch.arange(5, 25)[None]
    logits = model(row).logits
    model.base_model.disable_adapter_layers()
    own = trainer(model, tmp_path)
    torch.testing.assert_close(own.model.eval()(row).logits, logits)


def test_a_model_of_which_nothing_requires_a_gradient_is_refused(path: str, tmp_path: Path) -> None:
    model = AutoModelForCausalLM.from_pretrained(path).requires_grad_(False)
    with pytest.raises(ValueError, match="no parameter of it requires a gradient"):
        trainer(model, tmp_path)


@pytest.mark.parametrize(
    ("policies", "beta"),
    [("lora", 0.0), ({"opener": "opener", "closer": Policy(trainable=False)}, 0.0), ("shared", 0.1)],
    ids=["several", "partner", "reference"],
)
def test_a_base_of_which_a_part_requires_a_gradient_is_refused_where_others_use_it(
    policies: Any, beta: float, path: str, tmp_path: Path
) -> None:
    model = carrying(path, *(("default",) if policies == "shared" else ("opener", "closer")))
    model.get_base_model().model.norm.weight.requires_grad_(True)
    with pytest.raises(ValueError, match=r"model\.norm\.weight has requires_grad=True; .* False of its base"):
        trainer(model, tmp_path, policies, beta=beta)
    model.requires_grad_(False)
    assert trainer(model, tmp_path, policies, beta=beta)


@pytest.mark.parametrize(
    ("policies", "frozen"),
    [
        ("lora", "lora_A.closer"),
        ("lora", "modules_to_save.closer"),
        ({"opener": "closer", "closer": "closer"}, "lora_A.closer"),
    ],
    ids=["several", "saved modules", "one"],
)
def test_an_adapter_of_which_a_part_is_frozen_is_refused_where_adapters_are_switched(
    policies: Any, frozen: str, path: str, tmp_path: Path
) -> None:
    model = carrying(path, "opener", "closer", modules_to_save=["norm"])
    for name, parameter in model.named_parameters():
        parameter.requires_grad_(frozen not in name and any(own in name for own in ("lora_", "modules_to_save")))
    with pytest.raises(ValueError, match=rf"{frozen}\.weight has requires_grad=False; .* all or none of an adapter"):
        trainer(model, tmp_path, policies)


@pytest.mark.parametrize("beta", [0.0, 0.1])
def test_what_is_frozen_of_the_one_adapter_stays_so_as_with_trl(beta: float, path: str, tmp_path: Path) -> None:
    model = carrying(path, "default")
    for name, parameter in model.named_parameters():
        parameter.requires_grad_("lora_B" in name)
    own = trainer(model, tmp_path, beta=beta)
    before = {name: p.detach().clone() for name, p in own.model.named_parameters()}
    own.train()
    moved = {name for name, p in own.model.named_parameters() if not torch.equal(p, before[name])}
    assert len(moved) == 14
    assert all("lora_B" in name for name in moved)


def test_a_loaded_adapter_is_trained_though_a_part_of_its_base_is_already(path: str, tmp_path: Path) -> None:
    model = carrying(path, "default")
    model.get_base_model().model.norm.weight.requires_grad_(True)
    assert len([p for p in trainer(model, tmp_path).model.parameters() if p.requires_grad]) == 29


@pytest.mark.parametrize("bias", ["all", "lora_only"])
def test_of_an_adapter_with_biases_there_is_no_second_as_a_reference(bias: str, path: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=rf"'default' has bias='{bias}', .* KL divergence .* a copy of it"):
        trainer(carrying(path, "default", bias=bias), tmp_path, beta=0.1)
    assert trainer(carrying(path, "default", bias=bias), tmp_path)


def test_random_adapters_are_no_start_of_a_divergence(path: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="does not start from its reference"):
        trainer(path, tmp_path, "lora", peft_config=adapter(init_lora_weights=False), beta=0.1)


def test_an_optimizer_without_the_adapters_is_refused(path: str, tmp_path: Path) -> None:
    base = AutoModelForCausalLM.from_pretrained(path)
    optimizer = torch.optim.AdamW(base.parameters())  # before there are any
    own = trainer(base, tmp_path, "lora", peft_config=adapter(), optimizers=(optimizer, None))
    with pytest.raises(ValueError, match="lacks 28 of the 28 parameters of the policy 'opener'"):
        check_optimized(own.routing.trained, own.team.parameters_of, optimizer)
    with pytest.raises(ValueError, match="lacks 28 of the 28 parameters"):
        own.train()


@pytest.mark.parametrize(
    ("policies", "schedule", "found"),
    [
        (
            {"opener": Policy(adapter="opener", learning_rate=0.5), "closer": "closer"},
            None,
            r"policy 'opener' has learning_rate=0\.5",
        ),
        ("lora", Alternate(("opener", "closer"), rest=0.1), "the schedule has factors"),
    ],
)
def test_an_optimizer_of_the_users_goes_with_no_other_rates(
    policies: Any, schedule: Any, found: str, tmp_path: Path
) -> None:
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))])
    with pytest.raises(ValueError, match=rf"optimizers has a SGD, .* but {found}; expected one of them"):
        trainer("no/model", tmp_path, policies, schedule=schedule, optimizers=(optimizer, None))


def test_a_team_with_saved_modules_is_loaded_as_it_was_and_a_modules_name_is_still_none_of_an_adapter(
    path: str, tmp_path: Path
) -> None:
    saved = {"modules_to_save": ["norm"]}
    carrying(path, "opener", "closer", **saved).save_pretrained(str(tmp_path))
    model = load_adapters(path, tmp_path, policies="lora", agents=["opener_0", "closer_0"])
    assert trainer(model, tmp_path, "lora").routing.adapters == ("opener", "closer")
    with pytest.raises(ValueError, match="adapter name 'mlp' is also that of a module"):
        trainer(carrying(path, "mlp", "closer", **saved), tmp_path, {"opener": "mlp", "closer": "closer"})


def test_an_adapter_that_is_given_is_not_left_idle_beside_new_ones(path: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"the adapter 'default', which no policy names, .*'opener', 'closer'"):
        trainer(carrying(path, "default"), tmp_path, "lora")
    with pytest.raises(ValueError, match=r"'opner', .*'opener' would be new"):
        trainer(carrying(path, "opner", "closer"), tmp_path, "lora")
    assert trainer(carrying(path, "opener", "closer", "spare"), tmp_path, "lora").routing.adapters
