"""What an evaluation shows: success with its interval, regret, each role's part; as a table and as a curve."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pettingllms_trl import Episode


Z95 = 1.959964


def wilson(successes: int, trials: int) -> tuple[float, float]:
    """The 95% score interval of a share (Wilson 1927), in [0, 1]."""
    share, square = successes / trials, Z95**2
    middle = (share + square / (2 * trials)) / (1 + square / trials)
    half = Z95 / (1 + square / trials) * math.sqrt(share * (1 - share) / trials + square / (4 * trials**2))
    return max(middle - half, 0.0), min(middle + half, 1.0)  # they pass 0 and 1 by a rounding error


def summary(episodes: Sequence[Episode]) -> dict[str, Any]:
    """Success with its interval, mean path regret with its own, and each agent's mean reward and unreadable share."""
    successes = sum(bool(episode.outcome["success"]) for episode in episodes)
    regrets = [float(episode.outcome["regret"]) for episode in episodes]
    mean = sum(regrets) / len(regrets)
    deviation = math.sqrt(sum((regret - mean) ** 2 for regret in regrets) / (len(regrets) - 1))
    roles: dict[str, Any] = {}
    for agent in dict.fromkeys(d.agent for e in episodes for d in e.decisions):
        played = [d.played for e in episodes for d in e.decisions if d.agent == agent]
        roles[agent] = {
            "reward": sum(candidate.reward for candidate in played) / len(played),
            "unreadable": sum("format" in candidate.parts for candidate in played) / len(played),
        }
    return {
        "episodes": len(episodes),
        "success": successes / len(episodes),
        "interval": wilson(successes, len(episodes)),
        "regret": mean,
        "regret_half_width": Z95 * deviation / math.sqrt(len(regrets)),
        "roles": roles,
    }


def table(rows: dict[str, dict[str, Any]]) -> str:
    """The summaries under each other; one line each, then one for each of its agents."""
    lines = [f"{'':34}{'success':>9}  {'95% interval':<15}{'path regret':>17}{'reward':>9}{'unreadable':>12}"]
    for name, row in rows.items():
        low, high = row["interval"]
        regret = f"{row['regret']:.3f} +- {row['regret_half_width']:.3f}"
        lines.append(f"{name:34}{row['success']:>9.1%}  [{low:.1%}, {high:.1%}]{regret:>17}")
        for agent, part in row["roles"].items():
            lines.append(f"{'  ' + agent:34}{'':9}  {'':15}{'':17}{part['reward']:>9.2f}{part['unreadable']:>12.1%}")
    return "\n".join(lines)


def draw_curve(path: Path, histories: dict[str, list[dict[str, float]]], rows: dict[str, dict[str, Any]]) -> None:
    """Rewards while training, and success on the held-out instances before and after, as a PNG."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot as plt

    figure, (left, right) = plt.subplots(1, 2, figsize=(11, 4), width_ratios=(3, 2))
    for name, history in histories.items():
        for agent in sorted({key.split("/")[1] for log in history for key in log if key.startswith("agent/")}):
            points = [
                (log["tokens"] / 1000, log[f"agent/{agent}/reward"])
                for log in history
                if f"agent/{agent}/reward" in log
            ]
            smooth = _running_mean([y for _, y in points])
            left.plot([x for x, _ in points], smooth, label=f"{name}, {agent}")
    left.set_xlabel("generated tokens (thousands)")
    left.set_ylabel("mean reward of a candidate (running mean of 9)")
    left.legend(fontsize=8)
    names = list(rows)
    success = [rows[name]["success"] for name in names]
    errors = [[s - rows[n]["interval"][0] for s, n in zip(success, names, strict=True)]]
    errors.append([rows[n]["interval"][1] - s for s, n in zip(success, names, strict=True)])
    right.barh(names, success, xerr=errors, color="#4c72b0", ecolor="#222222", capsize=3)
    right.invert_yaxis()
    right.set_xlim(0, 1)
    right.set_xlabel(f"success on {rows[names[0]]['episodes']} held-out instances, 95% interval")
    figure.tight_layout()
    figure.savefig(path, dpi=120)
    plt.close(figure)


def _running_mean(values: Sequence[float], width: int = 9) -> list[float]:
    return [sum(part) / len(part) for i in range(len(values)) for part in [values[max(0, i - width + 1) : i + 1]]]
