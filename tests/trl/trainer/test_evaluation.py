"""The metrics of an evaluation are over all of its candidates, each once, whatever the batches and processes."""

from __future__ import annotations

import math
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from datasets import Dataset, IterableDataset

from decisions import candidate, decision_of, episode_of
from pettingllms_trl import (
    Episode,
    MultiAgentGRPOConfig,
    MultiAgentGRPOTrainer,
)
from pettingllms_trl.credit.reward_functions import RewardScores
from pettingllms_trl.trainer.collector import Played
from pettingllms_trl.trainer.episode_metrics import EpisodeMetrics
from short_runs import adapter, settings
from third_party import OneShot
from two_processes import FORKS, in_two_processes


class Pays(OneShot):
    """10 in the row of seed 4, of which 5 are a bonus, and 0 in all others, where no bonus is named."""

    def step(self, action: str | None) -> None:
        super().step(action)
        if action is not None:
            is_paid = self.question == 4
            self.rewards = {"solver_0": 10.0 * is_paid}
            self.infos = {"solver_0": {"rewards": {"base": 5.0, "bonus": 5.0} if is_paid else {"base": 0.0}}}


GIVEN = {0: None, 1: 1.0, 2: 1.0, 3: 1.0, 4: 5.0}


def by_seed(completions: list[Any], seed: list[int], log_metric: Any, **_: Any) -> list[float | None]:
    log_metric("noted", seed[0])
    return [GIVEN[each] for each in seed]


def silent(completions: list[Any], **_: Any) -> list[None]:
    return [None] * len(completions)


FIVE = Dataset.from_dict({"seed": range(5)})
EXPECTED = {
    "eval_reward": 2.0,  # (0 + 0 + 0 + 0 + 10) / 5
    "eval_agent/solver_0/reward": 2.0,
    "eval_agent/solver_0/return": 2.0,
    "eval_agent/solver_0/rewards/base": 1.0,
    "eval_agent/solver_0/rewards/bonus": 1.0,  # (0 + 0 + 0 + 0 + 5) / 5
    "eval_rewards/by_seed/mean": 2.0,  # (1 + 1 + 1 + 5) / 4
    "eval_rewards/by_seed/std": 2.0,  # ((1 + 1 + 1 + 9) / 3) ** 0.5
    "eval_noted": 2.0,  # (0 + 1 + 2 + 3 + 4) / 5
    "eval_rollout/decisions": 1.0,
    "eval_rollout/dropped": 0,
}


def make(model_path: str, tmp_path: Path, eval_dataset: Any = FIVE, **options: Any) -> MultiAgentGRPOTrainer:
    return MultiAgentGRPOTrainer(
        model_path,
        Pays,
        settings(tmp_path, reward_weights=[0.0, 0.0], **options),
        FIVE,
        eval_dataset,
        reward_funcs=[by_seed, silent],
        policies="lora",
        peft_config=adapter(),
    )


def check(metrics: dict[str, Any]) -> None:
    assert {name: metrics[name] for name in EXPECTED} == pytest.approx(EXPECTED)
    assert not [name for name in metrics if "silent" in name]
    sampled = metrics["eval_rollout/completion_tokens"]
    assert sampled == metrics["eval_rollout/sampled_tokens"]
    assert 5 <= sampled <= 5 * 8


@pytest.mark.parametrize(
    ("options", "rows"),
    [
        ({"per_device_train_batch_size": 16, "gradient_accumulation_steps": 4}, 64),  # as many episodes as replies
        ({"per_device_train_batch_size": 16, "steps_per_generation": 6, "num_generations_eval": 3}, 32),  # 96 / 3
        ({"per_device_train_batch_size": 16, "steps_per_generation": 6, "num_generations_eval": None}, 12),  # 96 / 8
        ({"per_device_train_batch_size": 4, "gradient_accumulation_steps": 2, "num_generations_eval": 2}, 8),
        ({"per_device_train_batch_size": 16, "per_device_eval_batch_size": 3}, 3),
    ],
)
def test_an_evaluation_plays_as_many_episodes_at_once_as_training_samples_replies(
    options: dict[str, Any], rows: int, tmp_path: Path
) -> None:
    args = MultiAgentGRPOConfig(str(tmp_path), num_generations=8, use_cpu=True, bf16=False, **options)
    assert args.per_device_eval_batch_size == rows


@pytest.mark.parametrize("batch_size", [1, 4, 5])
def test_every_candidate_counts_once_whatever_the_batch_size(batch_size: int, model_path: str, tmp_path: Path) -> None:
    check(make(model_path, tmp_path, per_device_eval_batch_size=batch_size).evaluate())


@FORKS
@pytest.mark.parametrize("kind", [Dataset, IterableDataset])
def test_every_candidate_counts_once_where_two_processes_have_unequal_shares(
    kind: type, model_path: str, tmp_path: Path
) -> None:
    # Of 5 rows, one process is given 4 in batches of 4; in batches of 2, 3. Accelerate fills the other's up.
    def work(process: int) -> list[Any]:
        rows = FIVE if kind is Dataset else FIVE.to_iterable_dataset()
        return [
            make(model_path, tmp_path, rows, per_device_eval_batch_size=batch_size).evaluate() for batch_size in (4, 2)
        ]

    for found in in_two_processes(work, tmp_path):
        assert isinstance(found, list), found
        for metrics in found:
            check(metrics)


@pytest.mark.filterwarnings("ignore:the reward function 'silent'")
def test_each_of_several_data_sets_has_its_own_means_and_the_best_checkpoint_is_chosen_by_them(
    model_path: str, tmp_path: Path
) -> None:
    sets = {"three": FIVE.select(range(3)), "five": FIVE}
    trainer = make(
        model_path,
        tmp_path,
        sets,
        per_device_eval_batch_size=4,
        eval_strategy="steps",
        eval_steps=1,
        save_strategy="best",
        metric_for_best_model="eval_reward",
    )
    trainer.train()
    three, five = (log for log in trainer.state.log_history if "eval_reward" in log)
    assert (three["eval_reward"], five["eval_reward"]) == (0.0, 2.0)
    check(five)
    assert three["eval_rewards/by_seed/mean"] == 1.0
    assert trainer.state.best_metric == 2.0


def test_what_was_played_before_is_not_of_an_evaluation(model_path: str, tmp_path: Path) -> None:
    trainer = make(model_path, tmp_path, per_device_eval_batch_size=4)
    trainer.predict(FIVE.select([4]))
    trainer.play([{"seed": 4}])
    check(trainer.evaluate())


def episode(*rewards: tuple[float, dict[str, float]]) -> Episode:
    """Of one decision, with these candidates."""
    candidates = [candidate(reward, ids=(1,) * 3, parts=parts) for reward, parts in rewards]
    return episode_of(decision_of("a_0", candidates), environment="relay")


def test_the_metrics_of_batches_are_those_of_all_of_their_episodes_at_once() -> None:
    episodes = [episode((1.0, {"part": 1.0}), (0.0, {})), episode((2.0, {}), (2.0, {})), episode((5.0, {"late": 3.0}))]
    scores = {
        id(candidate.completion): (
            candidate.completion,
            RewardScores(parts={}, rewards={"f": candidate.reward or math.nan}, columns={}),
        )
        for each in episodes
        for candidate in each.decisions[0].candidates
    }
    metrics_of = partial(EpisodeMetrics, ["f"], groups_of=["a_0"])
    whole, batches = metrics_of(), metrics_of()
    whole.add(Played(episodes=episodes, scores=scores, counts={"dropped": 3}))
    batches.add(Played(episodes=episodes[:2], scores=scores, counts={"dropped": 1}))
    batches.add(Played(episodes=episodes[2:], scores=scores, counts={"dropped": 2}))
    assert batches.of_evaluation() == whole.of_evaluation()
    expected = {
        "agent/a_0/reward": [2.0],
        "agent/a_0/rewards/part": [0.2],
        "agent/a_0/rewards/late": [0.6],
        "agent/a_0/frac_reward_zero_std": [2 / 3],
        "rollout/completion_tokens": [15],
        "rollout/decisions": [1, 1, 1],
    }
    expected |= {f"env/relay/{name}": values for name, values in expected.items()}
    of_scores = {"rewards/f/mean": [2.5], "rewards/f/std": [pytest.approx(3**0.5)]}  # of 1, 2, 2, 5
    assert whole.of_evaluation() == {**expected, **of_scores, "rollout/dropped": [3], "reward": [2.0]}
