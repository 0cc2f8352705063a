"""The card of a team says where each agent's adapter is and how to load it."""

from __future__ import annotations

from huggingface_hub import ModelCard

from pettingllms_trl.hub import adapters_card


def card(base_model: str | None) -> ModelCard:
    return ModelCard(
        adapters_card(
            name="me/team",
            base_model=base_model,
            environment="plan_path_v0",
            of_agent={"drafter_0": "drafter", "planner_0": "planner"},
            tags=["trl", "at-grpo"],
        )
    )


def test_the_card_names_every_agents_adapter_and_loads_by_its_folder() -> None:
    text = card("Qwen/Qwen3-1.7B").text
    assert "| `drafter_0` | `drafter/` |" in text
    assert "| `planner_0` | `planner/` |" in text
    assert 'PeftModel.from_pretrained(base, "me/team", subfolder="drafter")' in text
    assert 'from_pretrained("Qwen/Qwen3-1.7B")' in text


def test_the_cards_metadata_are_what_the_hub_reads() -> None:
    assert card("Qwen/Qwen3-1.7B").data.to_dict() == {
        "library_name": "peft",
        "base_model": "Qwen/Qwen3-1.7B",
        "tags": ["trl", "at-grpo"],
    }


def test_a_base_in_a_local_folder_is_not_named_as_if_it_were_on_the_hub() -> None:
    assert "base_model" not in card(None).data.to_dict()
