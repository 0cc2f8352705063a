"""What tests train with: settings of a run of seconds on a CPU, an adapter, a trainer that keeps what it played."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from peft import LoraConfig

from pettingllms_trl import Episode, MultiAgentGRPOConfig, MultiAgentGRPOTrainer
from pettingllms_trl.records import Row
from pettingllms_trl.rollout.play import Rollout


SHORT = {
    "per_device_train_batch_size": 8,
    "num_generations": 4,
    "max_completion_length": 8,
    "max_steps": 1,
    "learning_rate": 1e-2,  # a step is to be seen in the weights
    "logging_steps": 1,
    "save_strategy": "no",
    "report_to": "none",
    "disable_tqdm": True,
    "use_cpu": True,
    "bf16": False,  # TRL would autocast, and a gradient would depend on the size of its pass
}


def settings(path: Path, **options: Any) -> MultiAgentGRPOConfig:
    """2 rows of 4 candidates of 8 tokens, for one step, unless the options say otherwise."""
    return MultiAgentGRPOConfig(str(path), **{**SHORT, **options})


def adapter(**options: Any) -> LoraConfig:
    """Of rank 4 on all linear layers."""
    return LoraConfig(r=4, target_modules="all-linear", task_type="CAUSAL_LM", **options)


@dataclass
class Rollouts:
    """What a trainer has played: the rows, the name and the episodes of each rollout."""

    rows: list[list[Row]] = field(default_factory=list)
    names: list[str] = field(default_factory=list)
    episodes: list[list[Episode]] = field(default_factory=list)


def keep_rollouts(trainer: MultiAgentGRPOTrainer) -> Rollouts:
    """Keep every rollout that a trainer plays from now on."""
    kept, source = Rollouts(), trainer.collector.source

    def play(rows: Sequence[Row], *args: Any, seed: str, **kwargs: Any) -> Rollout:
        rollout = source.play(rows, *args, seed=seed, **kwargs)
        kept.rows.append(list(rows))
        kept.names.append(seed.partition("/")[2])
        kept.episodes.append(rollout.episodes)
        return rollout

    trainer.collector.source = SimpleNamespace(play=play)
    return kept


class KeepsRollouts:
    """Before a trainer among the bases of a class: keeps every rollout."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.kept = keep_rollouts(self)  # type: ignore[arg-type]  # a trainer is among the other bases

    @property
    def rollouts(self) -> list[list[Episode]]:
        """The episodes of each rollout."""
        return self.kept.episodes


def tree(trainer: MultiAgentGRPOTrainer, row: Row) -> Episode:
    """One row, played as a tree."""
    generation = trainer.collector.collect([row], name="test", learning=trainer.routing.trained)
    (episode,) = generation.played.episodes
    return episode


def keep_all_rows(trainer: MultiAgentGRPOTrainer) -> None:
    """Train on every sequence, also on those that cannot move a weight, where a test counts them."""
    trainer.builder.rows_without_gradient = lambda *_: frozenset()  # type: ignore[method-assign]
