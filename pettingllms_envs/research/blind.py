"""Plays a run's episodes again with the pictures of a role exchanged for those of other instances.

An agent that does not look at its pictures does as well with those of another instance. So the same episodes are
played, with the same seeds, but each picture that the role is shown is one that the run showed the same agent at the
same call of another instance. It differs from the right one, and the prompts differ in nothing else. What the pictures
are worth is the paired difference.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import count
from pathlib import Path
from typing import Any, ClassVar

from pettingzoo.utils.wrappers import BaseWrapper

from pettingllms_envs.agents.base import Agent
from pettingllms_envs.episodes.episode import Instance
from pettingllms_envs.episodes.figures import mean_by_problem
from pettingllms_envs.episodes.files import JsonObject, place, problem
from pettingllms_envs.episodes.media import read_image
from pettingllms_envs.episodes.prompts import digests_of
from pettingllms_envs.evaluation.compare import difference_of_shares, success_by_problem
from pettingllms_envs.evaluation.statistics import studentized_bootstrap
from pettingllms_envs.observations import Image


@dataclass(frozen=True)
class BlindRole:
    """The episodes of a run in which a role is shown other pictures, and their results.

    Args:
        rows: The run's rows without an error, with prompts.
    """

    role: str
    members: Sequence[str]
    rows: Sequence[JsonObject]
    path: Path

    kind: ClassVar[str] = "blind"

    def __post_init__(self) -> None:
        for agent in self.members:
            num = len({digest for calls in self._pictures[agent].values() for digests in calls for digest in digests})
            if num < 2:
                raise ValueError(
                    f"--role {self.role}: {agent} was shown {num or 'no'} picture{'s' * (num != 1)}; expected those "
                    "of several instances. Name a role that is shown pictures, as with --set view=image."
                )

    @cached_property
    def _pictures(self) -> Mapping[str, Mapping[str, Sequence[Sequence[str]]]]:
        """For each agent, by the key of the instance, the digests of the pictures at its calls."""
        found: dict[str, dict[str, list[list[str]]]] = {agent: {} for agent in self.members}
        for row in self.rows:
            for agent, of in found.items():
                calls = [digests_of(step) for step in row["steps"] if step["agent"] == agent]
                of.setdefault(Instance.of(row).key, calls)
        return found

    @property
    def places(self) -> list[tuple[Instance, int]]:
        """The problem and the number of each episode, which are those of the run."""
        return [(Instance.of(row), row["sample"]) for row in self.rows]

    def wrap(self, env: Any) -> Any:
        """The environment, in which the role is shown other pictures."""
        return _OtherPictures(env, self)

    def agents(self, agents: Mapping[str, Agent]) -> Mapping[str, Agent]:
        return agents

    def other_than(self, digest: str, agent: str, key: str, call: int, number: int) -> bytes:
        """Another instance's picture, as PNG, for the one with `digest`, the `number`-th of the `call`, from 0."""
        of = self._pictures[agent]
        keys = list(of)
        first = keys.index(key) + 1 if key in of else 0
        others = [of[each] for each in (*keys[first:], *keys[:first]) if each != key]
        shown = [calls[min(call, len(calls) - 1)] for calls in others if calls]
        same_place = [digests[min(number, len(digests) - 1)] for digests in shown if digests]
        elsewhere = [each for calls in others for digests in calls for each in digests]
        found = next((each for each in (*same_place, *elsewhere) if each != digest), None)
        if found is None:
            raise ValueError(f"no instance shows {agent} another picture than {digest[:16]}; raise --limit.")
        return read_image(self.path, found)

    def effects(self, rows: Sequence[JsonObject]) -> dict[str, Any]:
        """What the role's pictures are worth, by the rows of the episodes of `places`, with 95% intervals by problems.

        Returns:
            `role`; `episodes`, how many pairs there are; and under `differences` for `success`, where it is known, and
            the `return` of each agent: `own`, the mean with the right pictures, `other`, that with other pictures,
            and `mean`, `low`, `high` of the difference.
        """
        again = {place(row): row for row in rows if row["error"] is None}
        pairs = [(row, again[place(row)]) for row in self.rows if place(row) in again]
        found: dict[str, Any] = {}
        if pairs:
            own, other = (success_by_problem([pair[i] for pair in pairs]) for i in (0, 1))
            shares = [(own[key], other[key]) for key in own if key in other]
            if shares:
                low, high = difference_of_shares([b for _, b in shares], [a for a, _ in shares])
                found["success"] = _difference([(float(a), float(b)) for a, b in shares], low, high)
            for agent in pairs[0][0]["returns"]:
                returns = [
                    mean_by_problem((problem(pair[i]), pair[i]["returns"].get(agent, 0.0)) for pair in pairs)
                    for i in (0, 1)
                ]
                both = list(zip(*returns, strict=True))
                found[f"return of {agent}"] = _difference(both, *studentized_bootstrap([a - b for a, b in both]))
        return {"role": self.role, "episodes": len(pairs), "differences": found}


class _OtherPictures(BaseWrapper):  # type: ignore[misc]  # pettingzoo ships no types
    """An environment whose observations have other pictures."""

    def __init__(self, env: Any, blind: BlindRole) -> None:
        super().__init__(env)
        self._blind, self._key, self._calls = blind, "", Counter[str]()

    def reset(self, seed: int | None = None, options: dict[str, Any] | None = None) -> None:
        """Start an episode, of which the pictures are not shown."""
        self._key, self._calls = Instance(0, seed or 0, options or {}).key, Counter()
        super().reset(seed, options)

    def step(self, action: Any) -> None:
        """Count the agent's call."""
        self._calls[self.agent_selection] += 1
        super().step(action)

    def observe(self, agent: str) -> Any:
        """The observation, with other pictures if the agent's role is shown them."""
        seen = super().observe(agent)
        return self._exchange(seen, agent, count()) if agent in self._blind.members else seen

    def _exchange(self, seen: Any, agent: str, numbers: Iterator[int]) -> Any:
        """An observation, or a part of it, with other pictures."""
        if isinstance(seen, Image):
            place = (agent, self._key, self._calls[agent], next(numbers))
            return Image(self._blind.other_than(seen.digest, *place), seen.alt)
        if isinstance(seen, Mapping):
            return {key: self._exchange(value, agent, numbers) for key, value in seen.items()}
        return [self._exchange(each, agent, numbers) for each in seen] if isinstance(seen, list | tuple) else seen


def _difference(pairs: Sequence[tuple[float, float]], low: float, high: float) -> dict[str, float]:
    own, other = (sum(pair[i] for pair in pairs) / len(pairs) for i in (0, 1))
    return {"own": own, "other": other, "mean": own - other, "low": low, "high": high}
