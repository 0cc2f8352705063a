"""Counts of a run by role, over the steps of its training and in all, in memory that does not grow with it."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, fields

from pettingllms_envs.agent_names import role_of
from pettingllms_envs.audit.rows import Decision, Episode


MOST_BINS = 256
"""Of a role; when there are more, neighbours are put together."""
FEW_STEPS = 6
"""Of a training; with fewer there are no thirds to compare."""
MOST_REPLIES = 256
NO_ADVANTAGE = 0.01
"""Equal rewards less their rounded mean, divided by a deviation of 1e-4, are not quite zero."""


@dataclass(slots=True)
class Counts:
    """Of one role, in some steps of the training.

    Args:
        replies: Sampled.
        empty: Of these.
        measured: Replies whose length is known.
        tokens: Of these together.
        ended: Replies of which it is known whether they were cut off.
        cut: Of these.
        groups: Of several candidates, or single ones with an advantage.
        flat: Groups in which nothing tells replies apart.
        distinct: Sum over these of the share of different replies.
        results: Of these together.
        lost: Flat groups of episodes without success.
        given: Replies of decisions that are not known to teach nothing.
        kinds: Of these, those that none had given before in their step, whatever the prompt.
        again: Of these, those to a prompt that another had replied to before in their step.
        other: Of these, those that none had given to that prompt.
    """

    replies: float = 0
    empty: float = 0
    measured: float = 0
    tokens: float = 0
    ended: float = 0
    cut: float = 0
    groups: float = 0
    flat: float = 0
    varied: float = 0
    distinct: float = 0
    advantages: float = 0
    trained: float = 0
    episodes: float = 0
    results: float = 0
    lost: float = 0
    given: float = 0
    kinds: float = 0
    again: float = 0
    other: float = 0
    solved: float = 0
    judged: float = 0

    def add(self, other: Counts) -> None:
        for field in fields(self):
            setattr(self, field.name, getattr(self, field.name) + getattr(other, field.name))

    def observe(self, decision: Decision, success: bool | None, seen: set[Hashable]) -> None:
        """A decision's replies, of an episode with this success; `seen` has those of earlier decisions of the step."""
        for each in decision.candidates:
            if decision.learns is not False:
                self.given += 1
                self.kinds += ("reply", each.reply) not in seen
                if each.prompt is not None and ("prompt", each.prompt) in seen:
                    self.again += 1
                    self.other += ("both", each.prompt, each.reply) not in seen
                seen |= {("reply", each.reply), ("prompt", each.prompt), ("both", each.prompt, each.reply)}
            self.replies += 1
            self.empty += each.reply in ("", ())
            if each.tokens is not None:
                self.measured += 1
                self.tokens += each.tokens
            if each.is_cut_off is not None:
                self.ended += 1
                self.cut += each.is_cut_off
            if each.advantage is not None:
                self.trained += 1
                self.advantages += abs(each.advantage)
        if (is_flat := _is_flat(decision)) is not None:
            self.groups += 1
            self.flat += is_flat
            self.lost += is_flat and success is False
        if len(decision.candidates) > 1:
            self.varied += 1
            different = len({each.reply for each in decision.candidates}) - 1
            self.distinct += different / (len(decision.candidates) - 1)


def _is_flat(decision: Decision) -> bool | None:
    """Whether nothing tells the candidates apart; `None` where it is not known, or nothing was trained on."""
    advantages = [each.advantage for each in decision.candidates if each.advantage is not None]
    if decision.learns is False:
        return None
    small = max(map(abs, advantages), default=0.0) < NO_ADVANTAGE
    if len(decision.candidates) == 1:
        return small if advantages else None
    rewards = {each.reward for each in decision.candidates}
    if None in rewards:
        return small if advantages else None
    return len(rewards) == 1 and small


class Frequent:
    """The most frequent of many values, in bounded memory (Misra and Gries 1982).

    A value that makes up a share p of n values is counted at least n (p - 1 / 257) times.
    """

    def __init__(self) -> None:
        self._counts: dict[Hashable, int] = {}
        self.total = 0

    def add(self, value: Hashable) -> None:
        self.total += 1
        if value in self._counts or len(self._counts) < MOST_REPLIES:
            self._counts[value] = self._counts.get(value, 0) + 1
            return
        self._counts = {each: count - 1 for each, count in self._counts.items() if count > 1}

    @property
    def most(self) -> tuple[Hashable, int] | None:
        """The most frequent value and how often it was seen, at least."""
        return max(self._counts.items(), key=lambda item: item[1]) if self._counts else None


class Series:
    """The counts of each role, over time."""

    def __init__(self) -> None:
        self._bins: dict[str, list[tuple[int, Counts]]] = {}  # by role: first step of the bin, its counts
        self._width: dict[str, int] = {}
        self._steps: dict[str, tuple[int, int]] = {}  # by role: how many, the latest
        self._seen: dict[str, set[Hashable]] = {}  # by role: prompts and replies of the latest

    @property
    def roles(self) -> list[str]:
        return list(self._bins)

    def observe(self, episode: Episode) -> None:
        """An episode's decisions, also inside continuations, and its result for each role that took part."""
        for decision in (*episode.decisions, *episode.continued):
            role = role_of(decision.agent)
            self._at(role, episode.step).observe(decision, episode.success, self._seen[role])
        for role in dict.fromkeys(role_of(decision.agent) for decision in episode.decisions):
            counts = self._at(role, episode.step)
            if episode.result is not None:
                counts.episodes += 1
                counts.results += episode.result
            if episode.success is not None:
                counts.judged += 1
                counts.solved += episode.success

    def total(self, role: str) -> Counts:
        return _sum([counts for _, counts in self._bins[role]])

    def thirds(self, role: str) -> tuple[Counts, Counts, Counts] | None:
        """The first, the middle and the last third of the training's steps; `None` where there are too few of them."""
        bins = [counts for _, counts in self._bins[role]]
        if self._steps[role][0] < FEW_STEPS:
            return None
        third = len(bins) // 3
        return _sum(bins[:third]), _sum(bins[third:-third]), _sum(bins[-third:])

    def _at(self, role: str, step: int | None) -> Counts:
        bins = self._bins.setdefault(role, [])
        step = 0 if step is None else step
        number, latest = self._steps.get(role, (0, step - 1))
        if step > latest:
            self._steps[role], self._seen[role] = (number + 1, step), set()
        if not bins or step - bins[-1][0] >= self._width.setdefault(role, 1):
            bins.append((step, Counts()))
        if len(bins) > MOST_BINS:
            pairs = (bins[i : i + 2] for i in range(0, len(bins), 2))
            self._bins[role] = bins = [(each[0][0], _sum([counts for _, counts in each])) for each in pairs]
            self._width[role] *= 2
        return bins[-1][1]


def _sum(counts: list[Counts]) -> Counts:
    total = Counts()
    for each in counts:
        total.add(each)
    return total
