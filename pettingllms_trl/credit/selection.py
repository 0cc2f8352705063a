"""Selects the decisions of a generation to train on: applies the filters and counts the rows to play for a full batch.

A generation's rows are played, filtered, and, with `max_resamples`, more rows are played until as many decisions are
kept as a generation's rows have unfiltered (DAPO's dynamic sampling). Then the credit scheme sees all decisions, and
its advantages are selected like the decisions. Pure.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from datasets import IterableDataset

from pettingllms_trl.config import MultiAgentGRPOConfig
from pettingllms_trl.credit import Filter, Kept, check_kept, first_rows, name_of, rows_to_play
from pettingllms_trl.records import Decision, Episode


Item = TypeVar("Item")


def check_resampling(args: MultiAgentGRPOConfig, filters: Sequence[Filter], dataset: Any) -> None:
    """Validate filters and dynamic sampling.

    Raises:
        ValueError: Further rows would come from a stream; or, in float16, filters may drop a whole generation, which
            makes a step without a gradient, which float16's gradient scaler does not support.
    """
    if filters and args.fp16:
        raise ValueError(
            "fp16=True with filters: where they drop a whole generation there is no gradient, which the scaler of "
            "float16 refuses; expected bfloat16 or float32. Set bf16=True, or leave filters out."
        )
    if not args.max_resamples and args.imitate is None:
        return
    if isinstance(dataset, IterableDataset):
        raise ValueError(
            f"max_resamples={args.max_resamples} and imitate={args.imitate!r} with a streamed train_dataset, expected "
            "one whose rows can be taken by their place, so that a resumed run meets the rows that were to come. Load "
            "it (streaming=False), or set max_resamples=0 and imitate=None."
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """Which of a generation's decisions are trained on.

    Args:
        kept: The decisions that passed the filters and are not surplus.
        dropped: How many decisions of an agent each filter dropped, by agent and filter, 0 included.
        surplus: How many decisions of each agent were dropped because the batch was already full.
    """

    kept: Kept
    dropped: Mapping[tuple[str, str], int]
    surplus: Mapping[str, int]
    num_more: int

    def of(self, items: Sequence[Item]) -> list[Item]:
        """Select the items of the kept decisions, given one item for each decision."""
        return [items[i] for i in self.kept.indices]


def select(
    decisions: Sequence[Decision], filters: Sequence[Filter], *, num_played: int, num_wanted: int, resample: bool
) -> Selection:
    """Apply the filters one after another, each to what the previous ones kept; with `resample`, keep a full batch.

    Args:
        decisions: Decisions of all rows played for the generation, row after row, identified by `Decision.instance`.
        num_played: Rows played, including those whose environment failed.
        num_wanted: Rows of a full batch.
        resample: Whether to fill the batch, and drop what exceeds a full one.
    """
    kept = Kept.of(decisions, range(len(decisions)))
    dropped: Counter[tuple[str, str]] = Counter()
    for group_filter in filters:
        name = name_of(group_filter)
        left = group_filter(kept.decisions)
        check_kept(left, kept.decisions, name=name)
        lost = Kept.of(kept.decisions, left.indices).dropped
        dropped.update({(agent, name): lost.get(agent, 0) for agent in kept.dropped})
        kept = Kept.of(decisions, [kept.indices[i] for i in left.indices])
    if not resample:
        return Selection(kept=kept, dropped=dict(dropped), surplus={}, num_more=0)
    more = rows_to_play(decisions, kept, num_played=num_played, num_wanted=num_wanted)
    first = first_rows(decisions, kept, num_wanted)
    surplus = {agent: number - kept.dropped[agent] for agent, number in first.dropped.items()}
    return Selection(kept=first, dropped=dict(dropped), surplus=surplus, num_more=more)


def shifted(episodes: Sequence[Episode], by: int) -> list[Episode]:
    """Add `by` to the instance numbers of episodes and their decisions, for rows that are played after `by` others."""
    return [
        replace(
            episode,
            instance=episode.instance + by,
            decisions=_shifted(episode.decisions, by),
            continuations=_shifted(episode.continuations, by),
        )
        for episode in episodes
    ]


def _shifted(decisions: Sequence[Decision], by: int) -> tuple[Decision, ...]:
    return tuple(replace(decision, instance=decision.instance + by) for decision in decisions)


def continuations_of(
    kept: Sequence[Decision], episodes: Sequence[Episode], continuations: Sequence[Decision]
) -> list[int]:
    """Indices of the `continuations` that continue a candidate of one of the `kept` decisions of all `episodes`
    played.

    A decision and what was sampled to judge its candidates are trained on together, or not at all.
    """
    is_kept = set(map(id, kept))
    of_place = {(episode.instance, episode.episode): episode.decisions for episode in episodes}
    indices = []
    for i, decision in enumerate(continuations):
        assert decision.continuation is not None
        continued = of_place[decision.instance, decision.episode][decision.continuation.decision]
        if id(continued) in is_kept:
            indices.append(i)
    return indices


def num_tokens(decisions: Sequence[Decision], *, prompts: bool = True) -> int:
    """Number of tokens in all sequences, prompts and completions, or completions alone."""
    return sum(prompts * len(d.prompt.ids) + len(c.completion.ids) for d in decisions for c in d.candidates)


def metrics_of(selection: Selection, *, num_played: int, num_wanted: int) -> dict[str, float]:
    """Values by metric, for one generation; the names are those of docs/metrics.md."""
    kept = Counter(decision.agent for decision in selection.kept.decisions)
    return {
        "rollout/rows": num_played,
        "rollout/resampled_rows": num_played - num_wanted,
        "rollout/empty": float(not selection.kept.decisions),
        **{f"agent/{agent}/decisions": kept[agent] for agent in selection.kept.dropped},
        **{f"agent/{agent}/dropped/{name}": number for (agent, name), number in selection.dropped.items()},
        **{f"agent/{agent}/dropped/surplus": number for agent, number in selection.surplus.items()},
    }
