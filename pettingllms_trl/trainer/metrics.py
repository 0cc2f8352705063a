"""What is logged of episodes: means over episodes, agents and parts of the reward, named as in docs/metrics.md."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Sequence

from pettingllms_trl.records import Episode


def of_episodes(episodes: Sequence[Episode], *, groups_of: Collection[str]) -> dict[str, list[float]]:
    """Values by metric, each to be averaged over those of other generations; of several environments in one run also
    those of each, as `env/<name>/<metric>`.

    Args:
        episodes: Of one generation or evaluation; at least one decision.
        groups_of: Agents the candidates of whose decisions are a group, so that one whose rewards are all equal
            teaches nothing.
    """
    metrics = _of_all(episodes, groups_of)
    for name in dict.fromkeys(episode.environment for episode in episodes if episode.environment):
        own = [episode for episode in episodes if episode.environment == name]
        metrics |= {f"env/{name}/{metric}": values for metric, values in _of_all(own, groups_of).items()}
    return metrics


def _of_all(episodes: Sequence[Episode], groups_of: Collection[str]) -> dict[str, list[float]]:
    metrics: dict[str, list[float]] = defaultdict(list)
    for episode in episodes:
        metrics["rollout/decisions"].append(len(episode.decisions))
        for name, value in episode.outcome.items():
            if isinstance(value, int | float):  # a bool counts as 0 or 1: success -> success rate
                metrics[f"outcome/{name}"].append(float(value))
        for agent, value in episode.returns.items():
            metrics[f"agent/{agent}/return"].append(value)
    decisions = [decision for episode in episodes for decision in episode.decisions]
    sampled = [len(candidate.completion.ids) for decision in decisions for candidate in decision.candidates]
    metrics["rollout/completion_tokens"].append(sum(sampled))
    for agent in dict.fromkeys(decision.agent for decision in decisions):
        own = [decision.candidates for decision in decisions if decision.agent == agent]
        candidates = [candidate for group in own for candidate in group]
        metrics[f"agent/{agent}/reward"].append(sum(candidate.reward for candidate in candidates) / len(candidates))
        for part in dict.fromkeys(name for candidate in candidates for name in candidate.parts):
            mean = sum(candidate.parts.get(part, 0.0) for candidate in candidates) / len(candidates)
            metrics[f"agent/{agent}/rewards/{part}"].append(mean)
        if agent in groups_of:
            flat = sum(len({candidate.reward for candidate in group}) == 1 for group in own)
            metrics[f"agent/{agent}/frac_reward_zero_std"].append(flat / len(own))
    return metrics


def of_completions(lengths: Sequence[int], terminated: Sequence[bool]) -> dict[str, float]:
    """TRL's metrics of completions, from their lengths and whether each came to its end; at least one completion.

    TRL takes them over all rows of all processes, also over those that only fill up.
    """
    whole = [length for length, ended in zip(lengths, terminated, strict=True) if ended] or [0]
    return {
        "completions/mean_length": sum(lengths) / len(lengths),
        "completions/min_length": float(min(lengths)),
        "completions/max_length": float(max(lengths)),
        "completions/clipped_ratio": 1 - sum(terminated) / len(terminated),
        "completions/mean_terminated_length": sum(whole) / len(whole),
        "completions/min_terminated_length": float(min(whole)),
        "completions/max_terminated_length": float(max(whole)),
    }
