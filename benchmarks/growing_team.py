"""A team that trains on candidates made up for it: a step of the trainer without a sampler. For bench_growth.py."""

from __future__ import annotations

import random
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import torch
from datasets import Dataset
from growth import Load
from peft import LoraConfig
from tokenizer_of_two import two_words
from transformers import PrinterCallback, Qwen3Config, Qwen3ForCausalLM, TrainerCallback

from pettingllms_trl import MultiAgentGRPOConfig, MultiAgentGRPOTrainer
from pettingllms_trl.records import Completion, Request, Sampled


VOCABULARY = 64


class MadeUp(MultiAgentGRPOTrainer):
    """Every request is answered with random ids, its prompt as long as it was told."""

    def told(self, load: Load, completion: int) -> MadeUp:
        """How long prompts and completions are."""
        self._load, self._length = load, completion
        return self

    def _sample(self, requests: Sequence[Request]) -> list[Sampled]:
        return [self._made_up(request) for request in requests]

    def _made_up(self, request: Request) -> Sampled:
        rng = random.Random(request.prompt.messages[0]["content"][:40])
        prompt = tuple(rng.choices(range(2, VOCABULARY), k=self._load.prompt))
        return Sampled(
            replace(request.prompt, ids=prompt),
            tuple(
                Completion(ids=tuple(rng.choices(range(2, VOCABULARY), k=self._length)), text=f"{rng.random():.6f}")
                for _ in range(request.num_candidates)
            ),
        )


class Seconds(TrainerCallback):
    """CPU seconds of each optimizer step."""

    def __init__(self) -> None:
        self.steps: list[float] = []

    def on_train_begin(self, *args: Any, **kwargs: Any) -> None:
        self._began = time.process_time()

    def on_step_end(self, *args: Any, **kwargs: Any) -> None:
        self.steps.append(time.process_time() - self._began)
        self._began = time.process_time()


def train(load: Load, make_team: Callable[[Load], Any], *, completion: int, num_steps: int) -> list[float]:
    """CPU seconds of each of so many optimizer steps."""
    with tempfile.TemporaryDirectory() as folder:
        seen = Seconds()
        several = load.policies > 1
        trainer = MadeUp(
            _model(),
            partial(make_team, load),
            MultiAgentGRPOConfig(
                folder,
                num_generations=load.candidates,
                per_device_train_batch_size=load.candidates,
                gradient_accumulation_steps=load.instances,
                max_completion_length=completion,
                max_steps=num_steps,
                logging_steps=10 * num_steps,
                save_strategy="no",
                report_to="none",
                disable_tqdm=True,
                gradient_checkpointing=False,
                bf16=False,
                use_cpu=True,
            ),
            Dataset.from_dict({"seed": list(range(load.instances * num_steps))}),
            processing_class=two_words(),
            policies={f"role{n}": f"policy{n % load.policies}" for n in range(load.roles)} if several else "shared",
            peft_config=LoraConfig(r=2, target_modules="all-linear", task_type="CAUSAL_LM"),
            callbacks=[seen],
        ).told(load, completion)
        trainer.remove_callback(PrinterCallback)
        trainer.train()
    return seen.steps


def _model() -> Qwen3ForCausalLM:
    torch.manual_seed(0)
    return Qwen3ForCausalLM(
        Qwen3Config(
            vocab_size=VOCABULARY,
            hidden_size=16,
            intermediate_size=32,
            num_hidden_layers=1,
            num_attention_heads=2,
            num_key_value_heads=1,
            head_dim=8,
            max_position_embeddings=16384,
            tie_word_embeddings=True,
            pad_token_id=0,
            eos_token_id=1,
            bos_token_id=None,
        )
    )
