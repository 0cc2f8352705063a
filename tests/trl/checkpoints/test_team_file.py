"""What `save_model` says of a team for programs, and `pettingllms bench --team`, which plays it."""

from __future__ import annotations

import importlib.metadata
import json
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from datasets import Dataset

from pettingllms_envs import cli, plan_path_v0
from pettingllms_envs.episodes import files
from pettingllms_envs.evaluation import agent_pools
from pettingllms_trl import MultiAgentGRPOTrainer, Policy
from pettingllms_trl.checkpoints.publishing import sampling_of, team_facts
from pettingllms_trl.policies.routing import route
from pettingllms_trl.role_sampling import parse
from short_runs import adapter, settings


PLAN_PATH = partial(plan_path_v0.env, size=3, num_turns=1)
SEEDS = Dataset.from_dict({"seed": range(8)})
AS_TRAINED = {"temperature": 1.0, "top_p": 1.0, "top_k": 0, "max_tokens": 8}


def saved(path: Path, model: Any, policies: Any, *, peft_config: Any = None, **options: Any) -> MultiAgentGRPOTrainer:
    """A trainer that has saved its team, with weights that play otherwise than the model they began as."""
    trainer = MultiAgentGRPOTrainer(
        model=model,
        env=PLAN_PATH,
        args=settings(path, **options),
        train_dataset=SEEDS,
        policies=policies,
        peft_config=peft_config,
    )
    torch.manual_seed(5)
    with torch.no_grad():
        for policy in trainer.routing.trained:
            for parameter in trainer.team.parameters_of(policy):
                parameter.add_(3 * torch.randn_like(parameter))
    trainer.save_model()
    return trainer


@pytest.fixture
def plug_in(monkeypatch: pytest.MonkeyPatch) -> None:
    """Agents of transformers, as an installed package would declare them."""
    point = importlib.metadata.EntryPoint(
        "transformers", "pettingllms_trl.cli.transformers_agents:open_transformers", agent_pools.GROUP
    )
    monkeypatch.setattr(agent_pools, "_plug_ins", lambda: {"transformers": point})


def bench(output: Path, *arguments: str) -> list[dict[str, Any]]:
    """The rows of `pettingllms bench` on the game that the team was trained on."""
    game = ["--set", "size=3", "--set", "num_turns=1", "--limit", "3", "--concurrency", "1"]
    assert cli.main(["bench", "plan_path", *game, "--output", str(output), *arguments]) == 0
    return files.read(output)


def replies(rows: list[dict[str, Any]], agent: str) -> list[str]:
    return [step["reply"] for row in rows for step in row["steps"] if step["agent"] == agent]


@pytest.mark.usefixtures("plug_in")
def test_a_team_of_adapters_plays_by_its_folder_as_by_its_parts(model_path: str, tmp_path: Path) -> None:
    team = tmp_path / "team"
    # At 1 the replies of a random model this small are nearly all chance, whatever its adapter.
    saved(team, model_path, "lora", peft_config=adapter(), temperature=0.02)
    rows = bench(tmp_path / "team_run", "--team", str(team))
    parts = [f"{role}=transformers:{model_path},adapter={team / role}" for role in ("drafter", "planner")]
    # The folder also says how replies were sampled; a model's own limit is 4,096 tokens.
    sampled = ["--temperature", "0.02", "--top-p", "1", "--top-k", "0", "--max-tokens", "8"]
    by_parts = bench(tmp_path / "parts", "--agents", *parts, *sampled)
    for agent in ("drafter_0", "planner_0"):
        assert replies(rows, agent) == replies(by_parts, agent)
        assert {step["model"] for row in rows for step in row["steps"] if step["agent"] == agent} == {
            f"{model_path} + {team / agent.removesuffix('_0')}"
        }
    base = bench(tmp_path / "base", "--agents", f"transformers:{model_path}", *sampled)
    assert replies(base, "drafter_0") != replies(rows, "drafter_0")
    identity = files.read_header(tmp_path / "team_run")["config"]["agents"]["planner_0"]
    assert {name: identity[name] for name in ("team", "adapter", *AS_TRAINED)} == {
        "team": str(team),
        "adapter": str(team / "planner"),
        **AS_TRAINED,
        "temperature": 0.02,
    }
    # One role replaced: the other replies as before, to the same prompt.
    mixed = bench(tmp_path / "mixed", "--team", str(team), "--agents", "planner=oracle")
    assert replies(mixed, "drafter_0") == replies(rows, "drafter_0")
    assert [row["success"] for row in mixed] == [True, True, True]


@pytest.mark.slow
@pytest.mark.usefixtures("plug_in")
@pytest.mark.parametrize("layout", ["shared", "shared adapter", "full"])
def test_a_team_of_whole_models_plays_by_its_folder(layout: str, model_path: str, tmp_path: Path) -> None:
    team = tmp_path / "team"
    saved(team, model_path, layout.split()[0], peft_config=adapter() if "adapter" in layout else None)
    rows = bench(tmp_path / "run", "--team", str(team))
    own = {
        "shared": dict.fromkeys(("drafter", "planner"), str(team)),
        "shared adapter": dict.fromkeys(("drafter", "planner"), f"{model_path} + {team}"),
        "full": {"drafter": str(team / "drafter"), "planner": str(team / "planner")},
    }[layout]
    assert {step["agent"]: step["model"] for row in rows for step in row["steps"]} == {
        f"{role}_0": model for role, model in own.items()
    }


def test_the_file_says_who_plays_what_on_which_base_and_how_it_was_sampled(model_path: str, tmp_path: Path) -> None:
    policies = {"drafter": "sketch", "planner": Policy(trainable=False)}
    sampling = {"planner": {"temperature": 0.5, "stop": ["</plan>"]}}
    off = {"enable_thinking": False}
    saved(
        tmp_path, model_path, policies, peft_config=adapter(), role_sampling=sampling, chat_template_kwargs=off
    )  # and no other
    extra = {"extra": {"chat_template_kwargs": off}}
    assert json.loads((tmp_path / "team.json").read_text()) == {
        "format": 1,
        "environment": "plan_path_v0",
        "settings": {
            "plan_path_v0": [
                {"workflow": "draft_plan", "num_turns": 1, "strict_format": False, "alpha": 1.0, "size": 3}
            ]
        },
        "step": 0,
        "agents": {
            "drafter_0": {"policy": "sketch", "history": "none", "sampling": {**AS_TRAINED, **extra}},
            "planner_0": {
                "policy": "base",
                "history": "none",
                "sampling": {**AS_TRAINED, "temperature": 0.5, "stop": ["</plan>"], **extra},
            },
        },
        "policies": {
            "sketch": {"kind": "adapter", "folder": "sketch", "base": model_path, "revision": None},
            "base": {"kind": "model", "folder": None, "base": model_path, "revision": None},
        },
    }


def test_the_file_has_the_sampling_of_evaluations_where_it_is_given(model_path: str, tmp_path: Path) -> None:
    saved(
        tmp_path,
        model_path,
        "shared",
        role_sampling={"planner": {"max_completion_length": 5}},
        role_sampling_eval={"planner": {"temperature": 0.6, "enable_thinking": True}},
    )
    agents = json.loads((tmp_path / "team.json").read_text())["agents"]
    assert agents["drafter_0"]["sampling"] == AS_TRAINED
    assert agents["planner_0"]["sampling"] == {
        **AS_TRAINED,
        "max_tokens": 5,
        "temperature": 0.6,
        "extra": {"chat_template_kwargs": {"enable_thinking": True}},
    }


@pytest.mark.slow
def test_a_checkpoint_has_the_file_and_counts_it_among_its_own(model_path: str, tmp_path: Path) -> None:
    trainer = saved(tmp_path, model_path, "lora", peft_config=adapter(), save_strategy="steps", save_steps=1)
    trainer.train()
    file = tmp_path / "checkpoint-1" / "team.json"
    assert json.loads(file.read_text())["step"] == 1
    assert "team.json" in json.loads((file.parent / "manifest.json").read_text())["files"]


def test_partners_that_are_not_saved_have_no_folder() -> None:
    policies = {
        "a": Policy(model="you/llama"),
        "b": Policy(adapter="coder", trainable=False),
        "c": Policy(api=str),
        "d": Policy(model="you/judge", trainable=False),
    }
    bases = {"a": ("you/llama", "c0"), "coder": ("you/qwen", "c1"), "d": ("you/judge", None)}
    facts = team_facts(
        environment="game", step=1, routing=route(policies, list("abcd")), bases=bases, sampling={},
        histories={"a": "conversation"},
    )  # fmt: skip
    assert facts["policies"] == {
        "a": {"kind": "model", "folder": "a", "base": None, "revision": None},
        "coder": {"kind": "adapter", "folder": None, "base": "you/qwen", "revision": "c1"},
        "c": {"kind": "api", "folder": None, "base": None, "revision": None},
        "d": {"kind": "model", "folder": None, "base": "you/judge", "revision": None},
    }
    assert [facts["agents"][agent]["history"] for agent in "ab"] == ["conversation", "none"]


def test_what_differs_by_role_comes_before_generation_kwargs_and_those_before_the_rest(tmp_path: Path) -> None:
    args = settings(tmp_path, min_p=0.1, repetition_penalty=1.2, generation_kwargs={"top_k": 5, "num_beams": 1})
    override = parse({"a": {"max_completion_length": 3, "enable_thinking": True}})["a"]
    template = {"enable_thinking": False, "date": "today"}
    assert sampling_of(args, override, template) == {
        **AS_TRAINED,
        "top_k": 5,
        "max_tokens": 3,
        "min_p": 0.1,
        "repetition_penalty": 1.2,
        "extra": {"chat_template_kwargs": {"enable_thinking": True, "date": "today"}},
    }
