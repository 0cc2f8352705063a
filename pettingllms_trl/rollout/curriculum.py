"""A curriculum of levels: training moves to the next level when the current one succeeds often enough.

    curriculum = Curriculum(levels=(1, 2, 3, 4, 5), advance_at=0.7)

The trainer writes a `level` into each row before it is played, and tells the curriculum how the episodes ended.
"""

from __future__ import annotations

import random
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pettingllms_envs.episodes.observing import success_of
from pettingllms_trl.records import DataRow, Episode
from pettingllms_trl.rollout.env_pool import DEFAULT_ENVIRONMENT, ENVIRONMENT_COLUMN


@dataclass(frozen=True, slots=True)
class Progress:
    """A run's progress: the index of its level, and whether its latest episodes on it succeeded, oldest first."""

    index: int = 0
    latest: tuple[bool, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Curriculum:
    """Levels in order of difficulty, and when the next one is reached. Raises `ValueError` for a value out of range.

    Args:
        levels: Values of the reset option `field`, the easiest first.
        advance_at: Share of successes that reaches the next level, in (0, 1].
        window: Number of the level's latest episodes over which that share is taken.
        review: Share of the rows that are played on an earlier level, in [0, 1).
    """

    levels: tuple[Any, ...]
    advance_at: float = 0.7
    window: int = 64
    review: float = 0.2
    field: str = "level"

    def __post_init__(self) -> None:
        if not self.levels:
            raise ValueError("levels is empty; expected the values of a reset option, the easiest first.")
        if not 0 < self.advance_at <= 1:
            raise ValueError(f"advance_at is {self.advance_at}; expected a share of successes in (0, 1].")
        if self.window < 1:
            raise ValueError(f"window is {self.window}; expected a number of episodes of at least 1.")
        if not 0 <= self.review < 1:
            raise ValueError(f"review is {self.review}; expected a share of the rows in [0, 1).")

    def assign(self, rows: Sequence[Mapping[str, Any]], progress: Progress, seed: str) -> list[dict[str, Any]]:
        """The rows, each with its level: the current one or, at random by `seed`, an earlier one."""
        rng = random.Random(seed)
        assigned = []
        for row in rows:
            index = rng.randrange(progress.index) if progress.index and rng.random() < self.review else progress.index
            assigned.append({**row, self.field: self.levels[index]})
        return assigned

    def after(self, progress: Progress, rows: Sequence[Mapping[str, Any]], episodes: Sequence[Episode]) -> Progress:
        """The progress after these episodes. Raises `ValueError` if an outcome has no `success`."""
        level = self.levels[progress.index]
        ended = [episode for episode in episodes if rows[episode.instance][self.field] == level]
        latest = list(progress.latest)
        for episode in ended:
            if (success := success_of(episode.outcome)) is None:
                raise ValueError(
                    f"the outcome of an episode is {dict(episode.outcome)}; a curriculum expects 'success' in "
                    "infos[agent]['outcome'] of the environment."
                )
            latest.append(success)
        latest = latest[-self.window :]
        # Divided, since a product such as 0.55 * 100 may be above the whole number that it should be.
        reached = len(latest) == self.window and sum(latest) / self.window >= self.advance_at
        if reached and progress.index + 1 < len(self.levels):
            return Progress(progress.index + 1)
        return Progress(progress.index, tuple(latest))


class Curricula:
    """The curricula by the environment's name, which is empty in a run with a single one, and the progress on each."""

    def __init__(self, curricula: Mapping[str, Curriculum]) -> None:
        self.curricula = dict(curricula)
        self.progress = dict.fromkeys(self.curricula, Progress())

    def assign(self, rows: Sequence[Mapping[str, Any]], seed: str) -> list[Mapping[str, Any]]:
        """The rows in their order, with a level where their environment has a curriculum."""
        assigned = list(rows)
        for name, curriculum in self.curricula.items():
            own = [i for i, row in enumerate(rows) if name == DEFAULT_ENVIRONMENT or row[ENVIRONMENT_COLUMN] == name]
            own_seed = seed if name == DEFAULT_ENVIRONMENT else f"{seed}/{name}"
            of_own = curriculum.assign([rows[i] for i in own], self.progress[name], own_seed)
            for i, row in zip(own, of_own, strict=True):
                assigned[i] = row
        return assigned

    def advance(self, rows: Sequence[DataRow], episodes: Sequence[Episode]) -> None:
        """Count these episodes of these rows, each for its environment."""
        for name, curriculum in self.curricula.items():
            own = [episode for episode in episodes if episode.environment == name]
            self.progress[name] = curriculum.after(self.progress[name], rows, own)

    def state_dict(self) -> dict[str, Any]:
        """The index of the level and the latest successes, by environment."""
        return {name: [progress.index, list(progress.latest)] for name, progress in self.progress.items()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore the progress, up to the last level; environments that no longer have a curriculum are ignored."""
        for name, (index, latest) in state.items():
            if name in self.progress:
                last = len(self.curricula[name].levels) - 1
                self.progress[name] = Progress(min(index, last), tuple(latest))


def by_environment(
    curriculum: Curriculum | Mapping[str, Curriculum] | None, names: Collection[str]
) -> Mapping[str, Curriculum]:
    """The user's `curriculum=` by environment. Raises `ValueError` for one for several, or an unknown environment."""
    several = DEFAULT_ENVIRONMENT not in names
    if isinstance(curriculum, Curriculum):
        if several:
            raise ValueError(
                f"one curriculum for the environments {', '.join(names)}, whose levels have nothing to do with each "
                "other. Give one for each that needs one: curriculum={name: Curriculum(...)}."
            )
        return {DEFAULT_ENVIRONMENT: curriculum}
    unknown = [name for name in curriculum or {} if name not in names]
    if unknown:
        known = ", ".join(names) if several else "one environment, which has no name; write curriculum=Curriculum(...)"
        raise ValueError(f"curriculum has the names {unknown}; expected some of those in env: {known}.")
    return curriculum or {}
