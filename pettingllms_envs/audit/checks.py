"""All checks of a run together, an episode at a time, in memory that does not grow with it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Protocol

from pettingllms_envs.audit import completeness
from pettingllms_envs.audit.advantages import NonFiniteNumbers, WrongAdvantages, WrongSums
from pettingllms_envs.audit.collapse import COLLAPSE
from pettingllms_envs.audit.exchange import ChangedState, MissingCandidates, MixedPrompts, MixedTurns, SwappedAgents
from pettingllms_envs.audit.findings import Finding
from pettingllms_envs.audit.learning import LazyRole, dead_role, uneven_learning
from pettingllms_envs.audit.rows import Episode, RunFacts
from pettingllms_envs.audit.series import Series
from pettingllms_envs.audit.siblings import CopiedSiblings, WrongChoice


class Check(Protocol):
    """Counts over episodes, and what they say; `conclude` may be asked at any time, and again."""

    def observe(self, episode: Episode, /) -> None: ...
    def conclude(self) -> Finding: ...


GROUP_CHECKS: tuple[Callable[[RunFacts], Check], ...] = (
    MixedPrompts,
    MixedTurns,
    MissingCandidates,
    WrongChoice,
    NonFiniteNumbers,
    WrongSums,
    WrongAdvantages,
    CopiedSiblings,
    ChangedState,
    SwappedAgents,
)
"""A training runs them, too."""
EPISODE_CHECKS: tuple[Callable[[RunFacts], Check], ...] = (
    completeness.EpisodesWithErrors,
    completeness.MissingEpisodes,
    completeness.RepeatedEpisodes,
    completeness.ChangedRows,
    completeness.WrongReturns,
    completeness.WrongTurns,
    *GROUP_CHECKS,
    LazyRole,
)
SERIES_CHECKS: tuple[Callable[[RunFacts, Series], Finding], ...] = (dead_role, uneven_learning, *COLLAPSE)
"""Read nothing but counts by role and step."""


class Audit:
    """Checks of a run while its episodes come in."""

    def __init__(
        self,
        run: RunFacts,
        episode_checks: Sequence[Callable[[RunFacts], Check]] = EPISODE_CHECKS,
        series_checks: Sequence[Callable[[RunFacts, Series], Finding]] = SERIES_CHECKS,
    ) -> None:
        self._run, self._series, self._series_checks = run, Series(), series_checks
        self._checks = [make(run) for make in episode_checks]

    def observe(self, episode: Episode) -> None:
        """Check an episode. The episodes of a training step must be given one after another."""
        for check in self._checks:
            check.observe(episode)
        if self._series_checks:
            self._series.observe(episode)

    def conclude(self) -> list[Finding]:
        of_series = [check(self._run, self._series) for check in self._series_checks]
        return [*(check.conclude() for check in self._checks), *of_series]


def audit(run: RunFacts, episodes: Iterable[Episode]) -> list[Finding]:
    """The verdict of every check on a run."""
    whole = Audit(run)
    for episode in episodes:
        whole.observe(episode)
    return whole.conclude()
