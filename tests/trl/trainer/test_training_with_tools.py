"""Native tool calls are trained: a real template writes the tools, and what was sampled is what is trained on."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from datasets import Dataset
from trl import SFTConfig

import picture_plan_v0
from pettingllms_envs.episodes import files, schema
from pettingllms_trl import MultiAgentGRPOTrainer, Policy
from pettingllms_trl.policies.routing import route
from pettingllms_trl.sft.demonstrations import Demonstration, by_oracle
from pettingllms_trl.sft.warm_up import warm_up
from short_runs import KeepsBatches, KeepsRollouts, adapter, around_generation, keep_all_rows, settings
from tool_teams import CALL, FUNCTION, plan_path, save_model, tokenizer_of


SEEDS = Dataset.from_dict({"seed": range(8)})


class Team(KeepsRollouts, KeepsBatches, MultiAgentGRPOTrainer):
    """Keeps rollouts and batches."""


def team(model: str, env: Any, path: Path, **options: Any) -> Team:
    """A trainer of episodes side by side, since a call is paid later."""
    args = settings(path, sampling="parallel", num_generations=2, per_device_train_batch_size=2, log_rollouts=True)
    how = {"policies": "lora", **options}
    return Team(model, env, args, SEEDS, credit="grpo", peft_config=adapter(), **how)


@pytest.fixture(scope="module")
def qwen(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A tiny random model whose tokenizer has Qwen3's template."""
    return save_model(tmp_path_factory.mktemp("qwen"))


def calling(trainer: Any) -> None:
    """Let the first candidate of every prompt that offers the tool and shows no result call it."""
    tokenizer = trainer.processing_class
    call = tokenizer(f"{CALL}<|im_end|>")["input_ids"]

    def given(prompts: Any, sample: Any) -> Any:
        ids, logprobs, *rest = sample()
        ids, logprobs = list(ids), None if logprobs is None else list(logprobs)
        seen: set[tuple[int, ...]] = set()
        for i, prompt in enumerate(map(tuple, prompts)):
            text = tokenizer.decode(prompt)
            if "# Tools" in text and "<tool_response>" not in text and prompt not in seen:
                ids[i] = call
                if logprobs is not None:
                    logprobs[i] = [-1.0] * len(call)
            seen.add(prompt)
        return (ids, logprobs, *rest)

    around_generation(trainer, given)


def test_calls_are_trained_as_decisions_of_their_own_on_the_ids_that_were_sampled(qwen: str, tmp_path: Path) -> None:
    trainer = team(qwen, partial(plan_path, num_turns=1), tmp_path)
    keep_all_rows(trainer)
    calling(trainer)
    trainer.train()
    decisions = [d for episode in trainer.rollouts[0] for d in episode.decisions if d.prompt.tools]
    first = next(d for d in decisions if d.prompt.messages[-1]["role"] == "user")
    tokenizer = tokenizer_of("qwen3")
    assert first.candidates[0].completion.text == CALL
    assert tokenizer.decode(first.candidates[0].completion.ids) == f"{CALL}<|im_end|>"
    expected = tokenizer.apply_chat_template(
        list(first.prompt.messages), tools=[FUNCTION], add_generation_prompt=True, return_dict=False
    )
    assert list(first.prompt.ids) == expected
    trained = {
        tuple(ids[mask.bool()].tolist())
        for batch in trainer.batches
        for ids, mask in zip(batch["completion_ids"], batch["completion_mask"], strict=True)
    }
    assert first.candidates[0].completion.ids in trained
    rows = files.read(tmp_path / "rollouts")
    assert [schema.of_row(row) for row in rows] == [None] * len(rows)
    assert all(row["tools"] == [[FUNCTION]] for row in rows)


def test_a_template_that_drops_tools_raises_when_the_trainer_is_created(model_path: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="agent 'planner_0' observes tools, and its chat template does not write"):
        team(model_path, plan_path, tmp_path)


def test_a_function_without_tools_behind_an_api_raises_when_the_trainer_is_created(qwen: str, tmp_path: Path) -> None:
    policies = {"drafter": "drafter", "planner": Policy(api=lambda messages: "Moves: U")}
    with pytest.raises(ValueError, match="agent 'planner_0' observes tools, and the function behind its API takes"):
        team(qwen, plan_path, tmp_path, policies=policies)


def test_images_for_a_policy_that_reads_texts_raise_when_the_trainer_is_created(
    model_path: str, tmp_path: Path
) -> None:
    with pytest.raises(ValueError, match="agent 'drafter_0' of policy 'drafter' observes images, and its"):
        team(model_path, picture_plan_v0.env, tmp_path)


def test_demonstrations_with_tools_are_imitated(qwen: str, tmp_path: Path) -> None:
    env = plan_path()
    shown = list(by_oracle(env, range(1)))
    assert {len(d.prompt.tools) for d in shown if d.role == "planner"} == {1}
    call = {"id": "a", "type": "function", "function": {"name": "add", "arguments": {"numbers": "1 2"}}}
    planner = next(d for d in shown if d.role == "planner")
    longer = [
        *planner.prompt.messages,
        {"role": "assistant", "content": "", "tool_calls": [call]},
        {"role": "tool", "content": "3", "name": "add", "tool_call_id": "a"},
    ]
    shown.append(
        Demonstration(role="planner", prompt=replace(planner.prompt, messages=longer), reply=CALL, success=True)
    )
    routing = route("shared", env.possible_agents, model=qwen)
    args = SFTConfig(
        str(tmp_path), max_steps=1, max_length=None, report_to="none", use_cpu=True, bf16=False, disable_tqdm=True
    )
    (folder,) = warm_up(qwen, shown, routing, args).values()
    assert (folder / "config.json").is_file()
