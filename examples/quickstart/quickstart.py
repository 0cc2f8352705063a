"""Trains a drafter and a planner to walk a grid together, from scratch, without a GPU or a network.

    python examples/quickstart/quickstart.py [--seed 0] [--output outputs/quickstart]

1. A tokenizer and a Qwen3 of 0.4M parameters are made, and the model learns to walk alone from demonstrations (TRL's
   SFTTrainer) in which one step in five is careless.
2. Each role gets a LoRA adapter, warmed up on a few demonstrations of its own role, three steps in five careless: the
   team knows the game, and plays it badly.
3. `MultiAgentGRPOTrainer` trains both adapters with AT-GRPO. So is a single agent, until it has generated as many
   tokens.
4. All are played on instances whose rotations and reflections were never trained on.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import sys
import time
from pathlib import Path
from typing import Any


os.environ.setdefault("HF_HUB_OFFLINE", "1")
# With a model so small a second thread gains little, and beside other work on the machine the two wait for each other.
os.environ.setdefault("OMP_NUM_THREADS", "1")

import torch
from datasets import Dataset
from demonstrations import demonstrate
from peft import LoraConfig, get_peft_model
from report import draw_curve, summary, table
from team import LAPTOP, ROLES, Training, held_out, make_trainer, quiet, task
from tiny import make_model, make_tokenizer
from torch.nn.functional import cross_entropy
from transformers import AutoModelForCausalLM, AutoTokenizer, ProgressCallback, TrainerCallback
from trl import SFTConfig, SFTTrainer

from pettingllms_envs.workflows.draft_plan import DraftPlan
from pettingllms_envs.workflows.single import Single


BASE_DEMONSTRATIONS, BASE_CARELESSNESS, BASE_RATE = 14_000, 0.2, 4e-3
ROLE_DEMONSTRATIONS, ROLE_CARELESSNESS, ROLE_RATE = 2_000, 0.6, 2e-3
LORA = LoraConfig(r=16, lora_alpha=32, target_modules="all-linear", task_type="CAUSAL_LM")


def main() -> None:
    """Make, warm up, train, evaluate, report."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--output", type=Path, default=Path("outputs/quickstart"))
    parser.add_argument("--episodes", type=int, default=500, help="held-out instances of each evaluation")
    parser.add_argument("--steps", type=int, default=Training.num_steps, help="optimizer steps of the team")
    options = parser.parse_args()
    began = time.perf_counter()
    quiet()
    base, warm, trained = (options.output / name for name in ("base", "warm", "adapters"))
    training = Training(num_steps=options.steps)

    say("1/5 A tiny model learns to walk from demonstrations")
    make_base(base, options.seed)
    say("2/5 An adapter for each role, warmed up on careless demonstrations")
    for name, role, workflow in (
        ("drafter", "drafter", DraftPlan(task())),
        ("planner", "planner", DraftPlan(task())),
        ("alone", "planner", Single(task())),
    ):
        warm_up(base, warm, name, role, workflow, options.seed)

    rows: dict[str, Any] = {}
    counters: dict[str, CountTokens] = {}
    say("3/5 The team trains with AT-GRPO")
    budget = None
    for name, workflow, adapters in (
        ("team", "draft_plan", {role: warm / role for role in ROLES["draft_plan"]}),
        ("single agent", "single", {"planner": warm / "alone"}),
    ):
        if name == "single agent":
            say(f"4/5 A single agent trains until it has generated as many tokens ({budget:,})")
        counters[name] = CountTokens(budget)
        # A single agent acts less often: more instances a step give it as many tokens a step, and so as many steps.
        settings = training if budget is None else Training(num_steps=100 * training.num_steps, rows_per_step=30)
        trainer = make_trainer(
            base,
            adapters,
            workflow=workflow,
            output=options.output / "runs" / workflow,
            seed=options.seed,
            training=settings,
            train=True,
            callbacks=[counters[name]],
        )
        trainer.remove_callback(ProgressCallback)
        trainer.add_callback(Progress(counters[name]))
        rows[f"{name}, warmed up"] = summary(held_out(trainer, options.episodes))
        trainer.train()
        if trainer.stopped_by is not None:
            sys.exit(f"stopped by {trainer.stopped_by}")
        budget = counters[name].total
        rows[f"{name}, trained"] = summary(held_out(trainer, options.episodes))
        trainer.save_model(str(trained if name == "team" else options.output / "single"))

    say("5/5 The team with its roles' adapters swapped")
    swapped = {"drafter": trained / "planner", "planner": trained / "drafter"}
    trainer = make_trainer(
        base, swapped, workflow="draft_plan", output=options.output / "runs" / "swapped", seed=options.seed
    )
    rows["team, trained, adapters swapped"] = summary(held_out(trainer, options.episodes))

    histories = {name: counter.history for name, counter in counters.items()}
    draw_curve(options.output / "curve.png", histories, rows)
    (options.output / "report.json").write_text(json.dumps({"rows": rows, "histories": histories}, indent=1))
    print(f"\nSuccess on {options.episodes} held-out instances, seed {options.seed}:\n\n{table(rows)}\n")
    gain = rows["team, trained"]["success"] - rows["team, warmed up"]["success"]
    lost = rows["team, trained, adapters swapped"]["success"] - rows["team, trained"]["success"]
    print(f"The team gained {100 * gain:.1f} points; with its adapters swapped it changes by {100 * lost:.1f} points.")
    print(f"Tokens generated in training: {', '.join(f'{k} {c.total:,}' for k, c in counters.items())}")
    print(f"{time.perf_counter() - began:.0f} s, {memory():.1f} GiB at most\n")
    print(f"curve:       {options.output / 'curve.png'}\nadapters:    {trained}/drafter, {trained}/planner")
    print(f"play again:  {sys.executable} examples/quickstart/evaluate.py {options.output}")


def make_base(path: Path, seed: int) -> None:
    """A tokenizer fitted to every role's prompts, and a model trained on demonstrations of walking alone."""
    walks = demonstrate(Single(task()), number=BASE_DEMONSTRATIONS, carelessness=BASE_CARELESSNESS, seed=seed)
    texts = [*walks[:2000], *demonstrate(DraftPlan(task()), number=2000, carelessness=ROLE_CARELESSNESS, seed=seed)]
    tokenizer = make_tokenizer(m["content"] for row in texts for m in (*row["prompt"], *row["completion"]))
    model = make_model(tokenizer, seed=seed)
    imitate(model, tokenizer, walks, path, rate=BASE_RATE, seed=seed)
    model.save_pretrained(path)
    tokenizer.save_pretrained(path)


def warm_up(base: Path, path: Path, name: str, role: str, workflow: Any, seed: int) -> None:
    """A role's adapter, trained on demonstrations of its role, in `path/name`."""
    rows = demonstrate(workflow, number=ROLE_DEMONSTRATIONS, carelessness=ROLE_CARELESSNESS, seed=seed + 1, role=role)
    torch.manual_seed(seed)
    model = get_peft_model(AutoModelForCausalLM.from_pretrained(base, dtype="float32"), LORA, adapter_name=name)
    imitate(model, AutoTokenizer.from_pretrained(base), rows, path, rate=ROLE_RATE, seed=seed)
    model.save_pretrained(path)


def imitate(model: Any, tokenizer: Any, rows: list[dict[str, Any]], path: Path, *, rate: float, seed: int) -> None:
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

    def on_log(self, args: Any, state: Any, control: Any, logs: dict[str, Any] | None = None, **kwargs: Any) -> None:
        if self.training_bar is not None and logs and "outcome/success" in logs:
            self.training_bar.set_postfix_str(f"best of {args.num_generations} succeeds {logs['outcome/success']:.0%}")


class CountTokens(TrainerCallback):
    """Counts the tokens that a training generated, keeps its logs, and ends it once a budget is spent."""

    def __init__(self, budget: int | None = None) -> None:
        self.budget = budget
        self.total = 0
        self.history: list[dict[str, float]] = []

    def on_log(self, args: Any, state: Any, control: Any, logs: dict[str, Any], **kwargs: Any) -> None:
        if "rollout/completion_tokens" in logs:
            self.total += int(logs["rollout/completion_tokens"])
            self.history.append({"tokens": self.total, **{k: v for k, v in logs.items() if k.startswith("agent/")}})
            control.should_training_stop |= self.budget is not None and self.total >= self.budget


def say(text: str) -> None:
    """Head a stage."""
    print(f"\n{text}", flush=True)


def memory() -> float:
    """Peak resident memory of this process in GiB."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak / 2**30 if sys.platform == "darwin" else peak / 2**20


if __name__ == "__main__":
    main()
