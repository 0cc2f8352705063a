"""Can the designs of a designer be read? Teams that are never read are never trained."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from typing import Any

from pettingllms_envs.audit.findings import Finding, counted


FEW = 16
LATEST = 64
MOST_UNREADABLE = 0.5


class UnreadableDesigns:
    """Counts episodes by what their outcome says of `unreadable_design`, as the workflow `designed` reports it."""

    def __init__(self) -> None:
        self._num = self._num_unreadable = 0
        self._latest: deque[bool] = deque(maxlen=LATEST)

    def observe(self, outcome: Mapping[str, Any] | None) -> None:
        """Take in the outcome of an episode."""
        if outcome is not None and isinstance(unreadable := outcome.get("unreadable_design"), bool):
            self._num += 1
            self._num_unreadable += unreadable
            self._latest.append(unreadable)

    def conclude(self) -> list[Finding]:
        """A warning where more than half cannot be read, of all and of the latest; nothing where none was designed."""
        if not self._num:
            return []
        name, latest = "unreadable designs", sum(self._latest) / len(self._latest)
        text = f"{self._num_unreadable / self._num:.0%} of {counted(self._num, 'design')}, {latest:.0%} of the latest."
        if self._num < FEW:
            return [Finding(name, "not applicable", f"{text} Fewer than {FEW}: too few to tell.")]
        if min(latest, self._num_unreadable / self._num) <= MOST_UNREADABLE:
            return [Finding(name, "passed", text)]
        remedy = "Warm the designer up on readable designs (`pettingllms sft`), or raise max_completion_length."
        return [Finding(name, "warning", text, remedy=remedy)]
