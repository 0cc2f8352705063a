"""Runs of the workflow `designed` as M x N, whose tiny model's replies are replaced by readable ones."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import pettingllms_envs
from mortal import Mortal, mortal
from pettingllms_envs.teams.designs import Design, Member, write_design
from pettingllms_trl.testing import byte_tokenizer, save_tiny_model
from short_runs import around_generation


SIZE = 3
ENV = partial(pettingllms_envs.make, "plan_path", workflow="designed", size=SIZE, max_members=2)
DESIGNS = (
    Design((Member("Walk."),)),
    Design((Member("Plan."), Member("Walk.", (0,)))),
    Design((Member("Look."), Member("Walk."))),
)
M_BY_N = {
    "num_generations": 3,
    "num_continuations": 2,
    "train_continuations": True,
    "continuation_group": "candidate",
    "branch_at": ["designer"],
    "credit": "counterfactual",
    "per_device_train_batch_size": 6,
}


def roomy_model(folder: Path) -> str:
    """A tiny model with room for the designer's prompt, a token for each byte."""
    return save_tiny_model(folder, byte_tokenizer(), max_position_embeddings=4096)


def designed(model: str, path: Path, **options: Any) -> Mortal:
    """A trainer on 2 rows of 3 designs, each executed twice. Which reply it is follows from what was sampled."""
    trainer = mortal(model, path, env=ENV, **{**M_BY_N, **options})
    encode = trainer.processing_class
    end = [encode.eos_token_id]
    designs = [encode(write_design(design))["input_ids"] + end for design in DESIGNS]
    moves = [encode(f"Moves: {' '.join(letters)}")["input_ids"] + end for letters in ("UU", "DD", "LL", "RR", "DR")]

    def readable(prompts: Any, sample: Any) -> Any:
        ids, logprobs, *rest = sample()
        texts = [encode.decode(prompt) for prompt in prompts]
        replies = [designs if "You are the designer." in text else moves for text in texts]
        ids = [known[sum(reply) % len(known)] for known, reply in zip(replies, ids, strict=True)]
        return (ids, None if logprobs is None else [[-1.0] * len(each) for each in ids], *rest)

    around_generation(trainer, readable)
    return trainer
