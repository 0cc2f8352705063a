"""Did the episodes end at all? Those that ended with an error are in no rate and in no mean."""

from __future__ import annotations

from collections import Counter

from pettingllms_envs.audit.findings import Finding, counted
from pettingllms_envs.audit.rows import Episode, RunFacts


MANY = 0.5
"""Share of episodes with an error from which a run says nothing."""


class EpisodesWithErrors:
    """Counts the episodes that ended with an error, by its kind."""

    def __init__(self, run: RunFacts) -> None:
        self._run = run
        self._num = 0
        self._kinds: Counter[str] = Counter()
        self._first = ""

    def observe(self, episode: Episode) -> None:
        self._num += 1
        if episode.error is not None:
            self._kinds[episode.error] += 1
            self._first = self._first or episode.where

    def conclude(self) -> Finding:
        name = "episodes with errors"
        if self._run.kind == "completions":
            return Finding(name, "not recorded", "a table of completions does not say how episodes ended.")
        if not self._num:
            return Finding(name, "not applicable", "there is no episode.")
        num = self._kinds.total()
        if not num:
            return Finding(name, "passed", f"{counted(self._num, 'episode')}: none ended with an error.")
        kinds = ", ".join(f"{kind} {count:,}" for kind, count in self._kinds.most_common())
        text = f"{num:,} of {counted(self._num, 'episode')} ended with an error ({kinds}) and are in no rate."
        remedy = "Read the error in the row, remove its cause, and run the command again: it plays these anew."
        return Finding(name, "failed" if num >= MANY * self._num else "warning", text, self._first, remedy)
