"""Beside `bench_update.py`: the update of a generation in which some groups have no advantage, and are left out.

Late in training most groups are flat: all of their candidates are worth the same. The same generation goes through the
update with and without them, from the padding of rows to the last gradient, in turns; gradients are compared.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from figures import Figure

from pettingllms_trl import Candidate, Completion, Decision, MultiAgentGRPOTrainer, Prompt


NUM_GROUPS = 20
SHARES = (0.0, 0.5, 0.85)
"""Of the groups that are flat."""


@dataclass(frozen=True, slots=True)
class Shape:
    """Of a decision: tokens of its prompt and of each candidate, and how many these are."""

    prompt: int
    completion: int
    candidates: int

    @classmethod
    def parse(cls, text: str) -> Shape:
        """`"512x64x8"`."""
        return cls(*map(int, text.split("x")))

    @property
    def text(self) -> str:
        return f"{self.prompt}x{self.completion}x{self.candidates}"

    def __str__(self) -> str:
        return f"P={self.prompt} C={self.completion} K={self.candidates}"


def decisions_of(shape: Shape, vocabulary: int, agent: str) -> list[Decision]:
    """`NUM_GROUPS` decisions of one shape, each with a prompt of its own."""
    draw = torch.Generator().manual_seed(2)

    def tokens(number: int) -> tuple[int, ...]:
        return tuple(torch.randint(2, vocabulary, (number,), generator=draw).tolist())

    def candidate() -> Candidate:
        return Candidate(completion=Completion(ids=tokens(shape.completion), text=""), reward=0.0)

    return [
        Decision(
            instance=instance,
            episode=0,
            agent=agent,
            turn=0,
            prompt=Prompt([{"role": "user", "content": ""}], tokens(shape.prompt)),
            candidates=tuple(candidate() for _ in range(shape.candidates)),
            chosen=0,
        )
        for instance in range(NUM_GROUPS)
    ]


def advantages_of(shape: Shape, share: float) -> list[list[float]]:
    """Of each group's candidates: zeros in a share of the groups, else from -1 to 1."""
    spread = torch.linspace(-1, 1, shape.candidates).tolist()
    return [[0.0] * shape.candidates if group < share * NUM_GROUPS else spread for group in range(NUM_GROUPS)]


def update(trainer: MultiAgentGRPOTrainer, model: Any, decisions: Sequence[Decision], advantages: Any) -> None:
    """Gradients of a generation of one micro-step."""
    trainer.begin_table(0)
    learning = trainer.routing.trained
    (passes,) = trainer.builder.build(decisions, advantages, learning=learning, table=lambda _: {}).steps
    for batch in passes:
        with trainer.scorer.attending(batch["policy"]):
            trainer._compute_loss(model, batch).backward()


def compare_flat(
    trainer: MultiAgentGRPOTrainer, model: Any, shape: Shape, vocabulary: int, rounds: int, now: Callable[[], float]
) -> list[Figure]:
    """Rounds of both for each share, after one that is not counted. Prints a row for each share.

    Raises:
        RuntimeError: The gradients differ.
    """
    decisions = decisions_of(shape, vocabulary, next(iter(trainer.routing.of_agent)))
    chosen = trainer.builder.rows_without_gradient
    ways = {"all": lambda policy, decisions, advantages: frozenset[int](), "left out": chosen}
    model.train()
    trainer.current_gradient_accumulation_steps = 1
    figures = []
    print(f"{NUM_GROUPS} groups of {shape}{'all rows, s':>16s}{'left out, s':>13s}{'faster':>20s}{'grad err':>10s}")
    for share in SHARES:
        advantages = advantages_of(shape, share)
        seconds: dict[str, list[float]] = {name: [] for name in ways}
        gradients: dict[str, list[torch.Tensor]] = {}
        for _ in range(rounds + 1):
            for name, left_out in ways.items():
                trainer.builder.rows_without_gradient = left_out  # type: ignore[method-assign]
                model.zero_grad(set_to_none=False)
                began = now()
                update(trainer, model, decisions, advantages)
                seconds[name].append(now() - began)
                gradients[name] = [parameter.grad.clone() for parameter in model.parameters()]
        trainer.builder.rows_without_gradient = chosen  # type: ignore[method-assign]
        error = max(float((a - b).abs().max()) for a, b in zip(*gradients.values(), strict=True))
        if error > 1e-6:
            raise RuntimeError(f"gradients differ by {error:.1e} at {share:.0%} flat groups; expected at most 1e-6")
        ours, of_all = (tuple(seconds[name][1:]) for name in ("left out", "all"))
        ratios = [a / b for a, b in zip(of_all, ours, strict=True)]
        middles = statistics.median(of_all), statistics.median(ours)
        print(
            f"{share:26.0%} flat{middles[0]:16.3f}{middles[1]:13.3f}{statistics.median(ratios):8.2f}x"
            f" ({min(ratios):.2f}-{max(ratios):.2f}){error:10.0e}",
            flush=True,
        )
        name = f"update with {share:.0%} flat groups, {NUM_GROUPS} groups of {shape}"
        figures.append(Figure(name=name, unit="s", ours=ours, peer_name="with all rows", peer=of_all))
    return figures
