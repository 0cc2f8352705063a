"""Walks through a model's modules: what they find is kept for a step, so that a pass costs none."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from datasets import Dataset
from peft import LoraConfig, PeftModel
from peft.tuners.tuners_utils import BaseTunerLayer
from peft.utils.other import AuxiliaryTrainingWrapper
from torch import nn
from transformers import AutoModelForCausalLM

import twins
from pettingllms_trl import MultiAgentGRPOConfig, MultiAgentGRPOTrainer
from pettingllms_trl.policies import adapters
from pettingllms_trl.policies.adapters import ModuleCache, Switch, activate, attach_adapters, modules_of, training
from third_party import Relay


# ---- What is kept ---------------------------------------------------------------------------------------------------


def test_a_model_is_walked_through_once_until_what_was_found_is_forgotten() -> None:
    walks, walked = ModuleCache(), list[nn.Module]()

    def number(model: nn.Module) -> int:
        walked.append(model)
        return len(modules_of(model))

    one, other = nn.Sequential(nn.Linear(1, 1)), nn.Linear(1, 1)
    assert [walks.of(model, number) for model in (one, other, one)] == [2, 1, 2]
    assert walked == [one, other]
    assert (walks.of(one, type), len(walked)) == (nn.Sequential, 2)
    one.append(nn.Linear(1, 1))
    assert walks.of(one, number) == 2
    walks.invalidate()
    assert walks.of(one, number) == 3


class Counting(nn.Module):
    """Counts how often it is put into a mode."""

    num = 0

    def train(self, mode: bool = True) -> Counting:
        self.num += 1
        return super().train(mode)


def test_a_model_in_training_mode_is_not_put_into_it_again() -> None:
    part = Counting()
    model = nn.Sequential(part).eval()
    assert part.num == 1
    with training(model, modules_of(model)):
        assert (model.training, part.training, part.num) == (True, True, 2)
        assert model.train() is model
        assert part.num == 2
        model.eval()
        assert (model.training, part.training, part.num) == (False, False, 3)
        model.train()
        assert (part.training, part.num) == (True, 4)
        part.eval()  # the model itself is not
        assert (part.training, part.num) == (False, 5)
        model.train()
        assert (part.training, part.num) == (True, 6)
    model.train()
    assert part.num == 7


@pytest.mark.parametrize("own", [False, True])
def test_afterwards_a_model_has_the_train_that_it_had(own: bool) -> None:
    model = nn.Linear(1, 1)
    if own:
        model.train = lambda mode=True: model  # type: ignore[method-assign]
    before = dict(vars(model))
    with pytest.raises(KeyError), training(model, modules_of(model)):
        raise KeyError
    assert vars(model).get("train") is before.get("train")
    assert ("train" in vars(model)) is own


# ---- Adapters -------------------------------------------------------------------------------------------------------

NAMES = ("plan", "planner", "partner")
TRAINED = NAMES[:2]


def carrier(model_path: str, **options: Any) -> PeftModel:
    config = LoraConfig(r=2, target_modules="all-linear", **options)
    return attach_adapters(AutoModelForCausalLM.from_pretrained(model_path), NAMES, config, trained=TRAINED)


def state(model: PeftModel) -> tuple[Any, ...]:
    """All that PEFT's own `set_adapter` and `set_requires_grad` decide."""
    active = [m.active_adapters for m in model.modules() if isinstance(m, BaseTunerLayer)]
    wrapped = [m._active_adapter for m in model.modules() if isinstance(m, AuxiliaryTrainingWrapper)]
    gradients = [(name, p.requires_grad) for name, p in model.named_parameters()]
    return model.active_adapters, model.base_model.active_adapters, active, wrapped, gradients


def refuse(*_: Any) -> None:
    raise AssertionError("asked PEFT to go through all modules")


@pytest.mark.parametrize("options", [{}, {"modules_to_save": ["norm"]}], ids=["plain", "modules_to_save"])
def test_switching_leaves_a_model_as_peft_does(options: dict[str, Any], model_path: str) -> None:
    one, other = carrier(model_path, **options), carrier(model_path, **options)
    switch = Switch(one, TRAINED)
    states = []
    for name in (*NAMES, *reversed(NAMES)):
        switch.to(name)
        activate(other, name, TRAINED)
        assert state(one) == state(other)
        states.append(state(one))
    assert states[0] != states[1] != states[2]


def test_only_the_first_switch_goes_through_all_modules(model_path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    model = carrier(model_path)
    switch = Switch(model, TRAINED)
    switch.to("plan")
    monkeypatch.setattr(adapters, "activate", refuse)
    for name in NAMES:
        switch.to(name)
        assert model.active_adapters == [name]
    with pytest.raises(AssertionError, match="asked PEFT"):
        Switch(model, TRAINED).to("plan")


def freeze(model: PeftModel) -> None:
    model.set_requires_grad("planner", False)


def thaw(model: PeftModel) -> None:
    model.set_requires_grad("partner", True)


def play_without(model: PeftModel) -> None:
    with model.disable_adapter():
        pass


def merge(model: PeftModel) -> None:
    model.merge_adapter(["plan"])


@pytest.mark.filterwarnings("ignore:Adapter cannot be set when the model is merged")
@pytest.mark.parametrize("change", [freeze, thaw, play_without, merge])
def test_a_switch_mends_what_was_changed_in_between(change: Callable[[PeftModel], None], model_path: str) -> None:
    model = carrier(model_path)
    switch = Switch(model, TRAINED)
    switch.to("planner")
    expected, scores = state(model), model(input_ids=torch.tensor([[5, 6, 7]])).logits
    switch.to("plan")
    change(model)
    switch.to("planner")
    assert state(model) == expected
    assert torch.allclose(model(input_ids=torch.tensor([[5, 6, 7]])).logits, scores, atol=1e-6)
    assert not any(m.merged_adapters for m in model.modules() if isinstance(m, BaseTunerLayer))


# ---- A step ---------------------------------------------------------------------------------------------------------


@pytest.fixture
def walks(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """How often whole models are walked through, by what asks for it."""
    found: Counter[str] = Counter()

    def counted(name: str) -> None:
        inner = getattr(nn.Module, name)

        def walk(self: nn.Module, *args: Any, **kwargs: Any) -> Any:
            if isinstance(self, PeftModel):
                found[name] += 1
            return inner(self, *args, **kwargs)

        monkeypatch.setattr(nn.Module, name, walk)

    for name in ("named_modules", "train"):
        counted(name)
    return found


@pytest.mark.parametrize("shared_prefix", [True, pytest.param(False, marks=pytest.mark.slow)])
def test_more_passes_need_no_more_walks(
    shared_prefix: bool, model_path: str, tmp_path: Path, walks: Counter[str]
) -> None:
    counts = []
    for most in (10_000, 60):
        options = {"max_tokens_per_microbatch": most, "shared_prefix": shared_prefix, "max_steps": 1, "bf16": False}
        trainer = MultiAgentGRPOTrainer(
            model_path,
            Relay,
            MultiAgentGRPOConfig(**twins.arguments(tmp_path, **options)),
            Dataset.from_dict({"seed": twins.SEEDS}),
            policies="lora",
        )
        passes = list[nn.Module]()
        trainer.model.register_forward_hook(lambda *given, passes=passes: passes.append(given[0]))
        walks.clear()
        trainer.train()
        counts.append((len(passes), dict(walks)))
    (few, expected), (many, found) = counts
    assert many > few + 10
    assert found == expected
