"""Training a coder and a tester: a step of the trainer on a coding environment, its programs run in the sandbox."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from datasets import Dataset
from peft import LoraConfig
from transformers import AutoConfig, AutoModelForCausalLM, PreTrainedTokenizerFast

import pettingllms_envs
from pettingllms_trl import Decision, Episode, MultiAgentGRPOConfig, MultiAgentGRPOTrainer
from pettingllms_trl.records import role_of


AGENTS = ("coder_0", "tester_0")


class Keeps(MultiAgentGRPOTrainer):
    """Keeps the episodes of the last rollout."""

    def _play(self, *args: Any, **kwargs: Any) -> list[Episode]:
        self.rollout = super()._play(*args, **kwargs)
        return self.rollout


@pytest.fixture
def roomy_path(model_path: str, tokenizer: PreTrainedTokenizerFast, tmp_path: Path) -> str:
    """The tiny random model with room for a problem's prompt, which has a token for every byte."""
    torch.manual_seed(0)
    config = AutoConfig.from_pretrained(model_path, max_position_embeddings=16384)
    AutoModelForCausalLM.from_config(config).save_pretrained(tmp_path / "roomy")
    tokenizer.save_pretrained(tmp_path / "roomy")
    return str(tmp_path / "roomy")


def spell(ids: Sequence[int]) -> str:
    """A random model writes nothing readable; so a reply is one of these, by its first byte. Roles can read two."""
    number = ids[0] % 2
    case = f"```input\n{number}\n```\n```output\n{number}\n```"
    return (f"```python\nprint({number})\n```\n{case}", f"```python\n1 / 0\n```\n{case}", "I do not know.")[ids[0] % 3]


@pytest.mark.parametrize(
    "settings",
    [{}, {"workflow": "single", "tools": True}, {"workflow": "self_refine"}],
    ids=["team", "tools", "refine"],
)
def test_a_step_is_taken_on_every_role_with_its_own_parts(
    settings: dict[str, Any], roomy_path: str, tmp_path: Path
) -> None:
    args = MultiAgentGRPOConfig(
        str(tmp_path / "out"),
        per_device_train_batch_size=4,
        num_generations=4,
        max_completion_length=8,
        max_steps=1,
        learning_rate=1e-2,
        logging_steps=1,
        check_groups=True,
        use_cpu=True,
        bf16=False,
        report_to="none",
        save_strategy="no",
        disable_tqdm=True,
        seed=7,
    )
    trainer = Keeps(
        roomy_path,
        partial(pettingllms_envs.make, "apps", num_turns=2, train_tests=4, **settings),
        args,
        Dataset.from_dict({"seed": range(4)}),
        policies="lora",
        peft_config=LoraConfig(r=4, target_modules="all-linear", task_type="CAUSAL_LM"),
    )
    trainer.processing_class.batch_decode = lambda rows, **_: [spell(ids) for ids in rows]
    before = {name: p.detach().clone() for name, p in trainer.model.named_parameters() if "lora_B" in name}
    trainer.train()
    decisions = [decision for episode in trainer.rollout for decision in episode.decisions]
    agents = AGENTS[:1] if settings else AGENTS
    assert {decision.agent for decision in decisions} == set(agents)
    for agent in agents:
        seen = set().union(*map(parts_of, (d for d in decisions if d.agent == agent)))
        expected = {"coder_0": {"progress", "tests", "format"}, "tester_0": {"valid", "telling", "format"}}[agent]
        assert seen - {"success"} == expected
        assert f"agent/{agent}/rewards/format" in trainer.state.log_history[0]
        mine = [name for name in before if f".{role_of(agent)}." in name]
        assert mine
        assert any(not torch.equal(before[name], dict(trainer.model.named_parameters())[name]) for name in mine)
    assert all(episode.outcome["num_tests"] == 4 for episode in trainer.rollout)


def parts_of(decision: Decision) -> set[str]:
    """The names of the parts that its candidates were paid."""
    return {part for candidate in decision.candidates for part in candidate.parts}
