"""A TRL script's reward functions go on working, added to the environment's rewards before the best is chosen."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from datasets import Dataset

from pettingllms_trl import MultiAgentGRPOConfig, MultiAgentGRPOTrainer
from strangers import Relay, letters


def make(model_path: str, tmp_path: Path, functions: Any, **options: Any) -> MultiAgentGRPOTrainer:
    args = MultiAgentGRPOConfig(
        str(tmp_path),
        per_device_train_batch_size=4,
        num_generations=4,
        max_completion_length=6,
        max_steps=1,
        report_to="none",
        save_strategy="no",
        disable_tqdm=True,
        use_cpu=True,
        bf16=False,
        **options,
    )
    return MultiAgentGRPOTrainer(
        model_path, Relay, args, Dataset.from_dict({"seed": [1, 2], "level": [5, 6]}), reward_funcs=functions
    )


def test_it_is_called_for_each_decision_with_trls_arguments_the_row_and_who_acts(
    model_path: str, tmp_path: Path
) -> None:
    calls: list[dict[str, Any]] = []

    def watch(**arguments: Any) -> list[float]:
        calls.append(arguments)
        return [0.0] * len(arguments["completions"])

    make(model_path, tmp_path, watch).train()
    assert [(call["agent"][0], call["turn"][0]) for call in calls] == [
        ("opener_0", 0),
        ("closer_0", 0),
        ("opener_0", 1),
        ("closer_0", 1),
    ]
    for call in calls:
        assert {len(call[name]) for name in ("prompts", "completions", "completion_ids", "agent", "level")} == {4}
        assert call["level"][0] in (5, 6)
        assert call["trainer_state"].max_steps == 1
        assert call["completions"][0][0]["role"] == "assistant"


def test_it_decides_with_its_weight_which_candidate_goes_on(model_path: str, tmp_path: Path) -> None:
    def against(completions: list[Any], **_: Any) -> list[float]:
        return [letters(completion[0]["content"]) for completion in completions]

    trainer = make(model_path, tmp_path, against, reward_weights=[-3.0])
    (episode,) = trainer._play([{"seed": 1}], sampling="tree", num_candidates=4, name="test")
    for decision in episode.decisions:
        texts = [letters(candidate.completion.text) for candidate in decision.candidates]
        # the environment pays x, the function -3 x: together -2 x, so the least is the best
        assert [candidate.reward for candidate in decision.candidates] == pytest.approx([-2 * x for x in texts])
        assert texts[decision.chosen] == min(texts)
        assert decision.played.parts == {"against": pytest.approx(-3 * min(texts))}
    assert episode.returns["opener_0"] == pytest.approx(
        sum(d.played.reward for d in episode.decisions if d.agent == "opener_0")
    )


def test_none_means_that_it_does_not_apply(model_path: str, tmp_path: Path) -> None:
    def silent(completions: list[Any], **_: Any) -> list[None]:
        return [None] * len(completions)

    trainer = make(model_path, tmp_path, [silent])
    (episode,) = trainer._play([{"seed": 1}], sampling="tree", num_candidates=4, name="test")
    for candidate in episode.decisions[0].candidates:
        assert candidate.parts == {}
        assert candidate.reward == letters(candidate.completion.text)


def test_a_wrong_number_of_rewards_says_which_function_and_how_many(model_path: str, tmp_path: Path) -> None:
    def short(**_: Any) -> list[float]:
        return [1.0]

    trainer = make(model_path, tmp_path, short)
    with pytest.raises(ValueError, match=r"'short' returned \[1.0\] for 4 candidates of 'opener_0', expected 4"):
        trainer.train()


@pytest.mark.parametrize(
    ("functions", "options", "error", "message"),
    [
        (["me/reward-model"], {}, TypeError, "'me/reward-model', expected plain functions"),
        ([letters], {"reward_weights": [1.0, 2.0]}, ValueError, "2 numbers for 1 reward functions"),
    ],
)
def test_what_cannot_be_used_is_refused_before_a_model_is_loaded(
    functions: Any, options: dict[str, Any], error: type[Exception], message: str, tmp_path: Path
) -> None:
    with pytest.raises(error, match=message):
        make("/nowhere", tmp_path, functions, **options)
