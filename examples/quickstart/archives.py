"""Archives: two librarians and an answerer, each of whom lacks what the others have: no agent alone could do it.

A question has three hops, and the facts are in two archives in turn. A librarian sees one archive and tells the other
what it found; the answerer sees messages only. A search finds two facts about a name, and the question says which one
counts. Who reads one archive, or gets no messages, is right in at most one fresh question of eight, whatever its
model and its strategy (docs/cooperation.md has the proof), and so is who does not read the question.

1. A model of 0.3M parameters that has imitated careless replies is loaded (`benchmarks/studies/bases.py` made it).
2. AT-GRPO trains an adapter for each agent, with the reward for what a message tells its reader.
3. The team is played on held-out instances, and once more with its messages cut.
4. Beside it stands one agent that may read both archives, told in each turn which one the team would search or not,
   trained for as many tokens (`references.json`). No theorem limits it, and it does better.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from datasets import Dataset
from peft import LoraConfig
from report import draw_bars, interval_table, share
from training import REINFORCEMENT, STEADY, VALIDATION, CountTokens, Progress, keep, load, memory, say
from transformers import AutoTokenizer, ProgressCallback

from pettingllms_envs import archives_v0
from pettingllms_envs.aec import TextEnv
from pettingllms_trl import Episode, MultiAgentGRPOConfig, MultiAgentGRPOTrainer


TASK: Mapping[str, Any] = {"wording": "symbols", "facts": 2, "hops": 3, "size": 8, "results": 2, "order": "seed"}
BASE = Path(__file__).parents[2] / "benchmarks" / "studies" / "bases" / "archives"
LORA = LoraConfig(r=16, lora_alpha=32, target_modules="all-linear", task_type="CAUSAL_LM")
REFERENCES = Path(__file__).with_name("references.json")


@dataclass(frozen=True, kw_only=True)
class Form:
    """One way to answer the questions.

    Args:
        title: In the table and the picture.
        workflow: Of `archives_v0`.
        agents: Each has an adapter of its own.
    """

    title: str
    workflow: str
    agents: Sequence[str]

    def env(self) -> TextEnv:
        """The environment."""
        return archives_v0.env(workflow=self.workflow, **TASK)


TEAM = Form(title="team", workflow="team", agents=("librarian_0", "librarian_1", "answerer"))
CUT = Form(title="team, messages cut", workflow="cut", agents=TEAM.agents)
ALONE = (
    Form(title="one agent, told which archive is next", workflow="routed", agents=("librarian",)),
    Form(title="one agent shown everything", workflow="full", agents=("librarian",)),
)
"""One agent that may read both archives."""
EXPERT_ITERATION = "team, by expert iteration"
SUPERVISED = "team, by supervision on right replies"


@dataclass(frozen=True, kw_only=True)
class Training:
    """Settings of the reinforcement learning; the defaults are those of the run in docs/quickstart.md.

    Args:
        num_steps: Optimizer steps, `num_iterations` of them on each batch of `rows_per_step` questions.
        imitate_tokens: Expert iteration instead, in ten rounds, until this number of tokens is generated.
    """

    num_steps: int = 350
    num_candidates: int = 8
    rows_per_step: int = 4
    num_iterations: int = 4
    learning_rate: float = 1.5e-3
    imitate_tokens: int | None = None


def run(options: Any) -> None:
    """Train, evaluate, report."""
    began = time.perf_counter()
    output: Path = options.output
    training = Training(num_steps=options.steps or Training.num_steps)

    say("1/2 The team trains with AT-GRPO")
    rows: dict[str, str] = {}
    counter = CountTokens()
    trainer = make_trainer(TEAM, output=output / "runs" / "team", seed=options.seed, training=training)
    rows["team, untrained"] = successes(keep(trainer, held_out(trainer, options.episodes)))
    train(trainer, counter)
    rows["team, trained"] = successes(keep(trainer, held_out(trainer, options.episodes)))
    adapters = output / "adapters"
    trainer.save_model(str(adapters))

    say("2/2 The trained team with its messages cut")
    cut = make_trainer(CUT, output=output / "runs" / "cut", seed=options.seed, adapters=adapters)
    rows["team, trained, messages cut"] = successes(held_out(cut, options.episodes))

    references = json.loads(REFERENCES.read_text())
    beside = {name: reference["successes"] for name, reference in references.items()}
    bound = float(TEAM.env().workflow.task.lone_bound())
    report = {"rows": rows, "lone_bound": bound, "tokens": counter.total, "evaluations": counter.evaluations}
    report["history"] = counter.history
    (output / "report.json").write_text(json.dumps(report, indent=1))
    draw_bars(output / "curve.png", counter.history, counter.evaluations, rows | beside, bound)
    print(f"\nSuccess on {options.episodes} held-out instances, seed {options.seed}:\n\n{interval_table(rows)}\n")
    some = next(iter(references.values()))
    beginning = f"The same base model after about {some['tokens']:,} tokens each; seed {some['seed']}"
    print(f"{beginning}, {len(some['successes'])} instances (references.json):\n\n{interval_table(beside)}\n")
    low = share(rows["team, trained"])[1]
    word = "above" if low > bound else "not above"
    print(f"Who reads one archive or gets no messages is right in at most {bound:.1%} of fresh questions: a theorem.")
    print(f"The trained team's interval is {word} it. Tokens generated in training: {counter.total:,}")
    print(f"{time.perf_counter() - began:.0f} s, {memory():.1f} GiB at most\n")
    print(f"picture:     {output / 'curve.png'}")
    print(f"adapters:    {', '.join(f'{adapters}/{agent}' for agent in TEAM.agents)}")
    print(f"play again:  {sys.executable} examples/quickstart/evaluate.py {output}")
    print(f"look at it:  {Path(sys.executable).with_name('pettingllms')} view {output / 'runs' / 'team'}")


def make_trainer(
    form: Form,
    *,
    output: Path,
    seed: int,
    training: Training | None = None,
    adapters: Path | None = None,
) -> MultiAgentGRPOTrainer:
    """A trainer with an adapter for each agent on the base model.

    Args:
        form: What is played.
        output: Where the trainer may write.
        seed: Of the trainer.
        training: Settings of the training.
        adapters: Folder with an adapter for each agent, by its name; None for new ones.
    """
    log_rollouts = training is not None
    training = training or Training()
    how: dict[str, Any] = {"max_steps": training.num_steps, "lr_scheduler_type": "linear"}
    if training.imitate_tokens is not None:
        how = {"imitate": "best", "max_generated_tokens": training.imitate_tokens, **STEADY}
    args = MultiAgentGRPOConfig(
        output_dir=str(output),
        log_rollouts=log_rollouts,  # for `pettingllms view`
        per_device_train_batch_size=training.rows_per_step * training.num_candidates,
        num_generations=training.num_candidates,
        max_completion_length=8,
        num_iterations=training.num_iterations,
        learning_rate=training.learning_rate,
        seed=seed,
        eval_strategy="steps" if log_rollouts else "no",
        eval_steps=50,
        per_device_eval_batch_size=100,
        num_generations_eval=1,
        **REINFORCEMENT,
        **how,
    )
    return MultiAgentGRPOTrainer(
        load(BASE, {} if adapters is None else {agent: adapters / agent for agent in form.agents}),
        form.env,
        args,
        Dataset.from_dict({"seed": range(100_000)}),
        eval_dataset={VALIDATION: Dataset.from_dict({"seed": range(100), "split": [VALIDATION] * 100})},
        processing_class=AutoTokenizer.from_pretrained(BASE),
        policies={agent: agent for agent in form.agents},
        peft_config=None if adapters is not None else LORA,
    )


def train(trainer: MultiAgentGRPOTrainer, counter: CountTokens) -> None:
    """Train, with a bar."""
    trainer.remove_callback(ProgressCallback)
    trainer.add_callback(counter)
    trainer.add_callback(Progress(counter))
    trainer.train()
    if trainer.stopped_by is not None:
        sys.exit(f"stopped by {trainer.stopped_by}")


def held_out(trainer: MultiAgentGRPOTrainer, number: int, first: int = 0) -> list[Episode]:
    """Episodes on the test split, on the instances `first`, `first + 1`, ..."""
    return trainer.play([{"seed": first + i, "split": "test"} for i in range(number)], name="held out")


def successes(episodes: Sequence[Episode]) -> str:
    """A character for each episode: 1 where it succeeded, else 0."""
    return "".join("1" if episode.outcome["success"] else "0" for episode in episodes)
