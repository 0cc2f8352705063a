"""Counts of what was looked at and what was wrong, which the checks of groups share."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterator
from typing import Any

from pettingllms_envs.audit.findings import Finding, Status, counted
from pettingllms_envs.audit.rows import Decision, Episode


OPEN_INSTANCES = 10_000
"""Instances whose episodes may still come; of older ones nothing is held."""


class Faults:
    """Counts what was looked at and what was wrong.

    Args:
        name: What is looked for.
        unit: What is looked at.
    """

    def __init__(self, name: str, unit: str) -> None:
        self.name, self.unit = name, unit
        self.seen = self.wrong = 0
        self.first = self.detail = ""

    def add(self, where: str, fault: str | None) -> None:
        self.seen += 1
        if fault is not None:
            self.wrong += 1
            if not self.first:
                self.first, self.detail = where, fault

    def conclude(self, *, bad: str, good: str, remedy: str, nothing: Finding) -> Finding:
        """`nothing` where nothing could be looked at, else whether anything was wrong."""
        if not self.seen:
            return nothing
        of = f"{self.wrong:,} of {counted(self.seen, self.unit)}"
        if self.wrong:
            return Finding(
                name=self.name,
                status="failed",
                text=f"{of} {bad} ({self.detail}).",
                where=self.first,
                remedy=remedy,
            )
        return Finding(name=self.name, status="passed", text=f"{counted(self.seen, self.unit)}: {good}.")


def concluded(name: str, status: Status, text: str) -> Finding:
    """A finding with a place to look at and a remedy left out."""
    return Finding(name=name, status=status, text=text)


def where_of(episode: Episode, decision: Decision | None = None) -> str:
    """The place of an episode, or of its decision, in words."""
    of = f"instance {episode.instance}" + (f", sample {episode.sample}" if episode.sample else "")
    step = "" if episode.step is None else f"step {episode.step}, "
    who = "" if decision is None else f", {decision.agent}"
    turn = "" if decision is None or decision.turn is None else f", turn {decision.turn}"
    return f"{episode.where}{': ' if episode.where else ''}{step}{of}{who}{turn}"


def groups_of(episode: Episode) -> Iterator[Decision]:
    """The decisions with several candidates."""
    return (decision for decision in episode.decisions if len(decision.candidates) > 1)


class OfInstances:
    """What is held of each instance while its episodes may still come, the latest `OPEN_INSTANCES` of them."""

    def __init__(self, close: Callable[[Hashable, Any], None] = lambda key, value: None) -> None:
        self.held: OrderedDict[Hashable, Any] = OrderedDict()
        self._close = close

    def of(self, episode: Episode, make: Callable[[], Any]) -> Any:
        key = (episode.step, episode.instance)
        if key not in self.held:
            self.held[key] = make()
            if len(self.held) > OPEN_INSTANCES:
                self._close(*self.held.popitem(last=False))
        return self.held[key]
