"""Makes and trains a model of 0.3M parameters that plays Hanabi, for benchmarks/hanabi_partners.py.

It imitates careless games of a bot, which draws its hints, so that no convention is shown to it. Then AT-GRPO
trains it in self-play: one policy in both seats.
"""

from __future__ import annotations

import random
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any


sys.path.insert(0, str(Path(__file__).parent / "studies"))

import torch
from bases import Imitation, Row, make_tokenizer
from datasets import Dataset
from hanabi_team import SETTINGS, TEAM, Options, Table
from training import FIRST_SEED, REINFORCEMENT, CountTokens, quiet
from transformers import AutoModelForCausalLM, AutoTokenizer, PrinterCallback, ProgressCallback

from pettingllms_envs import hanabi_v0
from pettingllms_trl import MultiAgentGRPOConfig, MultiAgentGRPOTrainer


APART = r"(?<![+_0-9])[0-9]+"
"""What stands alone in the tokenizer: ranks, also those that a card may have, and counts, but no name of a player."""
DEMONSTRATOR, CARELESSNESS, DEMONSTRATIONS = "outer", 0.1, 15_000
"""Whose replies are imitated, the share of random moves in those games, and how many replies."""
BASE_SEED = 100
GROUP, ROWS = 8, 8
MAX_COMPLETION = 8

__all__ = ["Scores", "imitate", "player", "quiet", "train"]


class Scores(CountTokens):
    """Keeps the mean score of each step's games, too: those in which the best of a decision's candidates is played."""

    def __init__(self) -> None:
        super().__init__()
        self.scores: list[float] = []

    def on_log(self, args: Any, state: Any, control: Any, logs: dict[str, Any], **kwargs: Any) -> None:
        super().on_log(args, state, control, logs, **kwargs)
        if "outcome/score" in logs:
            self.scores.append(round(logs["outcome/score"], 3))


def demonstrations(number: int, seed: int) -> Iterator[Row]:
    """Prompts and replies of careless games, in both seats."""
    rng = random.Random(f"demonstrations {seed}")
    while number:
        state, is_over = TEAM.start(TEAM.task.generate(FIRST_SEED + rng.randrange(FIRST_SEED))), False
        while not is_over and number:
            actor = TEAM.actor(state)
            reply = TEAM.bot(state, "random" if rng.random() < CARELESSNESS else DEMONSTRATOR)
            yield TEAM.system(actor), TEAM.observe(state, actor), reply
            state, _, is_over, _ = TEAM.step(state, reply)
            number -= 1


def imitate(folder: Path, seed: int = BASE_SEED) -> None:
    """Write a model with its tokenizer that has imitated `DEMONSTRATIONS` replies."""
    rows = list(demonstrations(DEMONSTRATIONS, seed))
    random.Random(seed).shuffle(rows)
    tokenizer = make_tokenizer((text for row in rows[:2000] for text in row), APART)
    imitation = Imitation(tokenizer, seed=seed)
    imitation.learn(rows, rate=2e-3, warm_up=20, batch=32)
    imitation.model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)


def train(base: Path, folder: Path, options: Options, seed: int) -> Scores:
    """Train the model of a folder in self-play, write it to another one, and return the course."""
    scores = Scores()
    args = MultiAgentGRPOConfig(
        output_dir=str(folder / "run"),
        per_device_train_batch_size=GROUP * ROWS,
        num_generations=GROUP,
        max_completion_length=MAX_COMPLETION,
        max_steps=options.steps,
        learning_rate=options.rate,
        seed=seed,
        **{**REINFORCEMENT, "disable_tqdm": True},
    )
    trainer = MultiAgentGRPOTrainer(
        AutoModelForCausalLM.from_pretrained(base, dtype="float32"),
        lambda: hanabi_v0.env(**SETTINGS),
        args,
        Dataset.from_dict({"seed": range(100_000)}),
        processing_class=AutoTokenizer.from_pretrained(base),
        policies="shared",
        credit={"at_grpo": {"value": options.value}},
        callbacks=[scores],
    )
    for callback in (ProgressCallback, PrinterCallback):
        trainer.remove_callback(callback)
    trainer.train()
    trainer.save_model(str(folder))
    return scores


def player(folder: Path, *, greedy: bool = False) -> Callable[[Sequence[Table]], list[str]]:
    """The model of a folder as a player: sampled as in training, or its most likely replies."""
    torch.manual_seed(0)
    torch.set_num_threads(1)
    model = AutoModelForCausalLM.from_pretrained(folder, dtype="float32").eval()
    tokenizer = AutoTokenizer.from_pretrained(folder)
    how = {"do_sample": False} if greedy else {"do_sample": True, "temperature": 1.0, "top_k": 0, "top_p": 1.0}

    @torch.no_grad()
    def replies(tables: Sequence[Table]) -> list[str]:
        actors = [TEAM.actor(table) for table in tables]
        messages = [
            [
                {"role": "system", "content": TEAM.system(actor)},
                {"role": "user", "content": TEAM.observe(table, actor)},
            ]
            for table, actor in zip(tables, actors, strict=True)
        ]
        given = tokenizer.apply_chat_template(
            messages, add_generation_prompt=True, padding=True, return_tensors="pt", return_dict=True
        )
        found = model.generate(**given, max_new_tokens=MAX_COMPLETION, **how)
        return list(tokenizer.batch_decode(found[:, given["input_ids"].shape[1] :], skip_special_tokens=True))

    return replies
