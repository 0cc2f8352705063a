"""Training in environments as their contributors write them, for three steps each."""

from __future__ import annotations

import importlib
from functools import partial
from pathlib import Path

import pytest
import torch
from datasets import Dataset

from pettingllms_trl import MultiAgentGRPOTrainer
from short_runs import adapter, settings


SLOW = ("council", "debate", "sql", "reach", "hosted")


@pytest.mark.parametrize("name", ["lights_out", *(pytest.param(each, marks=pytest.mark.slow) for each in SLOW)])
def test_a_team_trains_for_three_steps(name: str, roomy_path: str, tmp_path: Path) -> None:
    if name == "reach":
        pytest.importorskip("mujoco", reason="reach_v0 needs mujoco: pip install mujoco")
    make = partial(importlib.import_module(f"{name}_v0").env, num_turns=1)
    trainer = MultiAgentGRPOTrainer(
        roomy_path,
        make,
        settings(tmp_path / "out", max_steps=3, num_generations=2, per_device_train_batch_size=2, seed=7),
        Dataset.from_dict({"seed": range(6)}),
        policies="lora",
        peft_config=adapter(),
        credit={"at_grpo": {"value": "return_to_go"}},  # some roles are paid when others have acted
    )
    # A random model writes nothing readable, so a reply is one of these by its first byte.
    env = make()
    replies = [env.action_space(env.possible_agents[0]).sample() for _ in range(20)]
    trainer.processing_class.batch_decode = lambda rows, **_: [replies[ids[0] % len(replies)] for ids in rows]
    before = {name: p.detach().clone() for name, p in trainer.model.named_parameters() if "lora_B" in name}
    trainer.train()
    assert trainer.state.global_step == 3
    after = dict(trainer.model.named_parameters())
    assert any(not torch.equal(before[name], after[name]) for name in before)


@pytest.mark.slow
def test_images_are_not_supported_yet_and_the_trainer_says_so_when_it_is_created(
    model_path: str, tmp_path: Path
) -> None:
    env = importlib.import_module("pixel_path_v0").env
    with pytest.raises(ValueError, match=r"agent 'planner_0' observes images, which are not supported yet"):
        MultiAgentGRPOTrainer(model_path, env, settings(tmp_path), Dataset.from_dict({"seed": range(4)}))
