"""What an evaluation shows: success with its interval, regret, each role's part; as a table and as a picture."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from pettingllms_envs.evaluation.statistics import wilson
from pettingllms_trl import Episode


Z95 = 1.959964


def summary(episodes: Sequence[Episode]) -> dict[str, Any]:
    """Success with its interval, mean path regret with its own, and each agent's mean reward and unreadable share."""
    successes = sum(bool(episode.outcome["success"]) for episode in episodes)
    regrets = [float(episode.outcome["regret"]) for episode in episodes]
    mean = sum(regrets) / len(regrets)
    squares = sum((regret - mean) ** 2 for regret in regrets)
    deviation = math.sqrt(squares / (len(regrets) - 1)) if len(regrets) > 1 else math.nan
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


def share(successes: str) -> tuple[float, float, float]:
    """The share of 1 among 0 and 1, and the ends of its 95% interval."""
    trials = len(successes)
    return successes.count("1") / trials, *wilson(successes.count("1"), trials)


def interval_table(rows: Mapping[str, str]) -> str:
    """A line for each: its share of successes with its interval.

    Args:
        rows: A character for each episode, 1 for a success, else 0.
    """
    lines = [f"{'':44}{'success':>9}  95% interval"]
    for name, successes in rows.items():
        mean, low, high = share(successes)
        lines.append(f"{name:44}{mean:>9.1%}  [{low:.1%}, {high:.1%}]")
    return "\n".join(lines)


def draw_bars(
    path: Path,
    history: Sequence[dict[str, float]],
    evaluations: Sequence[tuple[int, float]],
    rows: Mapping[str, str],
    bound: float,
) -> None:
    """Rewards and held-out success while training, and success at its end beside the bound, as a PNG.

    Args:
        path: Where it is written.
        history: A log for each step, with `tokens` and the agents' rewards.
        evaluations: Tokens that were generated before, and the success of the team.
        rows: As of `interval_table`.
        bound: The greatest share of successes of who lacks one archive.
    """
    plt = _pyplot()
    figure, (left, right) = plt.subplots(1, 2, figsize=(12, 4), width_ratios=(2, 3))
    _draw_rewards(left, "", history)
    left.plot([tokens / 1000 for tokens, _ in evaluations], [each for _, each in evaluations], "k--o", label="success")
    left.set_ylabel("mean reward of a candidate (running mean of 9)\nsuccess on 100 other instances, nothing chosen")
    left.legend(fontsize=8)
    shares = [share(successes) for successes in rows.values()]
    errors = [[mean - low for mean, low, _ in shares], [high - mean for mean, _, high in shares]]
    colors = ["#4c72b0" if name == "team, trained" else "#a0b4d4" for name in rows]
    right.barh(list(rows), [mean for mean, *_ in shares], xerr=errors, color=colors, ecolor="#222222", capsize=3)
    right.axvline(bound, color="#c44e52", linestyle="--", label=f"without one archive: at most {bound:.1%}, proven")
    right.invert_yaxis()
    right.set_xlim(0, 1)
    right.set_xlabel("success on held-out instances, 95% interval")
    right.legend(fontsize=8, loc="upper right")
    figure.tight_layout()
    figure.savefig(path, dpi=120)
    plt.close(figure)


def draw_curve(path: Path, histories: dict[str, list[dict[str, float]]], rows: dict[str, dict[str, Any]]) -> None:
    """Rewards while training, and success on the held-out instances before and after, as a PNG."""
    plt = _pyplot()
    figure, (left, right) = plt.subplots(1, 2, figsize=(11, 4), width_ratios=(3, 2))
    for name, history in histories.items():
        _draw_rewards(left, f"{name}, ", history)
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


def _pyplot() -> Any:
    """matplotlib without a display; imported here, since a table does not need it."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    return pyplot


def _draw_rewards(axes: Any, prefix: str, history: Sequence[dict[str, float]]) -> None:
    """Each agent's reward over tokens."""
    for agent in sorted({key.split("/")[1] for log in history for key in log if key.startswith("agent/")}):
        name = f"agent/{agent}/reward"
        points = [(log["tokens"] / 1000, log[name]) for log in history if name in log]
        axes.plot([x for x, _ in points], _running_mean([y for _, y in points]), label=f"{prefix}{agent}")
    axes.set_xlabel("generated tokens (thousands)")
    axes.set_ylabel("mean reward of a candidate (running mean of 9)")
    axes.legend(fontsize=8)


def _running_mean(values: Sequence[float], width: int = 9) -> list[float]:
    return [sum(part) / len(part) for i in range(len(values)) for part in [values[max(0, i - width + 1) : i + 1]]]
