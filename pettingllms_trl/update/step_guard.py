"""`StepGuard`: an optimizer step whose loss or gradient is not finite is not taken, and too many of them end the run.

It keeps the losses of the optimizer step in progress with their batches, whose columns say which decisions they are
of, and the record of the steps that were skipped. DeepSpeed steps by itself; with it the first one ends the run.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from pettingllms_trl.records import Decision


MOST_SKIPPED_IN_A_ROW = 2
MOST_SKIPPED_LATELY = 5
LATELY = 100
MOST_NAMED = 20
"""Decisions that an error names."""


class StepGuard:
    """The losses of the optimizer step in progress, and which of the last steps were skipped.

    Args:
        agents: In the order of the column `agent` of batches.
    """

    def __init__(self, agents: Sequence[str]) -> None:
        self._agents = list(agents)
        self._passes: list[tuple[torch.Tensor, Mapping[str, Any]]] = []
        self.skips = SkipRecord()

    def add(self, loss: torch.Tensor, batch: Mapping[str, Any]) -> None:
        """Keep the loss of a forward pass, detached, with the `provenance` of its rows in the batch."""
        self._passes.append((loss.detach(), batch))

    @property
    def has_passes(self) -> bool:
        """Whether the optimizer step in progress has had a forward pass."""
        return bool(self._passes)

    def sum_of_losses(self, device: torch.device) -> torch.Tensor:
        """Of this process in the optimizer step in progress: finite where all are."""
        return torch.stack([loss for loss, _ in self._passes] or [torch.zeros((), device=device)]).sum()

    def record(self, *, finite: bool) -> str | None:
        """The optimizer step is over. Returns what there is too much of, if a run should end for it."""
        self.skips = self.skips.after(skipped=not finite)
        return None if finite else self.skips.too_many

    def start_step(self) -> None:
        """Forget the losses of the step before."""
        self._passes = []

    def report(self, too_many: str, *, step: int, norm: float, output_dir: str, has_stepped: bool = False) -> str:
        """The words of an error that ends the run.

        Args:
            too_many: Of what there is too much.
            step: The optimizer step that was skipped.
            norm: The norm of its gradient.
            output_dir: Where checkpoints are.
            has_stepped: The optimizer has taken the step already.
        """
        bad = [(loss, batch) for loss, batch in self._passes if not torch.isfinite(loss)] or self._passes
        found = [
            f"{where}: loss {float(loss)}" for loss, batch in bad for where in describe_decisions(batch, self._agents)
        ]
        rest = f"\n  and {len(found) - MOST_NAMED} more" if len(found) > MOST_NAMED else ""
        weights = "lost, for DeepSpeed has stepped" if has_stepped else "those of the last good step"
        return (
            f"step {step}: the loss or its gradient was not finite in {too_many} (gradient norm {norm}). Training "
            f"stops; the weights are {weights}, and the checkpoints in {output_dir} are as they were. In this step "
            "the loss was of:\n  " + "\n  ".join(found[:MOST_NAMED]) + f"{rest}\nResume with a lower learning_rate or "
            "max_grad_norm, in bfloat16 or float32; and look for rewards that are huge."
        )

    def state_dict(self) -> dict[str, Any]:
        """Which steps were skipped."""
        return {"lately": list(self.skips.lately), "total": self.skips.total}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from there."""
        self.skips = SkipRecord(tuple(state["lately"]), state["total"])


@dataclass(frozen=True, slots=True)
class SkipRecord:
    """Which of the last steps were skipped.

    Args:
        lately: Of the last 100 steps, oldest first.
        total: Of all steps.
    """

    lately: tuple[bool, ...] = ()
    total: int = 0

    def after(self, *, skipped: bool) -> SkipRecord:
        """The record once another step is over."""
        return SkipRecord((*self.lately, skipped)[-LATELY:], self.total + skipped)

    @property
    def too_many(self) -> str | None:
        """What there is too much of, or `None` while there is hope: now and then a step of a sound run overflows."""
        row = 0
        while row < len(self.lately) and self.lately[-1 - row]:
            row += 1
        if row > MOST_SKIPPED_IN_A_ROW:
            return f"{row} steps in a row"
        if sum(self.lately) > MOST_SKIPPED_LATELY:
            return f"{sum(self.lately)} of the last {len(self.lately)} steps"
        return None


def provenance(decisions: Sequence[Decision], agents: Sequence[str]) -> dict[str, torch.Tensor]:
    """Where each candidate's decision stood, as columns of a batch, so that a bad loss can be traced. Each (B,)."""
    columns = [(d.instance, d.episode, d.turn, agents.index(d.agent)) for d in decisions for _ in d.candidates]
    values = torch.tensor(columns, dtype=torch.long).reshape(-1, 4)
    return dict(zip(("instance", "episode", "turn", "agent"), values.unbind(1), strict=True))


def describe_decisions(batch: Mapping[str, Any], agents: Sequence[str]) -> list[str]:
    """The decisions whose candidates are in a batch with `provenance`, each once, in words."""
    rows = zip(*(batch[name].tolist() for name in ("instance", "episode", "turn", "agent")), strict=True)
    return [
        f"{agents[agent]}, turn {turn} of episode {episode} of instance {instance}"
        for instance, episode, turn, agent in sorted(set(rows))
    ]
