"""A curriculum for each of several environments: each has its own levels, and its own progress on them.

By the environment's name; where there is one alone, by the empty one. Pure, as `curriculum.py` is.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from pettingllms_trl.records import Episode
from pettingllms_trl.rollout.curriculum import Curriculum, Progress
from pettingllms_trl.rollout.env_pool import COLUMN, ONLY, Row


Curricula = Mapping[str, Curriculum]
Progresses = Mapping[str, Progress]


def by_environment(curriculum: Curriculum | Curricula | None, names: Collection[str]) -> Curricula:
    """The user's `curriculum=` by environment; those without one play their rows as they are.

    Args:
        curriculum: One, or one by name.
        names: Of the environments; the empty one where there is one alone.

    Raises:
        ValueError: One curriculum for several environments, or one for an environment that there is not.
    """
    if curriculum is None:
        return {}
    several = ONLY not in names
    if isinstance(curriculum, Curriculum):
        if several:
            raise ValueError(
                f"one curriculum for the environments {', '.join(names)}, whose levels have nothing to do with each "
                "other. Give one for each that shall have one: curriculum={name: Curriculum(...)}."
            )
        return {ONLY: curriculum}
    unknown = [name for name in curriculum if name not in names]
    if unknown:
        known = ", ".join(names) if several else "one environment, which has no name; write curriculum=Curriculum(...)"
        raise ValueError(f"curriculum has the names {unknown}; expected some of those in env: {known}.")
    return curriculum


def assign(
    curricula: Curricula, rows: Sequence[Mapping[str, Any]], progress: Progresses, seed: str
) -> list[Mapping[str, Any]]:
    """The rows in their order, those whose environment has a curriculum with their level."""
    assigned = list(rows)
    for name, curriculum in curricula.items():
        own = _own(name, rows)
        own_seed = seed if name == ONLY else f"{seed}/{name}"
        for i, row in zip(own, curriculum.assign([rows[i] for i in own], progress[name], own_seed), strict=True):
            assigned[i] = row
    return assigned


def after(
    curricula: Curricula, progress: Progresses, rows: Sequence[Row], episodes: Sequence[Episode]
) -> dict[str, Progress]:
    """The progress on each environment after these episodes of these rows."""
    return {
        name: curriculum.after(progress[name], rows, [episode for episode in episodes if episode.environment == name])
        for name, curriculum in curricula.items()
    }


def _own(name: str, rows: Sequence[Row]) -> list[int]:
    """Places of an environment's rows."""
    return [i for i, row in enumerate(rows) if name == ONLY or row[COLUMN] == name]
