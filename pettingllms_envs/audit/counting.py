"""What the checks share: counts of what was looked at and what was wrong, and places in words."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterator
from typing import Any

from pettingllms_envs.audit.findings import Finding, Status, counted
from pettingllms_envs.audit.rows import Decision, Episode, RunFacts


OPEN_INSTANCES = 10_000
"""Instances whose episodes may still come; of older ones nothing is held."""


class FaultCheck:
    """Counts what was looked at and what was wrong; a check adds what it looks at, by `observe`."""

    name: str
    """What is looked for."""
    unit: str
    """What is looked at."""
    bad: str
    """What the wrong ones do."""
    good: str
    remedy: str
    nothing: tuple[Status, str]
    """The finding where nothing could be looked at."""
    lacking: str = ""
    """What was not recorded, where `_missing` is set and nothing was wrong."""

    def __init__(self, run: RunFacts) -> None:
        self._run = run
        self._seen = self._wrong = 0
        self._first_wrong = self._detail = ""
        self._missing = False

    def _judge(self, where: str, fault: str | None) -> None:
        """Count one, which is wrong if there is a fault."""
        self._seen += 1
        if fault is not None:
            self._wrong += 1
            if not self._first_wrong:
                self._first_wrong, self._detail = where, fault

    def _concluded(self, status: Status, text: str, where: str = "", remedy: str = "") -> Finding:
        return Finding(self.name, status, text, where, remedy)

    def conclude(self) -> Finding:
        """Whether anything was wrong."""
        if self._missing and self.lacking and not self._wrong:
            return self._concluded("not recorded", self.lacking)
        if not self._seen:
            return self._concluded(*self.nothing)
        if not self._wrong:
            return self._concluded("passed", f"{counted(self._seen, self.unit)}: {self.good}.")
        text = f"{self._wrong:,} of {counted(self._seen, self.unit)} {self.bad} ({self._detail})."
        return self._concluded("failed", text, self._first_wrong, self.remedy)


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
    """What is held of each instance while its episodes may still come, the latest `OPEN_INSTANCES` of them.

    Args:
        close: Called with the step and instance, and with what was held of it, at the latest when episodes of another
            step come. By default nothing is called, and instances of several steps are held.
    """

    def __init__(self, close: Callable[[Any, Any], None] | None = None) -> None:
        self._held: OrderedDict[tuple[int | None, Hashable], Any] = OrderedDict()
        self._close = close

    def of(self, episode: Episode, make: Callable[[], Any]) -> Any:
        key = (episode.step, episode.instance)
        if self._close is not None and next(iter(self._held), key)[0] != episode.step:
            self.flush()
        if key not in self._held:
            self._held[key] = make()
            self.flush(most=OPEN_INSTANCES)
        return self._held[key]

    def flush(self, most: int = 0) -> None:
        """Close the first ones, until at most `most` are held."""
        while len(self._held) > most:
            first = self._held.popitem(last=False)
            if self._close is not None:
                self._close(*first)
