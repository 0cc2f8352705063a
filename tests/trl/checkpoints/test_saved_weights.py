"""What was saved first is read back: the tensors that are held, and adapters that name the base that they stand on."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from datasets import Dataset
from peft import LoraConfig, PeftModel
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM

from pettingllms_trl import MultiAgentGRPOTrainer
from pettingllms_trl.checkpoints.saved_weights import check_saved
from short_runs import settings
from third_party import Relay


def lora(init: Any = True, **options: Any) -> LoraConfig:
    targets = {"target_modules": ["q_proj", "v_proj"], **options}
    return LoraConfig(r=4, init_lora_weights=init, task_type="CAUSAL_LM", **targets)


def trainer(model: Any, path: Path, *, policies: Any = "lora", peft_config: Any = None, **options: Any) -> Any:
    args, rows = settings(path, **options), Dataset.from_dict({"seed": range(16)})
    return MultiAgentGRPOTrainer(model, Relay, args, rows, policies=policies, peft_config=peft_config)


@pytest.mark.parametrize("policies", ["shared", "lora", "full"])
def test_a_saved_tensor_that_is_not_the_one_held_is_an_error(policies: str, model_path: str, tmp_path: Path) -> None:
    made = trainer(model_path, tmp_path, policies=policies)
    made.save_model(str(tmp_path / "saved"))
    check_saved(made.team, tmp_path / "saved")
    path = next((tmp_path / "saved").rglob("*.safetensors"))
    tensors = load_file(path)
    name = sorted(tensors)[-1]
    tensors[name] = tensors[name] + 1e-3
    save_file(tensors, path, metadata={"format": "pt"})
    with pytest.raises(RuntimeError, match=r"was saved, and its tensor .* is not the one that is trained.* 1 tensors"):
        check_saved(made.team, tmp_path / "saved")


def test_adapters_that_name_another_base_than_the_one_held_warn_once(model_path: str, tmp_path: Path) -> None:
    model = AutoModelForCausalLM.from_pretrained(model_path)
    with torch.no_grad():
        model.model.layers[0].self_attn.q_proj.weight.mul_(1.01)
    made = trainer(model, tmp_path)
    with pytest.warns(UserWarning, match=r"the base in memory is not .* 1 tensors differ, such as .*q_proj\.weight"):
        made.save_model(str(tmp_path / "saved"))
    made.save_model(str(tmp_path / "saved"))


@pytest.mark.parametrize("policies", ["shared", {"opener": "one", "closer": "one"}])
def test_an_adapter_that_changes_its_base_comes_back_on_it(policies: Any, model_path: str, tmp_path: Path) -> None:
    made = trainer(model_path, tmp_path, policies=policies, peft_config=lora("olora"))
    ids, base = torch.arange(5, 25)[None], AutoModelForCausalLM.from_pretrained(model_path).eval()
    with torch.no_grad():
        torch.testing.assert_close(made.model.eval()(ids).logits, base(ids).logits, atol=1e-4, rtol=0)
    made.train()
    made.save_model(str(tmp_path / "saved"))
    folder = tmp_path / "saved" / ("" if policies == "shared" else "one")
    again = PeftModel.from_pretrained(AutoModelForCausalLM.from_pretrained(model_path), folder).eval()
    with torch.no_grad():
        torch.testing.assert_close(again(ids).logits, made.model.eval()(ids).logits, atol=1e-4, rtol=0)
