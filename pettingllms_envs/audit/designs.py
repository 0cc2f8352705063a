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
    """Counts designs that cannot be read, as the workflow `designed` reports them: all that were sampled.

    The outcome of an episode describes one design only, and in a tree that one is not drawn at random.
    """

    def __init__(self) -> None:
        self._num = self._num_unreadable = 0
        self._latest: deque[bool] = deque(maxlen=LATEST)

    def observe(self, row: Mapping[str, Any]) -> None:
        """Take in an episode as it is recorded."""
        unreadable = (row["outcome"] or {}).get("unreadable_design")
        if not isinstance(unreadable, bool):
            return
        parts = [each["parts"] for each in row["steps"][0].get("candidates", ()) if each["parts"] is not None]
        found = [any("format" in scope for scope in each.values()) for each in parts] or [unreadable]
        self._num += len(found)
        self._num_unreadable += sum(found)
        self._latest.extend(found)

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
