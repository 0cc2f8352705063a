"""A training step end to end, of agents that remember their turns and of such that do not: rollout, and the update
by prompt and by conversation.

    PYTHONPATH=. python benchmarks/bench_histories.py [--rows 2] [--reply 32] [--rounds 3]

The faster update of `bench_update.py --tree` is a part of a step, most of which is sampling. Four tasks, each with
prompts that stand for themselves and with `history="conversation"`, by a random model of 0.4M parameters and its
embeddings; seconds of a processor, one thread, the update's the median of rounds in turn. No row is left out.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import Any
from unittest.mock import patch

import torch
from conversation_updates import packed_as
from datasets import Dataset
from token_cost import tokenizer_like_qwens
from transformers import Qwen3Config, Qwen3ForCausalLM

import pettingllms_envs
from pettingllms_trl import Decision, MultiAgentGRPOConfig, MultiAgentGRPOTrainer
from pettingllms_trl.update import builder
from pettingllms_trl.update.packing.conversations import NONE, sizes_of


TASKS: Mapping[str, tuple[str, dict[str, Any]]] = {
    "archives, 2 hops": ("archives", {"workflow": "team", "hops": 2, "size": 8, "results": 2}),
    "Plan-Path, 4 turns": ("plan_path", {"workflow": "draft_plan", "num_turns": 4}),
    "Sokoban, 6 turns": ("sokoban", {"workflow": "draft_plan", "num_turns": 6}),
    "code, 4 turns": ("apps", {"workflow": "coder_tester", "num_turns": 4}),
}
CANDIDATES = 8


def trainer_of(task: str, history: str, given: argparse.Namespace, tokenizer: Any, folder: str) -> Any:
    """With all of a generation's rows in one micro-step, none of them left out."""
    name, options = TASKS[task]
    torch.manual_seed(0)
    config = Qwen3Config(
        vocab_size=len(tokenizer), hidden_size=96, intermediate_size=288, num_hidden_layers=3, num_attention_heads=6,
        num_key_value_heads=6, head_dim=16, tie_word_embeddings=True, max_position_embeddings=32768,
        pad_token_id=tokenizer.pad_token_id, eos_token_id=tokenizer.eos_token_id, bos_token_id=None,
    )  # fmt: skip
    trainer = MultiAgentGRPOTrainer(
        Qwen3ForCausalLM(config),
        partial(pettingllms_envs.make, name, **options),
        MultiAgentGRPOConfig(
            folder,
            history=history,
            per_device_train_batch_size=CANDIDATES * given.rows,
            steps_per_generation=1,
            gradient_accumulation_steps=1,
            num_generations=CANDIDATES,
            max_completion_length=given.reply,
            report_to="none",
            use_cpu=True,
            bf16=False,
            gradient_checkpointing=False,
        ),
        Dataset.from_dict({"seed": [*range(given.rows)]}),
        processing_class=tokenizer,
    )
    trainer.builder.rows_without_gradient = lambda *_: frozenset()
    return trainer


@contextmanager
def each_prompt_once() -> Iterator[None]:
    """As if no prompt went on from another."""
    alone = lambda *rows: [replace(size, later=NONE, onward=NONE) for size in sizes_of(*rows)]  # noqa: E731
    with patch.object(builder, "sizes_of", alone), packed_as("prompts"):
        yield


def update(trainer: Any, decisions: Sequence[Decision]) -> float:
    """Gradients of a generation; the share of its tokens that is read."""
    spread = [torch.linspace(-1, 1, len(each.candidates)).tolist() for each in decisions]
    trainer.begin_table(0)
    batches = trainer.builder.build(decisions, spread, learning=trainer.routing.trained, table=lambda _: {})
    trainer.model.train()
    for batch in (batch for step in batches.steps for batch in step):
        with trainer.scorer.attending(batch["policy"]):
            trainer._compute_loss(trainer.model, batch).backward()
    trainer.model.zero_grad()
    return float(batches.num_tokens_read / batches.num_tokens)


def measured(task: str, history: str, given: argparse.Namespace, tokenizer: Any) -> str:
    """A row of the table."""
    with tempfile.TemporaryDirectory() as folder:
        trainer = trainer_of(task, history, given, tokenizer, folder)
        trainer.current_gradient_accumulation_steps = 1
        began = time.process_time()
        rows = [{"seed": seed} for seed in range(given.rows)]
        decisions = trainer.collector.collect(rows, name="rollout", learning=trainer.routing.trained).decisions
        rollout = time.process_time() - began
        by_prompt, by_conversation, read = list[float](), list[float](), 0.0
        for _ in range(given.rounds):
            began = time.process_time()
            with each_prompt_once():
                update(trainer, decisions)
            by_prompt.append(time.process_time() - began)
            began = time.process_time()
            read = update(trainer, decisions)
            by_conversation.append(time.process_time() - began)
    before, now = statistics.median(by_prompt), statistics.median(by_conversation)
    prompt = statistics.fmean(len(each.prompt.ids) for each in decisions)
    return (
        f"| {task}, {history} | {len(decisions)} | {prompt:.0f} | {read:.0%} | {rollout:.1f} | {before:.1f} |"
        f" {now:.1f} | {before / now:.2f}x | {(rollout + before) / (rollout + now):.2f}x |"
    )


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=2)
    parser.add_argument("--reply", type=int, default=32, help="tokens of a reply")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--tasks", nargs="+", choices=TASKS, default=list(TASKS))
    given = parser.parse_args()
    torch.set_num_threads(1)
    tokenizer = tokenizer_like_qwens()
    print(
        "| task, history | decisions | prompt | tokens read | rollout s | update by prompt s | now s | update | step |"
    )
    print("|---|---|---|---|---|---|---|---|---|")
    for task in given.tasks:
        for history in ("none", "conversation"):
            print(measured(task, history, given, tokenizer), flush=True)


if __name__ == "__main__":
    main()
