r"""Tokens trained per second, from prompts to new weights, beside TRL on the same prompts, samples and losses.

    OMP_NUM_THREADS=1 PYTHONPATH=. python benchmarks/bench_end_to_end.py [--size 0.4M] [--json FILE]

The task that both can do: Plan-Path with one walker who answers once. Ours plays the environment; TRL's `GRPOTrainer`
is given the same prompts, and plays the same reply in the same environment as its reward function. Both are paid for
letters, too, as random replies are all worth the same in the environment, and losses would say nothing. Where one
agent answers once, ours is `GRPOTrainer`: both sample as many tokens and come to the same losses, which is checked
(to rounding: with prompts read once, sums are in another order).

A round is a training of each, the order alternating; its first step warms up and is not counted. A token is a sampled
one that the loss was taken of. Seconds are the processor's on a CPU, the clock's on a GPU.
"""

from __future__ import annotations

import math
import statistics
import tempfile
import time
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest import mock

import torch
from bench_step import CANDIDATES, SIZES, arguments, letters, make_base
from datasets import Dataset
from figures import Figure, parser_of, write
from transformers import PrinterCallback, TrainerCallback
from trl import GRPOConfig, GRPOTrainer

import pettingllms_envs
from pettingllms_trl import MultiAgentGRPOConfig, MultiAgentGRPOTrainer
from pettingllms_trl.trainer import hooks


PROMPTS = 8
"""Instances of a step, each with `CANDIDATES` completions."""
OURS, NO_SHARING, TRL = "ours", "ours, shared_prefix=False", "TRL GRPOTrainer"
ONE_SAMPLER = "ours, samples as TRL does"
"""Each prompt is read for each of its candidates, and nothing is kept: what is left is the update's."""


def make_env() -> Any:
    """One walker, one answer."""
    return pettingllms_envs.make("plan_path", workflow="single", num_turns=1)


def prompts(number: int) -> list[list[dict[str, str]]]:
    """What the walker is shown, as the trainer writes it."""
    env, shown = make_env(), []
    for seed in range(number):
        env.reset(seed=seed)
        observation = env.observe(env.agent_selection)
        lead = [{"role": "system", "content": observation["system"]}] if observation.get("system") else []
        shown.append([*lead, {"role": "user", "content": observation["text"]}])
    return shown


class Reward:
    """The environment's own reward for a reply, as a reward function of TRL."""

    __name__ = "plan_path"

    def __init__(self) -> None:
        self.env = make_env()

    def __call__(self, completions: list[Any], seed: list[int], **_: Any) -> list[float]:
        """A step of a fresh instance for each completion."""
        rewards = []
        for completion, each in zip(completions, seed, strict=True):
            self.env.reset(seed=each)
            agent = self.env.agent_selection
            self.env.step(completion[0]["content"])
            rewards.append(float(self.env.rewards[agent]))
        return rewards


class Steps(TrainerCallback):
    """Seconds, tokens and loss of each optimizer step, from its log."""

    def __init__(self) -> None:
        self.steps: list[tuple[float, float, float]] = []

    def on_train_begin(self, *args: Any, **kwargs: Any) -> None:
        self._began = now()

    def on_log(self, args: Any, state: Any, control: Any, logs: Mapping[str, float], **kwargs: Any) -> None:
        if "loss" in logs:
            tokens = logs["completions/mean_length"] * PROMPTS * CANDIDATES
            self.steps.append((now() - self._began, tokens, logs["loss"]))
            self._began = now()


@dataclass(frozen=True, slots=True)
class Trained:
    """What one training gave: the steps that are counted, and every step's loss."""

    seconds: float
    tokens: float
    losses: tuple[float, ...]

    @property
    def rate(self) -> float:
        """Tokens trained per second."""
        return self.tokens / self.seconds


def now() -> float:
    """Seconds; on a GPU, when all that was given to it is done."""
    if not torch.cuda.is_available():
        return time.process_time()
    torch.cuda.synchronize()
    return time.perf_counter()


def trained(trainer: GRPOTrainer) -> Trained:
    """Train, and count all steps but the first."""
    seen = Steps()
    trainer.add_callback(seen)
    trainer.remove_callback(PrinterCallback)
    trainer.train()
    counted = seen.steps[1:]
    losses = tuple(loss for _, _, loss in seen.steps)
    return Trained(sum(step[0] for step in counted), sum(step[1] for step in counted), losses)


def contenders(base: Path, *, num_steps: int, length: int) -> dict[str, Callable[[], GRPOTrainer]]:
    """A function that makes the trainer, by who it is."""
    options = arguments(base, num_steps=num_steps, length=length, passes=PROMPTS * CANDIDATES // 8)
    options |= {"generation_kwargs": {"min_new_tokens": length // 2}, "seed": 7}
    seeds = list(range(PROMPTS * num_steps))

    def ours(shared_prefix: bool) -> GRPOTrainer:
        args = MultiAgentGRPOConfig(**options, shared_prefix=shared_prefix)
        return MultiAgentGRPOTrainer(
            str(base), make_env, args, Dataset.from_dict({"seed": seeds}), reward_funcs=letters
        )

    def trls() -> GRPOTrainer:
        rows = Dataset.from_dict({"prompt": prompts(len(seeds)), "seed": seeds})
        return GRPOTrainer(str(base), reward_funcs=[Reward(), letters], args=GRPOConfig(**options), train_dataset=rows)

    return {OURS: lambda: ours(True), ONE_SAMPLER: lambda: ours(True), NO_SHARING: lambda: ours(False), TRL: trls}


def race(base: Path, *, rounds: int, num_steps: int, length: int) -> dict[str, list[Trained]]:
    """Every contender in turn, the order alternating.

    Raises:
        RuntimeError: Two of them did not train on the same: their losses differ, or the number of their tokens.
    """
    found: dict[str, list[Trained]] = {}
    made = contenders(base, num_steps=num_steps, length=length)
    for number in range(rounds):
        for name in made if number % 2 else reversed(made):
            with mock.patch.object(hooks, "prompts_read_once", _plainly) if name == ONE_SAMPLER else nullcontext():
                found.setdefault(name, []).append(trained(made[name]()))
    check(found)
    return found


def _plainly(*_: Any) -> AbstractContextManager[None]:
    return nullcontext()


def check(found: Mapping[str, list[Trained]]) -> None:
    """That all of them trained on the same tokens, to the same losses."""
    theirs = found[TRL][0]
    for name, trainings in found.items():
        for each in trainings:
            pairs = zip(theirs.losses, each.losses, strict=True)
            if each.tokens != theirs.tokens or not all(math.isclose(*pair, rel_tol=1e-3) for pair in pairs):
                raise RuntimeError(
                    f"{name} trained on {each.tokens:.0f} tokens to the losses {each.losses}, TRL on "
                    f"{theirs.tokens:.0f} to {theirs.losses}; expected the same, or there is nothing to compare."
                )


def main() -> None:
    """Race and print."""
    parser = parser_of(__doc__)
    parser.add_argument("--size", choices=SIZES, default="0.4M")
    parser.add_argument("--length", type=int, default=32, help="tokens of a completion, at most (32)")
    parser.add_argument("--steps", type=int, default=2, help="steps that are counted, of each training (2)")
    parser.add_argument("--rounds", type=int, default=3, help="trainings of each (3)")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        base = Path(folder)
        make_base(base, [message["content"] for prompt in prompts(64) for message in prompt], given.size)
        found = race(base, rounds=given.rounds, num_steps=given.steps + 1, length=given.length)
    print(f"{given.size}, {PROMPTS} prompts x {CANDIDATES}, {given.length} tokens; tokens trained a second")
    rates = {name: tuple(each.rate for each in trainings) for name, trainings in found.items()}
    for name, rounds in rates.items():
        print(f"{name:28s}{statistics.median(rounds):9.0f} ({min(rounds):.0f}-{max(rounds):.0f})")
    setting = f"{given.size}, {PROMPTS} x {CANDIDATES} x {given.length}"
    write(
        given.json,
        [
            Figure(
                name=f"trained, {name}, {setting}",
                unit="tokens/s",
                ours=rates[name],
                peer_name=TRL,
                peer=rates[TRL],
                better="more",
            )
            for name in (OURS, ONE_SAMPLER, NO_SHARING)
        ],
    )


if __name__ == "__main__":
    main()
