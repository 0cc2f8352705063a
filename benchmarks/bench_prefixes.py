"""Sampling by `generate` for agents that remember their turns: prompts read whole, and from where they go on.

    PYTHONPATH=. python benchmarks/bench_prefixes.py models/smollm2-135m [--episodes 64] [--reply 16] [--batch 64]

Sokoban in six turns with `history="conversation"`, greedily, in float32, one thread. Both ways take turns; printed
are the positions of prompts that the model computes (padding included), seconds of a processor, and how many replies
differ.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from functools import partial
from typing import Any

import torch
from datasets import Dataset
from transformers import AutoModelForCausalLM, AutoTokenizer

import pettingllms_envs
from pettingllms_trl import MultiAgentGRPOConfig, MultiAgentGRPOTrainer


def trainer_of(given: argparse.Namespace, folder: str, *, shared_prefix: bool) -> Any:
    """Plays; it never trains."""
    return MultiAgentGRPOTrainer(
        AutoModelForCausalLM.from_pretrained(given.model, dtype=torch.float32),
        partial(pettingllms_envs.make, "sokoban", workflow="draft_plan", num_turns=6),
        MultiAgentGRPOConfig(
            folder,
            history="conversation",
            shared_prefix=shared_prefix,
            max_envs=given.batch,
            max_completion_length=given.reply,
            generation_kwargs={"do_sample": False},
            num_generations=2,
            per_device_train_batch_size=2,
            report_to="none",
            use_cpu=True,
            bf16=False,
        ),
        Dataset.from_dict({"seed": [*range(given.episodes)]}),
        processing_class=AutoTokenizer.from_pretrained(given.model),
    )


def played(trainer: Any, rows: list[dict[str, int]]) -> tuple[float, int, list[tuple[int, ...]], int]:
    """Seconds, positions of prompts that were computed, the replies, and the tokens of their prompts."""
    positions = 0

    def count(module: Any, args: Any, kwargs: Any) -> None:
        nonlocal positions
        ids = kwargs["input_ids"]
        positions += ids.numel() if ids.shape[1] > 1 else 0

    handle = trainer.model.register_forward_pre_hook(count, with_kwargs=True)
    began = time.process_time()
    episodes = trainer.play(rows)
    seconds = time.process_time() - began
    handle.remove()
    decisions = [decision for episode in episodes for decision in episode.decisions]
    replies = [tuple(each.candidates[0].completion.ids) for each in decisions]
    return seconds, positions, replies, sum(len(each.prompt.ids) for each in decisions)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("--episodes", type=int, default=64)
    parser.add_argument("--batch", type=int, default=64, help="episodes at once")
    parser.add_argument("--reply", type=int, default=16, help="tokens of a reply")
    parser.add_argument("--rounds", type=int, default=1)
    given = parser.parse_args()
    torch.set_num_threads(1)
    rows = [{"seed": seed} for seed in range(given.episodes)]
    with tempfile.TemporaryDirectory() as folder:
        ways = {shared: trainer_of(given, folder, shared_prefix=shared) for shared in (False, True)}
        for _ in range(given.rounds):
            whole, on = (played(trainer, rows) for trainer in ways.values())
            differ = sum(a != b for a, b in zip(whole[2], on[2], strict=True))
            print(
                f"{len(rows)} episodes, {len(on[2])} prompts, {on[3]} tokens: {whole[1]} positions, {whole[0]:.1f} s, "
                f"with the cache {on[1]} ({on[1] / whole[1]:.2f}, {on[1] / on[3]:.2f} of the tokens), {on[0]:.1f} s "
                f"({on[0] / whole[0]:.2f}); {differ} replies differ",
                flush=True,
            )


if __name__ == "__main__":
    main()
