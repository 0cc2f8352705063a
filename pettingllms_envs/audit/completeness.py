"""Are the rows those that the run wrote, each once, unchanged and at its turn? Did the episodes end and add up?"""

from __future__ import annotations

import hashlib
import math
from collections import Counter
from collections.abc import Hashable

from pettingllms_envs.audit.counting import FaultCheck, where_of
from pettingllms_envs.audit.findings import Finding, counted
from pettingllms_envs.audit.rows import Episode, Part, RunFacts


RESTORE = "Every number of the run is of the rows that are left. Restore the file, or play the run again."
TOLERANCE = 1e-6
"""Absolute; of returns above 1000 relative, 1e-9."""
MANY = 0.5
"""Share of episodes with an error from which a run says nothing."""


class MissingEpisodes(FaultCheck):
    """No episode that the run wrote is missing.

    What a killed run was writing may be incomplete: the last generation, which the run does not yet say that it wrote.
    """

    name = "missing episodes"
    unit = "generation"
    bad = "lack episodes"
    remedy = RESTORE

    def __init__(self, run: RunFacts) -> None:
        super().__init__(run)
        self._part: Part | None = None
        self._where = ""
        self._found = self._reached = self._num_ended = 0

    def observe(self, episode: Episode) -> None:
        self._num_ended += episode.error is None
        part = episode.part
        if part is not None and part.before < self._reached:  # written before: [`RepeatedEpisodes`] tells it
            return
        if part != self._part:
            self._close()
            self._part, self._found, self._where = part, 0, where_of(episode)
            if part is not None and part.before > self._reached:
                fault = f"{self._reached:,} episodes come before it, expected {part.before:,}"
                self._judge(self._where, fault)
        self._found += 1

    def _close(self) -> None:
        if self._part is None:
            self._reached += self._found
            return
        num = self._part.episodes
        self._judge(self._where, None if self._found >= num else f"{self._found:,} of {num:,} episodes are there")
        self._reached = self._part.before + num

    def conclude(self) -> Finding:
        written = self._run.written
        if self._wrong:
            return super().conclude()
        if written is not None and self._num_ended < written.episodes:
            text = f"{self._num_ended:,} of {counted(written.episodes, 'episode')} that the run says it wrote."
            return self._concluded("failed", text, remedy=RESTORE)
        if written is None and self._part is None:
            return self._concluded("not recorded", "the run does not say how many episodes it wrote.")
        text = f"{counted(self._num_ended, 'episode')}: all that the run says it wrote."
        if self._part is not None and self._found < self._part.episodes:
            text += f" The last generation has {self._found:,} of {self._part.episodes:,}: the run was stopped there."
        return self._concluded("passed", text)


class RepeatedEpisodes(FaultCheck):
    """No episode is there twice."""

    name = "repeated episodes"
    unit = "episode"
    bad = "are repeated"
    good = "each is there once"
    remedy = "They count twice in every mean. Remove the rows that were added."
    nothing = ("not recorded", "the rows are not of whole episodes.")

    def __init__(self, run: RunFacts) -> None:
        super().__init__(run)
        self._step: int | None = None
        self._places: set[tuple[Hashable, int]] = set()

    def observe(self, episode: Episode) -> None:
        if not episode.is_whole:  # a row of a table, which numbers no episodes
            return
        step, place = episode.step, (episode.instance, episode.sample)
        fault = None
        if step is not None and self._step is not None and step < self._step:
            fault = f"it comes after step {self._step}"
        elif step != self._step:
            self._step, self._places = step, {place}
        elif place in self._places:
            fault = "it is there already"
        self._places.add(place)
        self._judge(where_of(episode), fault)


class ChangedRows(FaultCheck):
    """Each row has the content whose digest was written with it, and the rows together are those of the run."""

    name = "changed rows"
    unit = "row"
    bad = "were changed after they were written"
    good = "each as it was written"
    remedy = RESTORE
    nothing = ("not recorded", "the rows have no digests.")

    def __init__(self, run: RunFacts) -> None:
        super().__init__(run)
        self._all = hashlib.sha256()
        self._num = 0

    def observe(self, episode: Episode) -> None:
        if episode.is_changed is not None:
            fault = "its content has another digest than it was written with" if episode.is_changed else None
            self._judge(where_of(episode), fault)
        if self._run.written is not None and self._num < self._run.written.episodes:
            self._all.update((episode.digest or "").encode())
        self._num += 1

    @property
    def _are_others(self) -> bool:
        """Whether the rows that the run says it wrote, if none is missing, have other digests."""
        written = self._run.written
        if written is None or written.digest is None or self._num < written.episodes:
            return False
        return self._all.hexdigest() != written.digest

    def conclude(self) -> Finding:
        if self._are_others and not self._wrong:
            text = "each row has its digest, but together they are not the rows that the run says it wrote."
            return self._concluded("failed", text, remedy=RESTORE)
        return super().conclude()


class WrongTurns(FaultCheck):
    """In a training an agent's turns count its own decisions, and not those of the others."""

    name = "wrong turns"
    unit = "decision"
    bad = "are not at the turn that is recorded"
    good = "each at its turn"
    remedy = "Groups by turn compare others than they should. Look for lost steps, or what numbers them."
    nothing = ("not applicable", "there is no decision.")

    def observe(self, episode: Episode) -> None:
        if self._run.kind != "rollouts":
            return
        taken: Counter[str] = Counter()
        for decision in episode.decisions:
            taken[decision.agent] += 1
            number = taken[decision.agent]
            fault = None if decision.turn == number else f"it is no. {number} of the agent's in the episode"
            self._judge(where_of(episode, decision), fault)

    def conclude(self) -> Finding:
        if self._run.kind != "rollouts":
            return self._concluded("not applicable", "only a training's rollouts count an agent's decisions.")
        return super().conclude()


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


class WrongReturns(FaultCheck):
    """Each agent's return is the sum of its rewards."""

    name = "wrong returns"
    unit = "return"
    lacking = "some rows do not have every agent's reward of every step."
    bad = "are not the sums of their episodes' rewards"
    good = "each is the sum of the agent's rewards"
    remedy = (
        "Rates and advantages that are made of returns are wrong with them. Look for what changes rewards "
        "or returns after the step, or for steps that the row lacks; `pettingllms replay` plays it again."
    )
    nothing = ("not recorded", "the rows have no returns.")

    def observe(self, episode: Episode) -> None:
        if episode.error is not None:
            return
        self._missing |= not episode.returns
        for agent, value in episode.returns.items():
            total = episode.reward_sums.get(agent)
            if value is None or total is None:
                self._missing = True
            elif math.isfinite(value) and math.isfinite(total):
                right = math.isclose(value, total, rel_tol=1e-9, abs_tol=TOLERANCE)
                fault = None if right else f"{agent} has {value:g}, its rewards sum to {total:g}"
                self._judge(where_of(episode), fault)
