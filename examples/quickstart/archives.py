"""Archives: two librarians and an answerer, each of whom lacks what the others have: no agent alone could do it.

A question has two hops, and the facts of each are in another archive. A librarian sees one archive and tells the other
what it found; the answerer sees messages only. Who reads one archive, or gets no messages, is right in at most one
episode of ten, whatever its model and its strategy (docs/cooperation.md has the proof).

1. The model learns the form of replies from demonstrations in which most names are any of those on the page.
2. AT-GRPO trains an adapter for each agent, with the reward for what a message tells its reader.
3. The team is played on held-out instances, and once more with its messages cut.
4. Beside it stand agents that were trained on their own for as many tokens (`references.json`): with one of the
   archives, without messages, and with both archives, told which one the team would search next or not.

This form of the task needs messages, but no reading: the order of turns says which archive comes next, which has one
fact about a name. `benchmarks/studies/teams.yaml` has a form in which the question must be read.
"""

from __future__ import annotations

import json
import random
import re
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from datasets import Dataset
from peft import LoraConfig
from report import draw_bars, interval_table, share
from tiny import make_model, make_tokenizer
from training import (
    FIRST_SEED,
    REINFORCEMENT,
    CountTokens,
    Demonstration,
    Progress,
    demonstration,
    imitate,
    load,
    memory,
    say,
)
from transformers import AutoTokenizer, ProgressCallback

from pettingllms_envs import archives_v0
from pettingllms_envs.aec import TextEnv
from pettingllms_envs.tasks.archives_world import RELATIONS
from pettingllms_trl import Episode, MultiAgentGRPOConfig, MultiAgentGRPOTrainer


TASK: Mapping[str, Any] = {"wording": "symbols", "size": 10, "results": 1, "facts": 1, "order": "question"}
NAME = re.compile(r"\b[ptrg][0-9]+\b")  # people, towns, rivers and guilds of the wording in symbols
RELATION = f" (?:{'|'.join(relation.symbol for relation in RELATIONS)})"
# A line's end, a name, a relation in a passage, a relation in a question.
APART = rf"\n|(?<![A-Za-z0-9])[ptrg][0-9]+(?![A-Za-z0-9])|(?<=[0-9]){RELATION}(?= )|{RELATION}(?=(?:{RELATION})* \?)"
DEMONSTRATIONS, CARELESSNESS, RATE = 12_000, 0.8, 4e-3
LORA = LoraConfig(r=16, lora_alpha=32, target_modules="all-linear", task_type="CAUSAL_LM")
REFERENCES = Path(__file__).with_name("references.json")


@dataclass(frozen=True, kw_only=True)
class Form:
    """One way to answer the questions.

    Args:
        title: In the table and the picture.
        workflow: Of `archives_v0`.
        agents: Each has an adapter of its own.
        archive: That a lone librarian reads.
    """

    title: str
    workflow: str
    agents: Sequence[str]
    archive: int | None = None

    def env(self) -> TextEnv:
        """The environment."""
        alone = {} if self.archive is None else {"archive": self.archive}
        return archives_v0.env(workflow=self.workflow, **TASK, **alone)


TEAM = Form(title="team", workflow="team", agents=("librarian_0", "librarian_1", "answerer"))
FORMS = {
    "team": TEAM,
    "alone_0": Form(title="librarian with archive 0 alone", workflow="alone", agents=("librarian",), archive=0),
    "alone_1": Form(title="librarian with archive 1 alone", workflow="alone", agents=("librarian",), archive=1),
    "cut": Form(title="team without messages", workflow="cut", agents=TEAM.agents),
    "full": Form(title="one agent shown everything", workflow="full", agents=("librarian",)),
    "routed": Form(title="one agent, told which archive is next", workflow="routed", agents=("librarian",)),
}
DEMONSTRATED = ("team", "alone_0", "alone_1", "cut", "full")
"""The forms whose replies the base model imitates, equally many of each."""


@dataclass(frozen=True, kw_only=True)
class Training:
    """Settings of the reinforcement learning; the defaults are those of the run in docs/quickstart.md."""

    num_steps: int = 80
    num_candidates: int = 8
    rows_per_step: int = 6
    learning_rate: float = 2e-3


def run(options: Any) -> None:
    """Make, train, evaluate, report."""
    began = time.perf_counter()
    output: Path = options.output
    base = prepare(output, options.seed)
    training = Training(num_steps=options.steps or Training.num_steps)

    say("2/3 The team trains with AT-GRPO")
    rows: dict[str, str] = {}
    counter = CountTokens()
    trainer = make_trainer(base, TEAM, output=output / "runs" / "team", seed=options.seed, training=training)
    rows["team, untrained"] = successes(held_out(trainer, options.episodes))
    train(trainer, counter)
    rows["team, trained"] = successes(held_out(trainer, options.episodes))
    adapters = output / "adapters"
    trainer.save_model(str(adapters))

    say("3/3 The trained team with its messages cut")
    cut = make_trainer(base, FORMS["cut"], output=output / "runs" / "cut", seed=options.seed, adapters=adapters)
    rows["team, trained, messages cut"] = successes(held_out(cut, options.episodes))

    references = json.loads(REFERENCES.read_text())
    beside = {FORMS[name].title: reference["successes"] for name, reference in references.items()}
    bound = float(TEAM.env().workflow.task.lone_bound())
    report = {"rows": rows, "lone_bound": bound, "tokens": counter.total, "history": counter.history}
    (output / "report.json").write_text(json.dumps(report, indent=1))
    trained = {f"{name}, trained": each for name, each in beside.items()}
    draw_bars(output / "curve.png", counter.history, rows | trained, bound)
    print(f"\nSuccess on {options.episodes} held-out instances, seed {options.seed}:\n\n{interval_table(rows)}\n")
    some = next(iter(references.values()))
    beginning = f"Trained on their own for about {some['tokens']:,} tokens each; seed {some['seed']}"
    print(f"{beginning}, {len(some['successes'])} instances (references.json):\n\n{interval_table(beside)}\n")
    low = share(rows["team, trained"])[1]
    word = "above" if low > bound else "not above"
    print(f"Who reads one archive, or gets no messages, is right in at most {bound:.1%}: a theorem.")
    print(f"The trained team's interval is {word} it. Tokens generated in training: {counter.total:,}")
    print(f"{time.perf_counter() - began:.0f} s, {memory():.1f} GiB at most\n")
    print(f"picture:     {output / 'curve.png'}")
    print(f"adapters:    {', '.join(f'{adapters}/{agent}' for agent in TEAM.agents)}")
    print(f"play again:  {sys.executable} examples/quickstart/evaluate.py {output}")


def prepare(folder: Path, seed: int) -> Path:
    """The base model: it knows how a reply looks, and seldom which name it needs.

    Args:
        folder: Where it is written, as `base`.
        seed: Of the model and the demonstrations.

    Returns:
        Its folder.
    """
    say("1/3 A tiny model learns what replies look like from careless demonstrations")
    base = folder / "base"
    rows = [
        row
        for name in DEMONSTRATED
        for row in demonstrate(FORMS[name], number=DEMONSTRATIONS // len(DEMONSTRATED), seed=seed)
    ]
    random.Random(seed).shuffle(rows)
    tokenizer = make_tokenizer((m["content"] for row in rows for m in (*row["prompt"], *row["completion"])), APART)
    model = make_model(tokenizer, seed=seed)
    imitate(model, tokenizer, rows, base, rate=RATE, seed=seed)
    model.save_pretrained(base)
    tokenizer.save_pretrained(base)
    return base


def demonstrate(form: Form, *, number: int, seed: int, carelessness: float = CARELESSNESS) -> list[Demonstration]:
    """Play on instances of the train split and keep what was shown and what was replied.

    Args:
        form: What is played.
        number: How many demonstrations.
        seed: Draws instances and replies.
        carelessness: Probability that a reply names any of the names in its prompt instead of the right one, in
            [0, 1]; the right one may be among them.
    """
    rng = random.Random(f"demonstrations {seed}")
    env = form.env()
    kept: list[Demonstration] = []
    while len(kept) < number:
        env.reset(seed=FIRST_SEED + rng.randrange(FIRST_SEED))
        while not env.standing():
            shown, reply = env.observe(env.agent_selection), env.oracle()
            if rng.random() < carelessness:
                reply = NAME.sub(rng.choice(sorted(set(NAME.findall(shown["text"])))), reply)
            kept.append(demonstration(shown["system"], shown["text"], reply))
            env.step(reply)
    return kept[:number]


def make_trainer(
    base: Path,
    form: Form,
    *,
    output: Path,
    seed: int,
    training: Training | None = None,
    adapters: Path | None = None,
) -> MultiAgentGRPOTrainer:
    """A trainer with an adapter for each agent on the base model.

    Args:
        base: Folder of the base model and its tokenizer.
        form: What is played.
        output: Where the trainer may write.
        seed: Of the trainer.
        training: Settings of the training.
        adapters: Folder with an adapter for each agent, by its name; None for new ones.
    """
    training = training or Training()
    args = MultiAgentGRPOConfig(
        output_dir=str(output),
        per_device_train_batch_size=training.rows_per_step * training.num_candidates,
        num_generations=training.num_candidates,
        max_completion_length=8,
        max_steps=training.num_steps,
        learning_rate=training.learning_rate,
        seed=seed,
        **REINFORCEMENT,
    )
    return MultiAgentGRPOTrainer(
        load(base, {} if adapters is None else {agent: adapters / agent for agent in form.agents}),
        form.env,
        args,
        Dataset.from_dict({"seed": range(100_000)}),
        processing_class=AutoTokenizer.from_pretrained(base),
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
