"""Plan-Path: a drafter and a planner walk a grid together. One agent could do it alone, and after as many tokens does.

1. The model learns to walk alone from demonstrations in which one step in five is careless.
2. Each role gets a LoRA adapter, warmed up on a few demonstrations of its own role, three steps in five careless: the
   team knows the game, and plays it badly.
3. AT-GRPO trains both adapters, and a single agent until it has generated as many tokens.
4. All are played on instances whose rotations and reflections were never trained on.
"""

from __future__ import annotations

import json
import random
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from datasets import Dataset
from peft import LoraConfig, get_peft_model
from pettingzoo import AECEnv
from report import draw_curve, summary, table
from tiny import make_model, make_tokenizer
from training import (
    FIRST_SEED,
    REINFORCEMENT,
    STEADY,
    CountTokens,
    Demonstration,
    Progress,
    demonstration,
    imitate,
    keep,
    load,
    memory,
    say,
)
from transformers import AutoModelForCausalLM, AutoTokenizer, ProgressCallback

from pettingllms_envs import plan_path_v0
from pettingllms_envs.environments.plan_path.grid import PlanPathState
from pettingllms_envs.environments.plan_path.rules import PlanPath
from pettingllms_envs.replies.moves import LETTERS
from pettingllms_envs.teams.proposal import DraftPlan
from pettingllms_envs.teams.single import Single
from pettingllms_trl import Episode, MultiAgentGRPOConfig, MultiAgentGRPOTrainer


TASK = {"size": 5, "min_distance": 2, "max_distance": 8}
FORWARD = 48  # sequences in one forward pass
ROLES = {"draft_plan": ("drafter", "planner"), "single": ("planner",)}
BASE_DEMONSTRATIONS, BASE_CARELESSNESS, BASE_RATE = 14_000, 0.2, 4e-3
ROLE_DEMONSTRATIONS, ROLE_CARELESSNESS, ROLE_RATE = 2_000, 0.6, 2e-3
MAX_MOVES = 8
COPIED = 0.5
LORA = LoraConfig(r=16, lora_alpha=32, target_modules="all-linear", task_type="CAUSAL_LM")


def run(options: Any) -> None:
    """Make, warm up, train, evaluate, report."""
    began = time.perf_counter()
    base, warm = prepare(options.output, options.seed)
    trained = options.output / "adapters"
    training = Training(num_steps=options.steps or Training.num_steps)

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
        rows[f"{name}, warmed up"] = summary(keep(trainer, held_out(trainer, options.episodes)))
        trainer.train()
        if trainer.stopped_by is not None:
            sys.exit(f"stopped by {trainer.stopped_by}")
        budget = counters[name].total
        rows[f"{name}, trained"] = summary(keep(trainer, held_out(trainer, options.episodes)))
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
    pettingllms = Path(sys.executable).with_name("pettingllms")
    print(f"look at it:  {pettingllms} view {options.output / 'runs' / 'draft_plan'}")


def prepare(folder: Path, seed: int) -> tuple[Path, Path]:
    """The base model, and an adapter for each role, warmed up.

    Args:
        folder: Where they are written: `base`, and `warm/drafter`, `warm/planner`, `warm/alone`.
        seed: Of the models and the demonstrations.

    Returns:
        The folders of the base model and of the adapters.
    """
    base, warm = folder / "base", folder / "warm"
    say("1/5 A tiny model learns to walk from demonstrations")
    make_base(base, seed)
    say("2/5 An adapter for each role, warmed up on careless demonstrations")
    for name, role, workflow in (
        ("drafter", "drafter", DraftPlan(task())),
        ("planner", "planner", DraftPlan(task())),
        ("alone", "planner", Single(task())),
    ):
        warm_up(base, warm, name, role, workflow, seed)
    return base, warm


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
    model = AutoModelForCausalLM.from_pretrained(base.resolve(), dtype="float32")
    model = get_peft_model(model, LORA, adapter_name=name)
    imitate(model, AutoTokenizer.from_pretrained(base), rows, path, rate=ROLE_RATE, seed=seed)
    model.save_pretrained(path)


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
    """
    training = training or Training()
    batch = training.rows_per_step * training.num_candidates
    forward = min(FORWARD, batch)
    args = MultiAgentGRPOConfig(
        output_dir=str(output),
        log_rollouts=train,  # for `pettingllms view`
        per_device_train_batch_size=forward,
        gradient_accumulation_steps=batch // forward,
        num_generations=training.num_candidates,
        max_completion_length=24,
        max_steps=training.num_steps,
        learning_rate=training.learning_rate,
        seed=seed,
        **REINFORCEMENT,
        **STEADY,
    )
    return MultiAgentGRPOTrainer(
        load(base, adapters),
        make_env(workflow),
        args,
        Dataset.from_dict({"seed": range(100_000)}) if train else None,
        processing_class=AutoTokenizer.from_pretrained(base),
        policies={role: role for role in ROLES[workflow]},
        callbacks=callbacks,
    )


def held_out(trainer: MultiAgentGRPOTrainer, number: int, first: int = 0) -> list[Episode]:
    """Episodes on the test split, none of whose instances is a rotation or reflection of one that was trained on."""
    return trainer.play([{"seed": first + i, "split": "test"} for i in range(number)], name="held out")


def careless_walk(task: PlanPath, state: PlanPathState, carelessness: float, rng: random.Random) -> str:
    """A walk to the goal; with probability `carelessness` a step is any free one instead of a best one."""
    moves = ""
    while not task.solved(state) and len(moves) < MAX_MOVES:
        free = [letter for letter in LETTERS if task.apply(state, letter).position != state.position]
        careless = rng.random() < carelessness
        letter = rng.choice(free) if careless else task.oracle(state, rng)[0]
        moves += letter
        state = task.apply(state, letter)
    return moves


def demonstrate(
    workflow: DraftPlan | Single, *, number: int, carelessness: float, seed: int, role: str | None = None
) -> list[Demonstration]:
    """Play the workflow on instances of the train split and keep what was shown and what was replied.

    The planner copies the draft half the time, whatever it is worth: when to trust it is left for it to learn.

    Args:
        workflow: Over Plan-Path.
        number: How many demonstrations.
        carelessness: Probability that a step is a random free one, in [0, 1].
        seed: Draws instances and replies.
        role: Keep this role's only.
    """
    task = workflow.task
    rng = random.Random(f"demonstrations {seed}")
    kept: list[Demonstration] = []
    while len(kept) < number:
        state = workflow.start(task.generate(FIRST_SEED + rng.randrange(FIRST_SEED), "train"))
        draft: str | None = None
        over = False
        while not over:
            actor = workflow.actor(state)
            moves = careless_walk(task, state.task, carelessness, rng)
            if actor == "drafter":
                draft = moves
            elif draft is not None and rng.random() < COPIED:
                moves = draft
            reply = task.write(moves)
            if role in (None, actor):
                kept.append(demonstration(workflow.system(actor), workflow.observe(state, actor), reply))
            state, _, solved, truncated = workflow.step(state, reply)
            over = solved or truncated
    return kept[:number]
