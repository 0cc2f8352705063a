"""What an episode shows in figures: the same for a training's log, the report of a run, and its page.

Each figure of an agent is a function of its replies and of what the episode came to. One that is added to
`AGENT_FIGURES` is logged by a training as `agent/<agent>/<name>`, is in `report.json` with its interval and in the
table of `pettingllms bench`, and has a card, a curve and a line of what was learned on the page.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple


class PlayedReply(NamedTuple):
    """A reply that was played on, without its text, which the log of a finished run may lack.

    Args:
        tokens: Their number; `None`: unknown.
        finish: Why it ended: `"length"` if it was cut off; `None`: unknown.
    """

    agent: str
    tokens: int | None
    finish: str | None


class AgentEpisode(NamedTuple):
    """What there is to know of an agent in an episode."""

    agent: str
    replies: Sequence[PlayedReply]
    returns: Mapping[str, float]
    outcome: Mapping[str, Any]


AgentFigure = Callable[[AgentEpisode], float | None]
"""A figure of an agent in an episode; `None`: it has none."""


def frac_cut_off(episode: AgentEpisode) -> float | None:
    """The share of replies that were cut off at their greatest length, of those of which it is known."""
    known = [reply.finish == "length" for reply in episode.replies if reply.finish is not None]
    return sum(known) / len(known) if known else None


AGENT_FIGURES: Mapping[str, AgentFigure] = {
    "return": lambda episode: episode.returns[episode.agent],
    "frac_cut_off": frac_cut_off,
}


def words(name: str) -> str:
    """The name of a figure for a reader: `"frac_cut_off"` -> `"share cut off"`."""
    return name.replace("frac_", "share_").replace("_", " ")


def of_agents(
    replies: Sequence[PlayedReply], returns: Mapping[str, float], outcome: Mapping[str, Any]
) -> dict[str, dict[str, float]]:
    """The figures of each agent in an episode, by name; see `AgentEpisode`."""
    found: dict[str, dict[str, float]] = {}
    for agent in returns:
        episode = AgentEpisode(agent, [reply for reply in replies if reply.agent == agent], returns, outcome)
        values = {name: figure(episode) for name, figure in AGENT_FIGURES.items()}
        found[agent] = {name: value for name, value in values.items() if value is not None}
    return found


def of_row(row: Mapping[str, Any]) -> dict[str, dict[str, float]]:
    """The figures of each agent in a recorded episode, by name."""
    replies = [
        PlayedReply(step["agent"], (step.get("tokens") or {}).get("completion"), step.get("finish"))
        for step in row["steps"]
    ]
    return of_agents(replies, row["returns"] or {}, row["outcome"] or {})


def of_outcome(outcome: Mapping[str, Any]) -> dict[str, float]:
    """The numbers of an outcome; a boolean is 0 or 1, so that the mean of `success` is its rate."""
    scalars = {
        name: value.item() for name, value in outcome.items() if getattr(value, "shape", None) == ()
    }  # of NumPy
    plain = {**outcome, **scalars}
    return {name: float(value) for name, value in plain.items() if isinstance(value, bool | int | float)}


def mean_by_problem(values: Iterable[tuple[Any, float]]) -> list[float]:
    """The mean over the episodes of each problem, from pairs of a problem and a value, in the order of problems: the
    values whose mean and interval are reported, so that each problem has the same weight."""
    of_problem: dict[Any, list[float]] = {}
    for problem, value in values:
        of_problem.setdefault(problem, []).append(value)
    return [sum(each) / len(each) for each in of_problem.values()]
