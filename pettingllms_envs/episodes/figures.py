"""What an episode shows in figures: the same for a training's log, the report of a run, and its page.

Each figure of an agent is a function of what the episode came to. One that is added to `AGENT_FIGURES` is logged by a
training as `agent/<agent>/<name>`, is in `report.json` with its interval, and has a card and a curve on the page.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any


AgentFigure = Callable[[str, Mapping[str, float], Mapping[str, Any]], float | None]
"""A figure of an agent, from the returns and the outcome of an episode; `None`: the agent has none in it."""

AGENT_FIGURES: Mapping[str, AgentFigure] = {"return": lambda agent, returns, outcome: returns.get(agent)}


def of_agent(agent: str, returns: Mapping[str, float], outcome: Mapping[str, Any]) -> dict[str, float]:
    """The figures of an agent in an episode, by name."""
    found = {name: figure(agent, returns, outcome) for name, figure in AGENT_FIGURES.items()}
    return {name: value for name, value in found.items() if value is not None}


def of_outcome(outcome: Mapping[str, Any]) -> dict[str, float]:
    """The numbers of an outcome; a boolean is 0 or 1, so that the mean of `success` is its rate."""
    return {name: float(value) for name, value in outcome.items() if isinstance(value, bool | int | float)}


def mean_by_problem(values: Iterable[tuple[Any, float]]) -> list[float]:
    """The mean over the episodes of each problem, from pairs of a problem and a value, in the order of problems: the
    values whose mean and interval are reported, so that each problem has the same weight."""
    of_problem: dict[Any, list[float]] = {}
    for problem, value in values:
        of_problem.setdefault(problem, []).append(value)
    return [sum(each) / len(each) for each in of_problem.values()]
