"""Prompt and completion share the model's context, with `generate` as with vLLM."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from transformers import AutoModelForCausalLM, PreTrainedTokenizerFast

from pettingllms_trl import MultiAgentGRPOTrainer
from pettingllms_trl.engines.batched import check_lengths, context_of
from pettingllms_trl.engines.transformers import sample_within
from pettingllms_trl.records import Prompt, Request
from short_runs import settings
from third_party import OneShot


def test_a_prompt_must_leave_room_for_one_token() -> None:
    request = Request("planner_0", Prompt([{"role": "user", "content": "the board"}]), 4)
    check_lengths([range(511)], [request], 512)
    with pytest.raises(ValueError, match=r"agent 'planner_0' has 512 tokens, but the context holds 512, .*the board"):
        check_lengths([range(512)], [request], 512)


@pytest.mark.parametrize(
    ("config", "expected"),
    [
        ({}, None),
        ({"max_position_embeddings": None}, None),
        ({"max_position_embeddings": 512}, 512),
        ({"max_position_embeddings": 512, "rope_parameters": {"rope_type": "default", "rope_theta": 1e4}}, 512),
        ({"max_position_embeddings": 512, "rope_parameters": {"rope_type": "linear", "factor": 4.0}}, 2048),
        (
            {"max_position_embeddings": 512, "rope_scaling": {"type": "dynamic", "factor": 2.0}},
            512,
        ),  # where it begins to stretch
        (
            {
                "max_position_embeddings": 40960,
                "rope_parameters": {
                    "rope_type": "yarn",
                    "factor": 4.0,
                    "original_max_position_embeddings": 32768,
                },
            },
            131072,
        ),
        (
            {
                "max_position_embeddings": 131072,
                "rope_parameters": {"rope_type": "llama3", "factor": 8.0, "original_max_position_embeddings": 8192},
            },
            131072,
        ),
        (
            {
                "max_position_embeddings": 100,
                "rope_parameters": {
                    "full": {"rope_type": "linear", "factor": 3.0},
                    "sliding": {"rope_type": "default"},
                },
            },
            300,
        ),
    ],
)
def test_the_context_is_what_rotary_embeddings_make_of_it(config: dict[str, Any], expected: int | None) -> None:
    assert context_of(SimpleNamespace(**config)) == expected


@pytest.mark.parametrize(
    ("most", "calls"),
    [(3, [([6, 7], None), ([8, 8], 2)]), (2, [([6, 8, 7, 8], None)]), (None, [([6], 4), ([8, 8], 2), ([7], 3)])],
)
def test_prompts_with_less_room_than_a_completion_are_sampled_up_to_the_context(
    most: int | None, calls: list[Any]
) -> None:
    asked: list[tuple[list[int], int | None]] = []

    def sample(prompts: list[Sequence[int]], images: Any, limit: int | None) -> Any:
        asked.append(([len(ids) for ids in prompts], limit))
        return [[len(ids)] for ids in prompts], [[-1.0 * len(ids)] for ids in prompts]

    lengths = (6, 8, 7, 8)
    ids, logprobs = sample_within([range(n) for n in lengths], [()] * 4, sample, context=10, most=most)
    assert asked == calls
    assert (ids, logprobs) == ([[n] for n in lengths], [[-1.0 * n] for n in lengths])


class Long(OneShot):
    """Its prompt has 10 tokens of the template and of the question's frame, and one for each letter."""

    def observe(self, agent: str) -> Any:
        return "x" * int(self.question or 0)


def test_generate_refuses_a_prompt_beyond_the_context_and_shortens_replies_at_its_end(
    model_path: str, tokenizer: PreTrainedTokenizerFast, tmp_path: Path
) -> None:
    model = AutoModelForCausalLM.from_pretrained(model_path)
    model.config.max_position_embeddings = 64
    unending = {"suppress_tokens": [tokenizer.eos_token_id]}
    trainer = MultiAgentGRPOTrainer(
        model, Long, settings(tmp_path, generation_kwargs=unending), processing_class=tokenizer
    )
    # <|user|>, <|end|> and <|assistant|> stand around the letters; a reply has 8 tokens where there is room.
    episodes = trainer.play([{"seed": number} for number in (10, 58, 60)])
    decisions = [episode.decisions[0] for episode in episodes]
    assert [len(decision.prompt.ids) for decision in decisions] == [13, 61, 63]
    assert [len(decision.played.completion.ids) for decision in decisions] == [8, 3, 1]
    with pytest.raises(
        ValueError, match=r"agent 'solver_0' has 64 tokens, but the context holds 64, the completion's"
    ):
        trainer.play([{"seed": 61}])
