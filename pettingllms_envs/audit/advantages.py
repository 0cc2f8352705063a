"""Do the advantages of a group follow from its rewards, and is every number one that can be calculated with?"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from typing import Any

from pettingllms_envs.audit.counting import FaultCheck, OfInstances, groups_of, where_of
from pettingllms_envs.audit.findings import Finding
from pettingllms_envs.audit.rows import Decision, Episode, RunFacts


ROUNDING = 1e-3
"""Of the sum of the absolute advantages: those of TRL are in single precision."""
FLAT = 0.01
"""Equal rewards less their rounded mean, divided by a deviation of 1e-4, are not quite zero."""
EPSILON = 1e-4
"""TRL adds it to the deviation that it divides by."""
PRECISION = 1e-6
"""Of a reward. Those of a group that differ by little more have advantages that are mostly rounding."""
SIZE = 0.01
"""By how much, relatively, advantages may be larger or smaller than the scale says."""

Pairs = list[tuple[float, float | None]]
"""The advantage and the reward of each candidate that has an advantage."""


class NonFiniteNumbers(FaultCheck):
    """Rewards, advantages and returns are finite numbers."""

    name = "non-finite numbers"
    unit = "number"
    bad = "are not finite"
    good = "all are finite"
    remedy = (
        "No mean can be taken of it, and one such advantage spoils the gradient. Look for a division by "
        "zero or an overflow in the rewards."
    )
    nothing = ("not recorded", "the rows have no rewards, advantages and returns.")

    def observe(self, episode: Episode) -> None:
        for decision in episode.decisions:
            for each in decision.candidates:
                for what, value in (("reward", each.reward), ("advantage", each.advantage)):
                    self._look(episode, decision, what, value)
        self._look(episode, None, "mean return", episode.result)

    def _look(self, episode: Episode, decision: Decision | None, what: str, value: float | None) -> None:
        if value is None:
            return
        if math.isfinite(value):
            self._judge("", None)
        else:
            self._judge(where_of(episode, decision), f"the {what} is {value}")


class WrongSums(FaultCheck):
    """The advantages of each group sum to zero, where the credit scheme has a mean for a baseline."""

    name = "wrong sums of advantages"
    unit = "group"
    bad = "do not sum to zero"
    good = "the advantages sum to zero in each"
    nothing = ("not recorded", "no group has advantages.")

    def __init__(self, run: RunFacts) -> None:
        super().__init__(run)
        self._open = OfInstances(self._close)
        self.remedy = f"credit {run.credit!r} subtracts a mean, so a group was cut, joined or shifted after it."

    def observe(self, episode: Episode) -> None:
        if self._run.sums is None:
            return
        for decision in episode.decisions:
            if decision.learns is False:
                continue
            if any(candidate.advantage is None for candidate in decision.candidates):
                self._missing |= decision.learns is True
            elif self._run.sums == "siblings":
                self._add(where_of(episode, decision), _pairs(decision))
            else:
                self._gather(episode, decision)

    def _gather(self, episode: Episode, decision: Decision) -> None:
        turn = decision.turn if self._run.sums == "turn" else None
        group = self._open.of(episode, dict).setdefault((decision.agent, turn), {})
        for number, pair in enumerate(_pairs(decision)):
            member = (episode.sample,) if self._run.sums == "episodes" else (episode.sample, decision.turn, number)
            group[member] = pair

    def _close(self, key: Any, groups: dict[Any, dict[Any, Any]]) -> None:
        for (agent, _), members in groups.items():
            if len(members) > 1:
                self._add(f"step {key[0]}, instance {key[1]}, {agent}", list(members.values()))

    def _add(self, where: str, pairs: Pairs) -> None:
        if len(pairs) < 2 or not all(math.isfinite(each) for pair in pairs for each in pair if each is not None):
            return
        advantages = [advantage for advantage, _ in pairs]
        # Of schemes that judge by returns the rewards may be equal while the advantages are not.
        is_flat = len({reward for _, reward in pairs}) == 1 and max(map(abs, advantages)) < FLAT
        total = math.fsum(advantages)
        allowed = FLAT if is_flat else ROUNDING * math.fsum(map(abs, advantages)) + 1e-6
        fault = None if abs(total) <= allowed else f"{total:+.3g} over {len(advantages)} advantages"
        self._judge(where, fault)

    def conclude(self) -> Finding:
        if not self._run.is_training:
            return self._concluded("not applicable", "a benchmark has no advantages.")
        if self._run.credit is None:
            return self._concluded("not recorded", "the run does not say which credit scheme it had.")
        if self._run.sums is None:
            return self._concluded("not applicable", f"credit {self._run.credit!r} promises no sum.")
        self._open.flush()
        if self._missing and not self._seen:
            return self._concluded("not recorded", "the rows have no advantages.")
        return super().conclude()


def _pairs(decision: Decision) -> Pairs:
    return [(each.advantage, each.reward) for each in decision.candidates if each.advantage is not None]


class WrongAdvantages(FaultCheck):
    """The advantages of siblings are their rewards less a mean, times one positive factor, which the scale decides.

    So a higher reward never has a lower advantage, equal rewards have equal ones, and they are all zero only where the
    rewards are equal. This is looked for where a scheme judges candidates by the reward of their own step. What is
    added to all of a group is left to [`WrongSums`].
    """

    name = "wrong advantages"
    unit = "group"
    lacking = "some rows have no rewards or no advantages."
    bad = "have advantages that do not follow from their rewards"
    good = "the advantages follow from the rewards"
    nothing = ("not recorded", "no group has rewards and advantages.")

    def __init__(self, run: RunFacts) -> None:
        super().__init__(run)
        self.remedy = (
            f"credit {run.credit!r} gives each candidate its reward less the mean, times one positive "
            "factor. Look for what sorts, drops or rescales candidates between the rewards and the loss."
        )

    @property
    def _applies(self) -> bool:
        return self._run.judges_own_step is True and self._run.sums == "siblings"

    def observe(self, episode: Episode) -> None:
        if not self._applies:
            return
        for decision in groups_of(episode):
            if decision.learns is False:
                continue
            advantages = [each.advantage for each in decision.candidates if each.advantage is not None]
            rewards = [each.reward for each in decision.candidates if each.reward is not None]
            if not len(rewards) == len(advantages) == len(decision.candidates):
                self._missing = True
            elif all(map(math.isfinite, rewards + advantages)):
                self._judge(where_of(episode, decision), fault_of(rewards, advantages, self._run.scale))

    def conclude(self) -> Finding:
        if not self._run.is_training:
            return self._concluded("not applicable", "a benchmark has no advantages.")
        if self._run.credit is None or (self._run.judges_own_step is None and self._run.sums is not None):
            text = "the run does not say whether its credit scheme judges candidates by the reward of their own step."
            return self._concluded("not recorded", text)
        if not self._applies:
            text = f"credit {self._run.credit!r} does not compare siblings by the reward of their own step."
            return self._concluded("not applicable", text)
        return super().conclude()


def fault_of(rewards: Sequence[float], advantages: Sequence[float], scale: str | None) -> str | None:
    """What is wrong with the advantages of at least 2 siblings, in words, or None. `scale` is as in `RunFacts`."""
    shown = f"rewards {_listed(rewards)}, advantages {_listed(advantages)}"
    spread, largest = max(rewards) - min(rewards), max(map(abs, rewards))
    centred = _centred(advantages)
    size = max(map(abs, centred))
    if spread <= 4 * PRECISION * largest:
        return f"equal rewards, other advantages: {shown}" if spread == 0 and size >= FLAT else None
    if size <= PRECISION * PRECISION * spread:
        return f"the rewards differ, the advantages do not: {shown}"
    deviations = _centred(rewards)
    factor = _product(centred, deviations) / _product(deviations, deviations)
    tolerance = ROUNDING + PRECISION * largest / spread
    off = max(abs(a - factor * d) for a, d in zip(centred, deviations, strict=True))
    if factor <= 0 or off > tolerance * size:
        is_ordered = all(
            a >= b - tolerance * size
            for a, r in zip(centred, rewards, strict=True)
            for b, s in zip(centred, rewards, strict=True)
            if r > s
        )
        return f"{'not in proportion' if is_ordered else 'a higher reward has a lower advantage'}: {shown}"
    return _fault_of_size(rewards, factor, scale, SIZE + tolerance, shown)


def _fault_of_size(
    rewards: Sequence[float], factor: float, scale: str | None, tolerance: float, shown: str
) -> str | None:
    """The factor is one over the scale; with a mean of the others for its baseline K / (K - 1) times as much."""
    if scale == "group":
        least = 1 / (statistics.stdev(rewards) + EPSILON)
    elif scale == "mean":
        mean = statistics.fmean(rewards)
        least = 1 / mean if mean > PRECISION else 1.0
    elif scale == "none":
        least = 1.0
    else:
        return None
    most = least * len(rewards) / (len(rewards) - 1)
    if least * (1 - tolerance) <= factor <= most * (1 + tolerance):
        return None
    return f"{factor / least:.3g} times what scale {scale!r} gives: {shown}"


def _centred(numbers: Sequence[float]) -> list[float]:
    mean = math.fsum(numbers) / len(numbers)
    return [number - mean for number in numbers]


def _product(numbers: Sequence[float], others: Sequence[float]) -> float:
    return math.fsum(a * b for a, b in zip(numbers, others, strict=True))


def _listed(numbers: Sequence[float]) -> str:
    shown = ", ".join(f"{number:.4g}" for number in numbers[:8])
    return shown if len(numbers) <= 8 else f"{shown}, ..."
