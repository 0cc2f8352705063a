"""Thirty settings of PEFT: a team starts at its base and comes back from its files, or raises ValueError."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from datasets import Dataset
from peft import HRAConfig, IA3Config, LoHaConfig, LoraConfig, OFTConfig, PeftModel, VeraConfig
from transformers import AutoModelForCausalLM

from pettingllms_trl import MultiAgentGRPOTrainer, Policy
from short_runs import settings
from third_party import Relay


FROZEN_PARTNER = {"opener": Policy(adapter="first"), "closer": Policy(trainable=False)}


def lora(init: Any = True, **options: Any) -> LoraConfig:
    targets = {"target_modules": ["q_proj", "v_proj"], **options}
    return LoraConfig(r=4, init_lora_weights=init, task_type="CAUSAL_LM", **targets)


def trainer(model: Any, path: Path, *, policies: Any = "lora", peft_config: Any = None, **options: Any) -> Any:
    args, rows = settings(path, **options), Dataset.from_dict({"seed": range(16)})
    return MultiAgentGRPOTrainer(model, Relay, args, rows, policies=policies, peft_config=peft_config)


def peft_settings() -> dict[str, Any]:
    """Thirty configurations of adapters: of LoRA, and of other methods."""
    inits = {
        f"init {init}": {"init": init} for init in (True, False, "gaussian", "orthogonal", "pissa", "olora", "mica")
    }
    loras: dict[str, dict[str, Any]] = {
        **inits,
        "pissa in 4 iterations": {"init": "pissa_niter_4"},
        "dora": {"use_dora": True},
        "rslora": {"use_rslora": True},
        "bias": {"bias": "lora_only"},
        "lora bias": {"lora_bias": True},
        "dropout": {"lora_dropout": 0.5},
        "all linear": {"target_modules": "all-linear"},
        "one layer": {"layers_to_transform": [1]},
        "ranks by name": {"rank_pattern": {"q_proj": 2}},
        "alphas by name": {"alpha_pattern": {"v_proj": 1}},
        "embeddings saved": {"modules_to_save": ["embed_tokens"]},
        "norms saved": {"modules_to_save": ["input_layernorm"]},
        "embeddings": {"target_modules": ["q_proj", "embed_tokens"]},
        "tokens": {"trainable_token_indices": [5, 6]},
        "dora on pissa": {"init": "pissa", "use_dora": True},
        "olora on all": {"init": "olora", "target_modules": "all-linear"},
    }
    of_others = {"target_modules": ["q_proj", "v_proj"], "task_type": "CAUSAL_LM"}
    return {
        **{name: lora(options.pop("init", True), **options) for name, options in loras.items()},
        "vera": VeraConfig(r=4, **of_others),
        "loha": LoHaConfig(r=4, **of_others),
        "loha at random": LoHaConfig(r=4, init_weights=False, **of_others),
        "oft": OFTConfig(oft_block_size=4, **of_others),
        "hra": HRAConfig(r=4, **of_others),
        "ia3": IA3Config(feedforward_modules=[], **of_others),
        "ia3 at random": IA3Config(feedforward_modules=[], init_ia3_weights=False, **of_others),
    }


def start_of(name: str, policies: Any, model_path: str, path: Path) -> str:
    """`"0"` where the team starts at its base, its KL divergence at 0 and what is saved comes back; else the error."""
    try:
        made = trainer(model_path, path, policies=policies, peft_config=peft_settings()[name], beta=0.1, max_steps=1)
    except (ValueError, NotImplementedError) as error:
        return f"refused: {error}"
    made.train()
    assert made.state.log_history[0]["kl"] == pytest.approx(0, abs=2e-5)
    made.save_model(str(path / "saved"))
    ids, base = torch.arange(5, 25)[None], AutoModelForCausalLM.from_pretrained(model_path).eval()
    for policy in made.routing.trained:
        again = PeftModel.from_pretrained(
            AutoModelForCausalLM.from_pretrained(model_path), path / "saved" / policy.name
        )
        made.activate(policy.name)
        with torch.no_grad():
            assert again.eval()(ids).logits == pytest.approx(made.model.eval()(ids).logits, abs=1e-4)
            with made.model.disable_adapter():
                assert made.model(ids).logits == pytest.approx(base(ids).logits, abs=1e-5)
    return "0"


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::UserWarning")  # PEFT's own, of unusual settings
@pytest.mark.parametrize("name", peft_settings())
@pytest.mark.parametrize(
    "policies", ["lora", {"opener": "one", "closer": "one"}, FROZEN_PARTNER], ids=["lora", "one", "frozen"]
)
def test_every_setting_of_peft_starts_at_0_and_comes_back_or_is_refused(
    name: str, policies: Any, model_path: str, tmp_path: Path
) -> None:
    found = start_of(name, policies, model_path, tmp_path)
    print(f"{name}: {found}")
    assert found == "0" or found.startswith("refused")
