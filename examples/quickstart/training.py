"""What every training of the quickstart shares: settings for a CPU, supervised warm-up, progress, a token budget."""

from __future__ import annotations

import argparse
import json
import logging
import resource
import sys
import warnings
from collections.abc import Mapping
from pathlib import Path
from statistics import fmean
from typing import Any

import torch
import transformers
from datasets import Dataset, disable_progress_bars
from peft import PeftModel
from torch.nn.functional import cross_entropy
from transformers import AutoModelForCausalLM, ProgressCallback, TrainerCallback
from trl import SFTConfig, SFTTrainer

from pettingllms_trl import Episode


Demonstration = dict[str, Any]
"""TRL's conversational prompt-completion row."""

FIRST_SEED = 10_000_000  # of demonstrations, far from the seeds that reinforcement learning trains on
LAPTOP: dict[str, Any] = {
    "use_cpu": True,
    "bf16": False,
    "gradient_checkpointing": False,
    "save_strategy": "no",
    "report_to": "none",
    "disable_tqdm": False,
}
"""Of every trainer here: a small model on a CPU, with a progress bar and nothing else."""
VALIDATION = "validation"
"""The name of the instances on which a team is evaluated while it trains; those of the end are others."""
EVALUATED, PLAYED = "eval_outcome/success", "eval_rollout/instances"
"""What the trainer logs of each evaluation, whatever its instances are called."""
REINFORCEMENT: dict[str, Any] = {
    **LAPTOP,
    "warmup_steps": 5,
    "logging_steps": 1,
}
"""Of every `MultiAgentGRPOTrainer` here."""
STEADY = {"lr_scheduler_type": "constant_with_warmup"}
"""Of those whose last step is not known before."""


def demonstration(system: str, prompt: str, reply: str) -> Demonstration:
    """A row of what an agent was shown and replied."""
    return {
        "prompt": [{"role": "system", "content": system}, {"role": "user", "content": prompt}],
        "completion": [{"role": "assistant", "content": reply}],
    }


def imitate(model: Any, tokenizer: Any, rows: list[Demonstration], path: Path, *, rate: float, seed: int) -> None:
    """One pass of supervised fine-tuning."""
    args = SFTConfig(
        output_dir=str(path),
        per_device_train_batch_size=32,
        num_train_epochs=1,
        learning_rate=rate,
        lr_scheduler_type="cosine",
        warmup_steps=20,
        logging_strategy="no",
        seed=seed,
        **LAPTOP,
    )
    trainer = Imitates(model=model, args=args, train_dataset=Dataset.from_list(rows), processing_class=tokenizer)
    trainer.remove_callback(ProgressCallback)
    trainer.add_callback(Progress())
    trainer.train()


class Imitates(SFTTrainer):
    """TRL's, whose loss on a CPU scores the prompts' tokens, too, to leave them out afterwards: the same loss in two
    thirds of the time."""

    def compute_loss(
        self, model: Any, inputs: Any, return_outputs: bool = False, num_items_in_batch: Any = None
    ) -> torch.Tensor:
        labels = inputs["labels"]  # (B, T), -100 for prompts, and for padding, which is on the right
        first = int((labels != -100).any(dim=0).int().argmax())
        logits = model(input_ids=inputs["input_ids"], logits_to_keep=labels.shape[1] - first + 1).logits[:, :-1]
        loss = cross_entropy(logits.flatten(0, 1), labels[:, first:].flatten(), ignore_index=-100, reduction="sum")
        return loss / num_items_in_batch


class Progress(ProgressCallback):
    """The progress bar alone, with the share of training episodes that succeed; not every log on a line of its own.

    Args:
        counter: Where it has a budget, the bar goes by tokens instead of steps.
    """

    def __init__(self, counter: CountTokens | None = None) -> None:
        super().__init__()
        self.counter = counter if counter is not None and counter.budget is not None else None

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        super().on_train_begin(args, state, control, **kwargs)
        if self.counter is not None and self.training_bar is not None:
            self.training_bar.reset(total=self.counter.budget)
            self.training_bar.unit = "token"

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        if self.counter is None:
            super().on_step_end(args, state, control, **kwargs)
        elif self.training_bar is not None:
            self.training_bar.update(self.counter.total - self.training_bar.n)

    def on_prediction_step(self, *args: Any, **kwargs: Any) -> None:
        """No bar of its own for an evaluation."""

    def on_evaluate(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        logs = state.log_history[-1]
        share = logs.get(EVALUATED)
        if self.training_bar is not None and share is not None:
            self.training_bar.write(
                f"step {state.global_step}: {share:.0%} of {logs[PLAYED]:.0f} validation instances"
            )

    def on_log(self, args: Any, state: Any, control: Any, logs: dict[str, Any] | None = None, **kwargs: Any) -> None:
        if self.training_bar is not None and logs and "outcome/success" in logs:
            self.training_bar.set_postfix_str(f"best of {args.num_generations} succeeds {logs['outcome/success']:.0%}")


class CountTokens(TrainerCallback):
    """Counts the tokens that a training generated, keeps its logs, and ends it once a budget is spent."""

    def __init__(self, budget: int | None = None) -> None:
        self.budget = budget
        self.total = 0
        self.history: list[dict[str, float]] = []
        self.evaluations: list[tuple[int, float]] = []  # tokens generated before, and success

    def on_log(self, args: Any, state: Any, control: Any, logs: dict[str, Any], **kwargs: Any) -> None:
        if (success := logs.get(EVALUATED)) is not None:
            self.evaluations.append((self.total, success))
        if "rollout/completion_tokens" in logs:
            self.total += int(logs["rollout/completion_tokens"])
            self.history.append({"tokens": self.total, **{k: v for k, v in logs.items() if k.startswith("agent/")}})
            control.should_training_stop |= self.budget is not None and self.total >= self.budget


def load(base: Path, adapters: Mapping[str, Path]) -> Any:
    """The base model with the adapters of these folders, by name."""
    model: Any = AutoModelForCausalLM.from_pretrained(base.resolve(), dtype="float32")
    for name, folder in adapters.items():
        if isinstance(model, PeftModel):
            model.load_adapter(str(folder), name, is_trainable=True)
        else:
            model = PeftModel.from_pretrained(model, str(folder), adapter_name=name, is_trainable=True)
    return model


def keep(trainer: Any, episodes: list[Episode]) -> list[Episode]:
    """Write an evaluation beside the rollouts, as the trainer writes its own, for the page that compares two of them.

    Returns:
        The episodes.
    """
    returns = {agent: fmean(episode.returns[agent] for episode in episodes) for agent in episodes[0].returns}
    line = {
        "step": trainer.state.global_step,
        "eval_runtime": 0.0,  # not measured
        "eval_rollout/instances": len(episodes),
        "eval_outcome/success": fmean(bool(episode.outcome["success"]) for episode in episodes),
        **{f"eval_agent/{agent}/return": value for agent, value in returns.items()},
    }
    file = Path(trainer.args.output_dir) / "metrics.jsonl"
    file.parent.mkdir(parents=True, exist_ok=True)
    with open(file, "a" if trainer.state.global_step else "w", encoding="ascii") as stream:
        stream.write(json.dumps(line) + "\n")
    return episodes


def positive(text: str) -> int:
    """A whole number of at least 1, as an argument of a command."""
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"{number} is given; expected a whole number of at least 1")
    return number


def quiet() -> None:
    """Progress bars of training only, and no word on what TRL will have to rename for transformers 6."""
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    disable_progress_bars()
    warnings.filterwarnings("ignore", message=".*gradient_checkpointing` is deprecated", category=FutureWarning)
    # The answerer has learned its part long before the end, which the table that follows shows.
    warnings.filterwarnings("ignore", message=".*all rewards of each group were equal")
    logging.getLogger("pettingllms_trl").setLevel(logging.ERROR)


def say(text: str) -> None:
    """Head a stage."""
    print(f"\n{text}", flush=True)


def memory() -> float:
    """Peak resident memory of this process in GiB."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak / 2**30 if sys.platform == "darwin" else peak / 2**20
