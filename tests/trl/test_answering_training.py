"""Training a tool and a reasoner: a step of the trainer on a math environment, its programs run in the sandbox."""

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


AGENTS = ("tool_0", "reasoner_0")


class Keeps(MultiAgentGRPOTrainer):
    """Keeps the episodes of the last rollout."""

    def _play(self, *args: Any, **kwargs: Any) -> list[Episode]:
        self.rollout = super()._play(*args, **kwargs)
        return self.rollout


@pytest.fixture
def roomy_path(model_path: str, tokenizer: PreTrainedTokenizerFast, tmp_path: Path) -> str:
    """The tiny random model with room for a prompt of math, which has a token for every byte."""
    torch.manual_seed(0)
    config = AutoConfig.from_pretrained(model_path, max_position_embeddings=8192)
    AutoModelForCausalLM.from_config(config).save_pretrained(tmp_path / "roomy")
    tokenizer.save_pretrained(tmp_path / "roomy")
    return str(tmp_path / "roomy")


def spell(ids: Sequence[int]) -> str:
    """A random model writes nothing readable; so a reply is one of these, by its first byte."""
    number = ids[0] % 2
    return (
        f"```python\nprint({number})\n```\n\\boxed{{{number}}}",
        "```python\n1 / 0\n```\n\\boxed{2}",
        "I do not know.",
    )[ids[0] % 3]


@pytest.mark.parametrize("workflow", ["tool_reasoner", "single"])
def test_a_step_is_taken_on_every_role_with_its_own_parts(workflow: str, roomy_path: str, tmp_path: Path) -> None:
    tools = {"tools": True} if workflow == "single" else {}
    args = MultiAgentGRPOConfig(
        str(tmp_path / "out"),
        per_device_train_batch_size=8,
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
        partial(pettingllms_envs.make, "math", workflow=workflow, num_turns=2, **tools),
        args,
        Dataset.from_dict({"seed": range(8)}),
        policies="lora",
        peft_config=LoraConfig(r=4, target_modules="all-linear", task_type="CAUSAL_LM"),
    )
    trainer.processing_class.batch_decode = lambda rows, **_: [spell(ids) for ids in rows]
    before = {name: p.detach().clone() for name, p in trainer.model.named_parameters() if "lora_B" in name}
    trainer.train()
    decisions = [decision for episode in trainer.rollout for decision in episode.decisions]
    agents = AGENTS if workflow == "tool_reasoner" else AGENTS[1:]
    assert {decision.agent for decision in decisions} == set(agents)
    for agent in agents:
        seen = set().union(*map(parts_of, (d for d in decisions if d.agent == agent)))
        assert seen == {
            "tool_0": {"correct", "runs", "format"},
            "reasoner_0": {"progress", "format"} | ({"correct"} if workflow == "tool_reasoner" else set()),
        }[agent] | (seen & {"success"})
        assert f"agent/{agent}/rewards/format" in trainer.state.log_history[0]
        mine = [name for name in before if f".{role_of(agent)}." in name]
        assert mine
        assert any(not torch.equal(before[name], dict(trainer.model.named_parameters())[name]) for name in mine)
    assert {tuple(episode.outcome) for episode in trainer.rollout} == {("success", "answered", "timeout")}


def parts_of(decision: Decision) -> set[str]:
    """The names of the parts that its candidates were paid."""
    return {part for candidate in decision.candidates for part in candidate.parts}
