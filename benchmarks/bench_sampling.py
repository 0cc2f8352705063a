"""Real vLLM beside the trainer: do sampler and trainer agree at every step, and what does it gain over `generate`?

    OMP_NUM_THREADS=1 PYTHONPATH=.:examples/quickstart python benchmarks/bench_sampling.py

A drafter and a planner walk 10x10 grids with a small random Qwen3, made here, in float32; a share of letters is
rewarded besides, so that they learn something. For each layout 20 optimizer steps are taken. Printed is, of each, the
largest difference between the log-probability of a sampled token under vLLM, which sampled it, and under the trainer,
before its update; and for comparison, by how much the last update moved those of the tokens it was trained on, which
is what weights of one step before would be off by. Then the same prompts are answered by vLLM and by `generate` in
turn.
"""

from __future__ import annotations

import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pettingzoo
import torch
from bench_step import letters
from datasets import Dataset
from figures import Figure, parser_of, write
from peft import LoraConfig
from tiny import make_tokenizer
from transformers.utils import logging

from pettingllms_envs.prompts import read_observation
from pettingllms_trl import MultiAgentGRPOConfig, MultiAgentGRPOTrainer, Policy
from pettingllms_trl.engines.prefix_cache import PrefixCache
from pettingllms_trl.engines.transformers import LocalSampler
from pettingllms_trl.records import Prompt, Request
from pettingllms_trl.testing import save_tiny_model


ENV = "pettingllms/plan_path-v0"
GOAL = 1e-3  # float32 rounding alone is some 1e-6
NUM_CANDIDATES = 8
LAYOUTS: dict[str, Callable[[str], dict[str, Any]]] = {
    "L2": lambda path: {"policies": "lora"},
    "L3": lambda path: {"policies": "full"},
    "mixture": lambda path: {"policies": {"drafter": "drafter", "planner": Policy(model=path)}},
    "L2 at temperatures 0.7 and 1": lambda path: {
        "policies": "lora",
        "role_sampling": {"drafter": {"temperature": 0.7}},
    },
    "L2, planner frozen": lambda path: {"policies": {"drafter": "drafter", "planner": Policy(trainable=False)}},
}


class Compared(MultiAgentGRPOTrainer):
    """Keeps, for each optimizer step, the largest difference between sampler and trainer."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self.differences: dict[int, float] = {}
        self._last: dict[str, dict[str, Any]] = {}
        super().__init__(*args, **kwargs)

    def score_rows(self, policy: str, *args: Any, **kwargs: Any) -> dict[str, Any]:
        batch = super().score_rows(policy, *args, **kwargs)
        self._last[policy] = batch
        step = self.state.global_step
        difference = _largest(batch, batch["old_per_token_logps"])
        self.differences[step] = max(self.differences.get(step, 0.0), difference)
        return batch

    def moved(self) -> float:
        """By how much the last update changed a log-probability of its own tokens."""
        largest = 0.0
        for name, batch in self._last.items():
            self.activate(name)
            ids = torch.cat([batch["prompt_ids"], batch["completion_ids"]], dim=1)
            mask = torch.cat([batch["prompt_mask"], batch["completion_mask"]], dim=1)
            with torch.no_grad():
                now, _, _ = self._get_per_token_logps_and_entropies(
                    self.model, ids, mask, batch["completion_ids"].size(1)
                )
            largest = max(largest, _largest(batch, now))
        return largest


def _largest(batch: dict[str, Any], logps: torch.Tensor) -> float:
    return float(((logps - batch["sampling_per_token_logps"]).abs() * batch["completion_mask"]).max())


def prompts(number: int) -> list[tuple[str, list[dict[str, str]]]]:
    """The first prompt of as many instances, by the agent that gets it."""
    env = pettingzoo.make("aec", ENV)
    found = []
    for seed in range(number):
        env.reset(seed=seed)
        agent = env.agent_selection
        found.append((agent, read_observation(env.observe(agent), agent=agent).messages))
    return found


def make_model(path: Path) -> str:
    """A random model and a tokenizer fitted to the prompts, on disk."""
    tokenizer = make_tokenizer(message["content"] for _, prompt in prompts(200) for message in prompt)
    # Heads of 64, the least that vLLM's kernels for CPUs take.
    sizes = {"hidden_size": 128, "head_dim": 64, "max_position_embeddings": 2048}
    return save_tiny_model(path, tokenizer, **sizes, initializer_range=0.1)


def make_trainer(path: str, output_dir: Path, *, num_steps: int, **layout: Any) -> Compared:
    """A trainer with engines of its own."""
    adapters = layout["policies"] != "full"
    args = MultiAgentGRPOConfig(
        str(output_dir),
        use_vllm=True,
        vllm_max_model_length=1024,
        num_generations=4,
        per_device_train_batch_size=8,
        max_completion_length=16,
        max_turns=1,
        learning_rate=5e-3,
        lr_scheduler_type="constant",
        max_steps=num_steps,
        logging_steps=100,
        save_strategy="no",
        report_to="none",
        disable_tqdm=True,
        use_cpu=True,
        bf16=False,
        role_sampling=layout.pop("role_sampling", None),
    )
    return Compared(
        path,
        ENV,
        args,
        Dataset.from_dict({"seed": range(1000)}),
        reward_funcs=letters,
        peft_config=LoraConfig(r=8, target_modules="all-linear", task_type="CAUSAL_LM") if adapters else None,
        **layout,
    )


def answer(engine: Any, requests: Sequence[Request], name: str) -> int:
    """Tokens sampled for all of them."""
    answered = []
    with engine.rollout(name):
        for ticket, request in enumerate(requests):
            engine.submit(ticket, request)
        while len(answered) < len(requests):
            answered.extend(engine.step())
    return sum(len(completion.ids) for _, sampled in answered for completion in sampled.completions)


def speeds(trainer: Compared, *, num_prompts: int, rounds: int) -> dict[str, tuple[float, ...]]:
    """Tokens per second of each sampler, on the same prompts and weights in turn, round by round."""
    requests = [Request(agent, Prompt(prompt), NUM_CANDIDATES) for agent, prompt in prompts(num_prompts)]
    found: dict[str, list[float]] = {"vLLM": [], "generate": []}
    generate = LocalSampler(
        trainer.team,
        trainer.codecs,
        PrefixCache(max_bytes=0),
        activate=trainer.activate,
        generate=trainer.generate,
    )
    trainer.engines.sync()
    for number in range(rounds + 1):
        began = time.perf_counter()
        num_tokens = answer(trainer.engines.engine_set.engine, requests, str(number))
        found["vLLM"].append(num_tokens / (time.perf_counter() - began))
        trainer.use_vllm = False  # TRL's own way to sample
        began = time.perf_counter()
        answers = generate(requests)
        num_tokens = sum(len(completion.ids) for sampled in answers for completion in sampled.completions)
        found["generate"].append(num_tokens / (time.perf_counter() - began))
        trainer.use_vllm = True
    return {name: tuple(values[1:]) for name, values in found.items()}  # the first one warms up


def main() -> int:
    """Prints both tables. Status 1 where a difference is above the goal."""
    parser = parser_of(__doc__)
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--rounds", type=int, default=3, help="of the samplers' race")
    parser.add_argument("--only", default="", help="layouts with this text in their names")
    given = parser.parse_args()
    logging.set_verbosity_error()
    largest, kept, figures = 0.0, [], list[Figure]()
    with tempfile.TemporaryDirectory() as folder:
        path = make_model(Path(folder) / "model")
        for name, layout in LAYOUTS.items():
            if given.only not in name:
                continue
            trainer = make_trainer(path, Path(folder) / "run", num_steps=given.steps, **layout(path))
            kept.append(trainer)  # an engine that is forgotten takes the process groups of the others along
            trainer.train()
            steps = [trainer.differences[step] for step in range(given.steps)]
            largest = max([largest, *steps])
            figures.append(
                Figure(
                    name=f"sampler beside trainer, {name}, largest difference of log-probabilities",
                    unit="",
                    ours=(max(steps),),
                    better="neither",
                    goal=f"<= {GOAL:g}",
                    met=max(steps) <= GOAL,
                )
            )
            print(
                f"{name}: largest |log-prob(train) - log-prob(vLLM)| of {given.steps} steps {max(steps):.1e};", end=" "
            )
            print(f"the last update moved them by up to {trainer.moved():.1e}")
            print("   " + " ".join(f"{value:.1e}" for value in steps), flush=True)
            if name in ("L2", "L3") and given.rounds:
                for num_prompts in (1, 4, 16):
                    race = speeds(trainer, num_prompts=num_prompts, rounds=given.rounds)
                    figures.append(
                        Figure(
                            name=f"sampling, {name}, {num_prompts} prompts x {NUM_CANDIDATES}",
                            unit="tokens/s",
                            ours=race["vLLM"],
                            peer_name="TRL, transformers generate",
                            peer=race["generate"],
                            better="more",
                        )
                    )
                    medians = {sampler: statistics.median(rounds) for sampler, rounds in race.items()}
                    rates = ", ".join(f"{sampler} {rate:,.0f}" for sampler, rate in medians.items())
                    gain = medians["vLLM"] / medians["generate"]
                    print(f"   tokens/s, {num_prompts} prompts x {NUM_CANDIDATES}: {rates} ({gain:.2f}x)", flush=True)
    write(given.json, figures)
    return int(largest > GOAL)


if __name__ == "__main__":
    sys.exit(main())
