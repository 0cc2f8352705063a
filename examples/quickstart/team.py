"""The team that the quickstart trains and that `evaluate.py` reloads: its environment, its adapters, its trainer."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import transformers
from datasets import Dataset, disable_progress_bars
from peft import PeftModel
from pettingzoo import AECEnv
from transformers import AutoModelForCausalLM, AutoTokenizer

from pettingllms_envs import plan_path_v0
from pettingllms_envs.tasks.plan_path import PlanPath
from pettingllms_trl import Episode, MultiAgentGRPOConfig, MultiAgentGRPOTrainer


TASK = {"size": 5, "min_distance": 2, "max_distance": 8}
FORWARD = 48  # sequences in one forward pass
LAPTOP: dict[str, Any] = {
    "use_cpu": True,
    "bf16": False,
    "gradient_checkpointing": False,
    "save_strategy": "no",
    "report_to": "none",
    "disable_tqdm": False,
}
"""Of every trainer here: a small model on a CPU, with a progress bar and nothing else."""
ROLES = {"draft_plan": ("drafter", "planner"), "single": ("planner",)}


def task() -> PlanPath:
    """The task of the quickstart."""
    return PlanPath(**TASK)


def make_env(workflow: str) -> Callable[[], AECEnv]:
    """A function that makes the environment, as the trainer wants it."""
    return lambda: plan_path_v0.env(workflow=workflow, **TASK)


@dataclass(frozen=True, kw_only=True)
class Training:
    """Settings of the reinforcement learning; the defaults are those of the run in docs/quickstart.md."""

    num_steps: int = 90
    num_candidates: int = 8
    rows_per_step: int = 12
    learning_rate: float = 1e-3
    sampling: Literal["tree", "parallel"] = "tree"
    credit: str = "at_grpo"
    num_continuations: int = 0


def make_trainer(
    base: Path,
    adapters: dict[str, Path],
    *,
    workflow: str,
    output: Path,
    seed: int,
    training: Training | None = None,
    train: bool = False,
    callbacks: list[Any] | None = None,
    trainer_class: type[MultiAgentGRPOTrainer] = MultiAgentGRPOTrainer,
) -> MultiAgentGRPOTrainer:
    """A trainer whose roles play with the adapters in the given folders, on the base model.

    Args:
        base: Folder of the base model and its tokenizer.
        adapters: Folder of each role's adapter.
        workflow: `"draft_plan"` or `"single"`.
        output: Where the trainer may write.
        seed: Of the trainer.
        training: Settings of the training.
        train: Whether it will train, and so needs instances to train on.
        callbacks: Of the trainer.
        trainer_class: A subclass, for one that counts something.
    """
    training = training or Training()
    model: Any = AutoModelForCausalLM.from_pretrained(base, dtype="float32")
    for name, folder in adapters.items():
        if isinstance(model, PeftModel):
            model.load_adapter(str(folder), name, is_trainable=True)
        else:
            model = PeftModel.from_pretrained(model, str(folder), adapter_name=name, is_trainable=True)
    batch = training.rows_per_step * training.num_candidates
    forward = min(FORWARD, batch)
    args = MultiAgentGRPOConfig(
        output_dir=str(output),
        per_device_train_batch_size=forward,
        gradient_accumulation_steps=batch // forward,
        num_generations=training.num_candidates,
        sampling=training.sampling,
        num_continuations=training.num_continuations,
        max_completion_length=24,
        max_steps=training.num_steps,
        learning_rate=training.learning_rate,
        lr_scheduler_type="constant_with_warmup",
        warmup_steps=5,
        logging_steps=1,
        seed=seed,
        **LAPTOP,
    )
    return trainer_class(
        model,
        make_env(workflow),
        args,
        Dataset.from_dict({"seed": range(100_000)}) if train else None,
        processing_class=AutoTokenizer.from_pretrained(base),
        policies={role: role for role in ROLES[workflow]},
        credit=training.credit,
        callbacks=callbacks,
    )


def held_out(trainer: MultiAgentGRPOTrainer, number: int) -> list[Episode]:
    """Episodes on the test split, none of whose instances is a rotation or reflection of one that was trained on."""
    return trainer.play([{"seed": seed, "split": "test"} for seed in range(number)], name="held out")


def quiet() -> None:
    """Progress bars of training only, and no word on what TRL will have to rename for transformers 6."""
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    disable_progress_bars()
    warnings.filterwarnings("ignore", message=".*gradient_checkpointing` is deprecated", category=FutureWarning)
