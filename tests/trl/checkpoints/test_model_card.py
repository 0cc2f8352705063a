"""The card of a team says where each agent's adapter is and how to load it."""

from __future__ import annotations

from pathlib import Path

from huggingface_hub import ModelCard

from pettingllms_trl.checkpoints.model_card import Result, results_of, team_card
from pettingllms_trl.policies.routing import Policy, route


def card(base_model: str) -> ModelCard:
    return ModelCard(
        team_card(
            name="me/team",
            environment="plan_path_v0",
            routing=route("lora", ["drafter_0", "planner_0"]),
            sources={"drafter": base_model, "planner": base_model},
            tags=["trl", "at-grpo"],
        )
    )


def test_the_card_names_every_agents_adapter_and_loads_by_its_folder() -> None:
    text = card("Qwen/Qwen3-1.7B").text
    assert "| `drafter_0` | the LoRA adapter `drafter` | `drafter/` |" in text
    assert "| `planner_0` | the LoRA adapter `planner` | `planner/` |" in text
    assert 'PeftModel.from_pretrained(base, "me/team", subfolder="drafter")' in text
    assert 'from_pretrained("Qwen/Qwen3-1.7B")' in text


def test_the_cards_metadata_are_what_the_hub_reads() -> None:
    assert card("Qwen/Qwen3-1.7B").data.to_dict() == {
        "library_name": "peft",
        "base_model": "Qwen/Qwen3-1.7B",
        "tags": ["trl", "at-grpo"],
    }


def test_a_base_in_a_local_folder_is_not_named_as_if_it_were_on_the_hub(tmp_path: Path) -> None:
    assert "base_model" not in card(str(tmp_path)).data.to_dict()


def test_the_card_of_a_mixture_says_who_is_not_there_and_loads_one_of_each_kind() -> None:
    policies = {
        "a": Policy(model="you/llama"),
        "b": "coder",
        "c": Policy(trainable=False),
        "d": Policy(api=str),
        "e": Policy(model="you/judge", trainable=False),
    }
    sources = {"a": "you/llama", "coder": "you/qwen", "base": "you/qwen", "e": "you/judge"}
    routing = route(policies, list("abcde"))
    made = ModelCard(team_card(name="me/team", environment="game", routing=routing, sources=sources, tags=["trl"]))
    assert made.data.to_dict() == {
        "library_name": "transformers",
        "base_model": ["you/llama", "you/qwen"],
        "tags": ["trl"],
    }
    for row in (
        "| `a` | a full model of `you/llama` | `a/` |",
        "| `b` | the LoRA adapter `coder` | `coder/` |",
        "| `c` | the base model, not trained | not here |",
        "| `d` | a model behind an API | not here |",
        "| `e` | a full model of `you/judge`, not trained | not here |",
    ):
        assert row in made.text
    assert 'model = AutoModelForCausalLM.from_pretrained("me/team", subfolder="a")' in made.text
    assert 'base = AutoModelForCausalLM.from_pretrained("you/qwen")' in made.text
    assert 'model = PeftModel.from_pretrained(base, "me/team", subfolder="coder")' in made.text


def test_the_last_evaluation_of_each_data_set_is_shown_unless_instances_were_dropped() -> None:
    log = [
        {"step": 1, "eval_near_runtime": 1.0, "eval_outcome/success": 0.25},
        {"step": 2, "eval_near_runtime": 1.0, "eval_outcome/success": 0.5, "eval_rollout/dropped": 0.0},
        {"step": 2, "eval_far_runtime": 1.0, "eval_outcome/success": 1.0, "eval_rollout/dropped": 1.0},
        {"step": 3, "loss": 0.1},
    ]
    near = Result(name="eval_near", share=0.5, num=8, step=2)
    assert results_of(log, {"eval_near": 8, "eval_far": 4}) == [near]
