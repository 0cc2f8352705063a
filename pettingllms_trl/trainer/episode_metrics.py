"""`EpisodeMetrics`: what is logged of the episodes of a generation, or of an evaluation.

An evaluation is played in batches, and its metrics are of all of them together: in a mean of the batches' means the
rows of a small last batch would weigh more than the others.

| metric                                                          | is                       |
|-----------------------------------------------------------------|--------------------------|
| an agent's `reward` and its parts, `rewards/F/mean` and `/std`  | over all candidates      |
| an agent's `frac_read_strictly`, `_leniently`, `frac_unreadable` | over all candidates     |
| an agent's `frac_reward_zero_std`                               | over all its groups      |
| `outcome/NAME`, `AGENT_FIGURES`, `rollout/decisions`            | over all episodes        |
| an agent's `prefix_share`                                       | see `prefix_shares`      |
| the other counts of `rollout/`                                  | a sum                    |

A part that a candidate does not have counts as 0, and what a reward function gave `None` does not count.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from functools import partial
from types import MappingProxyType
from typing import Any

import numpy as np
import torch
from trl.trainer.utils import nanstd

from pettingllms_envs.episodes.figures import PlayedReply, of_agents, of_outcome
from pettingllms_envs.replies.reading_counts import READ_AS, form_of
from pettingllms_trl.credit.grouping import are_equal
from pettingllms_trl.records import Decision, Episode
from pettingllms_trl.trainer.collector import Played


Metrics = dict[str, list[float]]
"""Values by metric, to be averaged, in training with those of other generations."""


class EpisodeMetrics:
    """Sums up episodes as metrics, of a generation or of an evaluation.

    Of several environments in one run also those of each, as `env/<name>/<metric>`.

    It keeps numbers only, so that an evaluation of any length fits.

    Args:
        groups_of: Agents whose groups are counted: a decision's candidates by their rewards or, where it has one, the
            episodes of an instance by the agent's returns. One whose values are all equal teaches nothing.
        policies: Name of the policy of each agent whose `prefix_share` is computed.
    """

    def __init__(
        self,
        reward_names: Sequence[str],
        *,
        groups_of: Collection[str] = (),
        policies: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        self._groups_of, self._policies = groups_of, policies
        self._sums: dict[str, float] = defaultdict(int, {"rollout/completion_tokens": 0})
        self._of_episodes: Metrics = defaultdict(list)
        # By agent ("agent/planner_0", "env/relay/agent/opener_0"): each candidate's reward and its parts.
        self._paid: dict[str, list[tuple[float, Mapping[str, float]]]] = defaultdict(list)
        self._read: dict[str, Counter[str]] = defaultdict(Counter)  # by agent: how its candidates were read
        self._groups: dict[tuple[str, int], set[float]] = defaultdict(set)  # by agent, and instance or decision
        self._rewards: list[float] = []
        self._scores: Metrics = {name: [] for name in reward_names}

    def add(self, played: Played) -> None:
        """Add episodes: all of a generation, or a batch of an evaluation."""
        for count, number in played.counts.items():
            self._sums[f"rollout/{count}"] += number
        for episode in played.episodes:
            self._add(episode, "")
            if episode.environment:
                self._add(episode, f"env/{episode.environment}/")
            for decision in episode.decisions:
                for candidate in decision.candidates:
                    self._rewards.append(candidate.reward)
                    if scored := played.scores.get(id(candidate.completion)):
                        for name, given in self._scores.items():
                            given.append(scored[1].rewards[name])

    def _add(self, episode: Episode, prefix: str) -> None:
        self._of_episodes[f"{prefix}rollout/decisions"].append(len(episode.decisions))
        for name, value in of_outcome(episode.outcome).items():
            self._of_episodes[f"{prefix}outcome/{name}"].append(value)
        played = [(d.agent, d.played.completion) for d in episode.decisions]
        replies = [PlayedReply(agent, len(each.ids) or None, each.finish) for agent, each in played]
        for agent, figures in of_agents(replies, episode.returns, episode.outcome).items():
            for name, value in figures.items():
                self._of_episodes[f"{prefix}agent/{agent}/{name}"].append(value)
        for agent, share in prefix_shares(episode.decisions, self._policies):
            self._of_episodes[f"{prefix}agent/{agent}/prefix_share"].append(share)
        sampled = [len(candidate.completion.ids) for d in episode.decisions for candidate in d.candidates]
        self._sums[f"{prefix}rollout/completion_tokens"] += sum(sampled)
        for decision in episode.decisions:
            agent, candidates = f"{prefix}agent/{decision.agent}", decision.candidates
            if forms := [form_of(each.reading) for each in candidates if each.reading]:
                self._read[agent].update(forms)
            self._paid[agent] += [(candidate.reward, candidate.parts) for candidate in candidates]
            if decision.agent in self._groups_of:
                is_alone = len(candidates) == 1
                group = self._groups[agent, decision.instance if is_alone else id(decision)]
                group.update([decision.episode_return] if is_alone else [each.reward for each in candidates])

    def of_generation(self) -> Metrics:
        """The metrics of all episodes that were added."""
        metrics: Metrics = {**{name: [number] for name, number in self._sums.items()}, **self._of_episodes}
        for agent, paid in self._paid.items():
            metrics[f"{agent}/reward"] = [sum(reward for reward, _ in paid) / len(paid)]
            for part in dict.fromkeys(name for _, parts in paid for name in parts):
                metrics[f"{agent}/rewards/{part}"] = [sum(parts.get(part, 0.0) for _, parts in paid) / len(paid)]
        for agent, read in self._read.items():
            metrics |= {f"{agent}/{name}": [read[form] / read.total()] for form, name in READ_AS.items()}
        are_flat = defaultdict[str, list[bool]](list)
        for (agent, _), values in self._groups.items():
            are_flat[agent].append(are_equal(values))
        for agent, flat in are_flat.items():
            metrics[f"{agent}/frac_reward_zero_std"] = [sum(flat) / len(flat)]
        for name, given in self._scores.items():
            scores = torch.tensor(given)
            metrics[f"rewards/{name}/mean"] = [torch.nanmean(scores).item()]
            metrics[f"rewards/{name}/std"] = [nanstd(scores).item()]
        return metrics

    def of_evaluation(self) -> Metrics:
        """The same with TRL's `reward`, the mean over the candidates of all agents; without what has no value, such as
        the mean of a reward function that gave `None` throughout."""
        metrics = self.of_generation()
        if self._rewards:
            metrics["reward"] = [sum(self._rewards) / len(self._rewards)]
        return {name: values for name, values in metrics.items() if not all(map(math.isnan, values))}


def with_absent_parts(metrics: Metrics, logged: Mapping[str, Sequence[float]]) -> Metrics:
    """A generation's metrics, with 0 for parts of rewards that only it or others have: a log is a mean of them."""
    filled = dict(metrics)
    for part in {**logged, **metrics}:
        if "/rewards/" in part and "agent/" in part:
            reward = f"{part.partition('/rewards/')[0]}/reward"  # which every generation has in which the agent acts
            missing = len(logged.get(reward, ())) - len(logged.get(part, ()))
            filled[part] = [0.0] * missing + metrics.get(part, [0.0] * len(metrics.get(reward, ())))
    return filled


def prefix_shares(decisions: Sequence[Decision], policies: Mapping[str, str]) -> Iterator[tuple[str, float]]:
    """How much of each prompt of an episode its policy has read or written before, of which an engine has a cache.

    That is the share of its tokens that are the longest common prefix with an earlier decision, prompt and reply, of
    that policy. A team that rewrites its history, rather than appends to it, has lower shares.

    Yields:
        The agent and the share in [0, 1], for each prompt before which its policy was asked in that episode. Not of
        prompts without token ids, such as those of agents behind an API.
    """
    earlier: dict[str, list[Any]] = defaultdict(list)
    for decision in decisions:
        ids = np.array(decision.prompt.ids)
        if decision.agent in policies and len(ids):
            before = earlier[policies[decision.agent]]
            if before:
                yield decision.agent, max(map(partial(_num_common, ids), before)) / len(ids)
            before.append(np.array(decision.prompt.ids + decision.played.completion.ids))


def _num_common(one: Any, other: Any) -> int:
    num = min(len(one), len(other))
    differs = np.flatnonzero(one[:num] != other[:num])
    return int(differs[0]) if len(differs) else num
