"""Training a tool and a reasoner, or a coder and a tester: a step on each, what they write run in the sandbox."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from datasets import Dataset

import pettingllms_envs
from pettingllms_trl import Decision, MultiAgentGRPOTrainer
from pettingllms_trl.records import role_of
from short_runs import KeepsRollouts, adapter, settings


def answer(ids: Sequence[int]) -> str:
    """A random model writes nothing readable; so a reply is one of these, by its first byte. Roles can read two."""
    number = ids[0] % 2
    return (
        f"```python\nprint({number})\n```\n\\boxed{{{number}}}",
        "```python\n1 / 0\n```\n\\boxed{2}",
        "I do not know.",
    )[ids[0] % 3]


def program(ids: Sequence[int]) -> str:
    """As `answer`, of a coder and a tester."""
    number = ids[0] % 2
    case = f"```input\n{number}\n```\n```output\n{number}\n```"
    return (f"```python\nprint({number})\n```\n{case}", f"```python\n1 / 0\n```\n{case}", "I do not know.")[ids[0] % 3]


@dataclass(frozen=True)
class Played:
    """A way to play a task: the replies, the parts that agents are paid besides success, what an outcome tells."""

    task: str
    reply: Callable[[Sequence[int]], str]
    parts: Mapping[str, set[str]]
    told: Callable[[Mapping[str, Any]], bool]
    options: Mapping[str, Any] = field(default_factory=dict)
    num_rows: int = 2


CODER, TESTER = {"progress", "tests", "format"}, {"valid", "telling", "format"}
CODING = partial(Played, "apps", program, told=lambda outcome: outcome["num_tests"] == 4, num_rows=1)
MATH = partial(Played, "math", answer, told=lambda outcome: tuple(outcome) == ("success", "answered", "timeout"))
WAYS = {
    "math, team": MATH(
        {"tool_0": {"correct", "runs", "format"}, "reasoner_0": {"progress", "correct", "format"}},
    ),
    "math, tools": MATH({"reasoner_0": {"progress", "format"}}, options={"workflow": "single", "tools": True}),
    "coding, team": CODING({"coder_0": CODER, "tester_0": TESTER}, options={"train_tests": 4}),
    "coding, tools": CODING({"coder_0": CODER}, options={"train_tests": 4, "workflow": "single", "tools": True}),
    "coding, refine": CODING({"coder_0": CODER}, options={"train_tests": 4, "workflow": "self_refine"}),
}


class Keeps(KeepsRollouts, MultiAgentGRPOTrainer):
    pass


@pytest.mark.parametrize(
    "way",
    [
        pytest.param(way, id=name, marks=() if name == "coding, team" else pytest.mark.slow)
        for name, way in WAYS.items()
    ],
)
def test_a_step_is_taken_on_every_role_with_its_own_parts(way: Played, roomy_path: str, tmp_path: Path) -> None:
    trainer = Keeps(
        roomy_path,
        partial(pettingllms_envs.make, way.task, num_turns=2, **way.options),
        settings(tmp_path / "out", per_device_train_batch_size=4 * way.num_rows, audit="stop", seed=7),
        Dataset.from_dict({"seed": range(4 * way.num_rows)}),
        policies="lora",
        peft_config=adapter(),
    )
    trainer.processing_class.batch_decode = lambda rows, **_: [way.reply(ids) for ids in rows]
    before = {name: p.detach().clone() for name, p in trainer.model.named_parameters() if "lora_B" in name}
    trainer.train()
    episodes = trainer.rollouts[-1]
    decisions = [decision for episode in episodes for decision in episode.decisions]
    assert {decision.agent for decision in decisions} == set(way.parts)
    for agent, parts in way.parts.items():
        seen = set().union(*map(parts_of, (d for d in decisions if d.agent == agent)))
        assert seen - {"success"} == parts
        assert f"agent/{agent}/rewards/format" in trainer.state.log_history[0]
        mine = [name for name in before if f".{role_of(agent)}." in name]
        assert mine
        assert any(not torch.equal(before[name], dict(trainer.model.named_parameters())[name]) for name in mine)
    assert all(way.told(episode.outcome) for episode in episodes)


def parts_of(decision: Decision) -> set[str]:
    """The names of the parts that its candidates were paid."""
    return {part for candidate in decision.candidates for part in candidate.parts}
