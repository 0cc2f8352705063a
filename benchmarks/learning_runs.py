"""What benchmarks/bench_learning.py runs: a warm-up, a training that ends when its tokens are spent, an evaluation.

It is the quickstart's task, models, warm-up and trainer (examples/quickstart); methods differ in what is named in
`METHODS`, and in nothing else.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any


sys.path.insert(0, str(Path(__file__).parents[1] / "examples" / "quickstart"))

from quickstart import make_base, warm_up
from report import summary
from team import ROLES, Training, make_trainer, quiet, task
from transformers import PrinterCallback, ProgressCallback, TrainerCallback, set_seed

from pettingllms_envs.workflows.draft_plan import DraftPlan
from pettingllms_envs.workflows.single import Single
from pettingllms_trl import MultiAgentGRPOTrainer
from pettingllms_trl.records import POLL_SECONDS, Engine, Request, Sampled


MOST_STEPS = 10_000  # never reached: a training ends by its tokens
LOGGED = ("outcome/success", "grad_norm", "completions/mean_length")
LOGGED_OF_AGENTS = ("reward", "return", "frac_reward_zero_std")


@dataclass(frozen=True, slots=True, kw_only=True)
class Method:
    """One way to train, or none.

    Args:
        workflow: `"draft_plan"` is the team, `"single"` one agent.
        adapters: Folder of the warm-up of each role.
        training: Its settings but the learning rate; `None`: the warm-up as it is.
    """

    workflow: str
    adapters: dict[str, str]
    training: Training | None = None


TEAM = {role: role for role in ROLES["draft_plan"]}
ALONE = {"planner": "alone"}
TREE = Training(num_steps=MOST_STEPS)
# Rows of a step are such that with the warm-up's weights all generate about as many tokens a step (2,500 to 3,300,
# measured with the seed that the learning rates are settled on), so that all take about as many steps.
METHODS = {
    "at_grpo": Method(workflow="draft_plan", adapters=TEAM, training=TREE),
    "grpo": Method(
        workflow="draft_plan",
        adapters=TEAM,
        training=replace(TREE, rows_per_step=6, sampling="parallel", credit="grpo"),
    ),
    "single": Method(workflow="single", adapters=ALONE, training=replace(TREE, rows_per_step=24)),
    "loo": Method(workflow="draft_plan", adapters=TEAM, training=replace(TREE, credit="loo")),
    "counterfactual": Method(
        workflow="draft_plan",
        adapters=TEAM,
        training=replace(TREE, rows_per_step=3, credit="counterfactual", num_continuations=1),
    ),
    "untrained": Method(workflow="draft_plan", adapters=TEAM),
    "untrained_single": Method(workflow="single", adapters=ALONE),
}


@dataclass(slots=True)
class Spent:
    """What sampling has cost.

    Args:
        tokens: Ids that a policy sampled, the one that ends a turn included; of candidates, of those that were not
            played on, of continuations. Prompts and padding are not counted.
        sequences: Completions.
        prompt_tokens: Of the prompts, each once, however many candidates were sampled for it.
    """

    tokens: int = 0
    sequences: int = 0
    prompt_tokens: int = 0

    def add(self, answers: Sequence[Sampled]) -> None:
        """Count a wave of answers."""
        for answer in answers:
            self.tokens += sum(len(completion.ids) for completion in answer.completions)
            self.sequences += len(answer.completions)
            self.prompt_tokens += len(answer.prompt_ids)


@dataclass
class Counted:
    """An engine whose answers are counted.

    Args:
        engine: That samples.
        spent: Where they are counted.
    """

    engine: Engine
    spent: Spent

    @property
    def is_batched(self) -> bool:
        """As the engine."""
        return self.engine.is_batched

    @property
    def is_remote(self) -> bool:
        """As the engine."""
        return self.engine.is_remote

    def rollout(self, name: str) -> AbstractContextManager[None]:
        """As the engine."""
        return self.engine.rollout(name)

    def submit(self, ticket: int, request: Request) -> None:
        """Hand it on."""
        self.engine.submit(ticket, request)

    def step(self, timeout: float = POLL_SECONDS) -> Sequence[tuple[int, Sampled]]:
        """The engine's answers."""
        answers = self.engine.step(timeout)
        self.spent.add([sampled for _, sampled in answers])
        return answers


class CountingTrainer(MultiAgentGRPOTrainer):
    """Counts what is sampled in training, where it is: `rollout/completion_tokens` leaves continuations out."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.spent = Spent()

    @contextmanager
    def sampling(self, name: str) -> Iterator[Engine]:
        """The engine, whose answers are counted in training."""
        with super().sampling(name) as engine:
            yield Counted(engine, self.spent) if self.model.training else engine

    def prepare_generation(self, rows: Any) -> Any:
        """Log how many of the sequences teach nothing."""
        batches = super().prepare_generation(rows)
        flat = list(self._logs["advantages"])
        self._metrics["train"]["zero_advantage"].append(sum(a == 0.0 for a in flat) / len(flat))
        self._metrics["train"]["trained_sequences"].append(len(flat))
        return batches


@dataclass
class Budget(TrainerCallback):
    """Ends a training with the step that spends its last token, and keeps its logs.

    Args:
        tokens: How many may be sampled.
        spent: What has been.
        history: One entry per step.
    """

    tokens: int
    spent: Spent
    history: list[dict[str, float]] = field(default_factory=list)

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """See `TrainerCallback`."""
        control.should_training_stop |= self.spent.tokens >= self.tokens

    def on_log(self, args: Any, state: Any, control: Any, logs: dict[str, Any], **kwargs: Any) -> None:
        """See `TrainerCallback`."""
        if "rollout/decisions" in logs:
            kept = {name: round(float(value), 4) for name, value in logs.items() if is_kept(name)}
            self.history.append({"tokens": self.spent.tokens, **kept})


def is_kept(name: str) -> bool:
    """Whether a metric is worth a place in the saved results."""
    parts = name.split("/")
    return (
        name in (*LOGGED, "zero_advantage", "trained_sequences", "rollout/decisions")
        or (parts[0] == "agent" and len(parts) == 3 and parts[2] in LOGGED_OF_AGENTS)
        or (parts[0] == "policy" and parts[-1] in ("entropy", "grad_norm"))
    )


def prepare(folder: Path, seed: int) -> None:
    """A seed's base model and its warmed-up adapters in `folder`, unless they are there."""
    if folder.is_dir():
        return
    quiet()
    part = folder.with_name(f"{folder.name}.part")
    make_base(part / "base", seed)
    for name, role, workflow in (
        ("drafter", "drafter", DraftPlan(task())),
        ("planner", "planner", DraftPlan(task())),
        ("alone", "planner", Single(task())),
    ):
        warm_up(part / "base", part / "warm", name, role, workflow, seed)
    part.rename(folder)


def run(
    name: str,
    *,
    warm: Path,
    output: Path,
    seed: int,
    learning_rate: float,
    tokens: int,
    rows: Sequence[dict[str, Any]],
) -> dict[str, Any]:
    """Train from a warm-up until the tokens are spent, and play the rows once each.

    Returns:
        The successes as a string of 0 and 1, one for each row; what it cost; what was logged, a list for each name.
    """
    quiet()
    method = METHODS[name]
    trained = method.training is not None
    training = replace(method.training or TREE, learning_rate=learning_rate)
    trainer = make_trainer(
        warm / "base",
        {role: warm / "warm" / folder for role, folder in method.adapters.items()},
        workflow=method.workflow,
        output=output,
        seed=seed,
        training=training,
        train=trained,
        trainer_class=CountingTrainer,
    )
    assert isinstance(trainer, CountingTrainer)
    trainer.remove_callback(ProgressCallback)
    trainer.remove_callback(PrinterCallback)
    budget = Budget(tokens, trainer.spent)
    trainer.add_callback(budget)
    began = time.perf_counter()
    if trained:
        trainer.train()
        if trainer.stopped_by is not None:  # it returned early, its budget unspent: no result
            raise KeyboardInterrupt(f"{name} with seed {seed} was ended by {trainer.stopped_by}")
    seconds = time.perf_counter() - began
    set_seed(seed)  # so that the same weights are judged alike, however many numbers their training drew
    episodes = trainer.play(rows, name="held out")
    judged = summary(episodes)
    return {
        "success": "".join("1" if episode.outcome["success"] else "0" for episode in episodes),
        "regret": round(judged["regret"], 4),
        "roles": judged["roles"],
        "steps": trainer.state.global_step,
        "tokens": trainer.spent.tokens,
        "sequences": trainer.spent.sequences,
        "prompt_tokens": trainer.spent.prompt_tokens,
        "seconds": round(seconds, 1),
        "history": columns(budget.history),
    }


def columns(history: Sequence[dict[str, float]]) -> dict[str, list[float | None]]:
    """A value per step for each name, which takes a third of the room in a file; `None` where it was not logged."""
    names = dict.fromkeys(name for log in history for name in log)
    return {name: [log.get(name) for log in history] for name in names}
