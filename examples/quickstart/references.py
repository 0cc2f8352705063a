"""Trains what the quickstart's picture compares its team with, and writes it down: references.json, 15 minutes.

    python examples/quickstart/references.py [--output examples/quickstart/references.json]

From the same base model, with as many tokens as the team generates in its training:

* the team by expert iteration: it imitates the best candidate of each of its own decisions;
* the team by supervision: it imitates right replies, which no reinforcement learning is shown;
* one agent that may read both archives, told which one is next or not, by AT-GRPO with the team's settings.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any


os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("OMP_NUM_THREADS", "1")

from dataclasses import replace

from archives import (
    ALONE,
    BASE,
    EXPERT_ITERATION,
    LORA,
    REFERENCES,
    SUPERVISED,
    TEAM,
    Training,
    held_out,
    make_trainer,
    successes,
    train,
)
from training import LAPTOP, CountTokens, positive, quiet, say
from transformers import AutoTokenizer
from trl import SFTConfig

from pettingllms_trl.policies.routing import route
from pettingllms_trl.sft.warm_up import warm_up


sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks" / "studies"))

from demonstrations import right


def main() -> None:
    """Train the team for its number of tokens, then each of the others."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--output", type=Path, default=REFERENCES)
    parser.add_argument("--episodes", type=positive, default=500)
    parser.add_argument("--steps", type=positive, default=Training.num_steps, help="optimizer steps of the team")
    parser.add_argument("--tokens", type=positive, help="what each generates; default: what the team's training does")
    options = parser.parse_args()
    quiet()
    written: dict[str, Mapping[str, Any]] = {}
    settings = Training(num_steps=options.steps)

    def keep(name: str, tokens: int, trainer: Any) -> None:
        row = {"seed": options.seed, "tokens": tokens, "successes": successes(held_out(trainer, options.episodes))}
        written[name] = row
        options.output.write_text(json.dumps(written, indent=1) + "\n")

    with tempfile.TemporaryDirectory() as name:
        folder, budget = Path(name), options.tokens
        if budget is None:
            say("The team trains")
            train(
                make_trainer(TEAM, output=folder / "team", seed=options.seed, training=settings),
                counter := CountTokens(),
            )
            budget = counter.total

        for form in ALONE:
            say(f"{form.title} trains")
            trainer = make_trainer(form, output=folder / form.workflow, seed=options.seed, training=settings)
            train(trainer, counter := CountTokens(budget))
            keep(form.title, counter.total, trainer)

        say(SUPERVISED)
        tokens = _supervise(folder / "supervised", budget, options.seed)
        keep(
            SUPERVISED,
            tokens,
            make_trainer(TEAM, output=folder / "of_supervised", seed=0, adapters=folder / "supervised"),
        )

        say(EXPERT_ITERATION)
        # In the study of credit this rate was within a point of the best.
        imitating = replace(settings, imitate_tokens=budget, learning_rate=5e-4)
        trainer = make_trainer(TEAM, output=folder / "imitated", seed=options.seed, training=imitating)
        train(trainer, CountTokens())  # which counts the tokens of logs, one a round
        keep(EXPERT_ITERATION, trainer.rounds.num_generated, trainer)


def _supervise(folder: Path, budget: int, seed: int) -> int:
    """Write adapters that have imitated right replies of as many tokens, once; return how many they are."""
    tokenizer = AutoTokenizer.from_pretrained(BASE)
    demonstrations, tokens = [], 0
    for each in right(TEAM.env(), range(seed * 10_000_000, (seed + 1) * 10_000_000)):
        demonstrations.append(each)
        tokens += len(tokenizer(each.reply, add_special_tokens=False)["input_ids"]) + 1
        if tokens >= budget:
            break
    args = SFTConfig(
        output_dir=str(folder),
        per_device_train_batch_size=32,
        learning_rate=2e-3,
        num_train_epochs=1,
        seed=seed,
        **LAPTOP,
    )
    agents = TEAM.env().possible_agents
    routing = route({agent: agent for agent in TEAM.agents}, agents, model=str(BASE))
    warm_up(str(BASE), demonstrations, routing, args, peft_config=LORA)
    return tokens


if __name__ == "__main__":
    main()
