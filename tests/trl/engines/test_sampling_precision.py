"""Replies are sampled in the precision in which their log-probabilities are computed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from trl import GRPOTrainer

from pettingllms_trl import MultiAgentGRPOTrainer
from short_runs import adapter, settings
from third_party import OneShot, Relay


@pytest.mark.parametrize(
    ("env", "policies", "is_cast"),
    [(Relay, "lora", True), (OneShot, "lora", False), (Relay, "full", True), (OneShot, "full", True)],
)
def test_models_in_another_are_sampled_under_autocast_and_a_single_adapter_as_by_trl(
    env: Any, policies: str, is_cast: bool, model_path: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found: set[bool] = set()

    def sampled(trainer: Any, prompt_ids: Any, *rest: Any, **more: Any) -> Any:
        found.add(torch.is_autocast_enabled("cpu"))
        return [[5, trainer.eos_token_ids[0]] for _ in prompt_ids], None

    monkeypatch.setattr(GRPOTrainer, "_generate_single_turn", sampled)
    args = settings(tmp_path, bf16=True)
    config = adapter() if policies == "lora" else None
    MultiAgentGRPOTrainer(model_path, env, args, policies=policies, peft_config=config).play([{"seed": 1}])
    assert found == {is_cast}
