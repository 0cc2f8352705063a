"""Finds the calls that decide the outcome of episodes: each is answered anew, and the episode played on from there.

Let V(t) be the expected return of an episode, given all that came before its call t, and V(T) the return it had. The
effect of a call is the mean over episodes of (V(t + 1) - V(t))^2: the square, since a reply that is sometimes good and
sometimes bad changes nothing in the mean. By the law of total variance the effects of all calls add up to the variance
of the return between episodes of one problem, so an effect is the part of it that the call decides. As in VinePPO
(arXiv:2410.01679), V(t) is estimated by the mean of several continuations from there. What their noise adds to the
square is subtracted, so that the estimate is unbiased: over calls without an effect its mean is 0.

What is always wrong decides nothing, so a constant fault is found by a substitute: another agent gives the call and
the member's later ones, and what the return gains is the mean over episodes of the difference.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np

from pettingllms_envs.agents.base import CARRIES, Agent, Reply, Request
from pettingllms_envs.episodes.episode import Instance
from pettingllms_envs.episodes.figures import mean_by_problem
from pettingllms_envs.episodes.files import JsonObject, place, problem
from pettingllms_envs.episodes.recorded import Recorded
from pettingllms_envs.evaluation.statistics import difference_interval, studentized_bootstrap, wilson


@dataclass(frozen=True, slots=True)
class CallsAnew:
    """The episodes in which the calls of a run are answered anew: their numbers, agents and results.

    Args:
        rows: The run's rows without an error, with prompts and replies.
        num: How often each call is answered anew, at least 2.
    """

    rows: Sequence[JsonObject]
    samples: int
    num: int

    kind: ClassVar[str] = "blame"

    @property
    def places(self) -> list[tuple[Instance, int]]:
        """The problem and the number of each episode, which are no numbers of the run's: so its seeds are others."""
        return [
            (Instance.of(row), self.samples + (call * self.samples + row["sample"]) * self.num + number)
            for row in self.rows
            for call, step in enumerate(row["steps"])
            if self.asks(step["agent"])
            for number in range(self.num)
        ]

    def asks(self, agent: str) -> bool:
        """Whether calls of this agent are answered anew."""
        return True

    def call_of(self, number: int) -> tuple[int, int]:
        """The call that is answered anew in the episode of a number, and the number of that call's episode."""
        return divmod((number - self.samples) // self.num, self.samples)

    def wrap(self, env: Any) -> Any:
        return env

    def agents(self, agents: Mapping[str, Agent]) -> dict[str, Agent]:
        """Agents that give the recorded replies before the call, and from there on those of `agents`."""
        recorded = Recorded(self.rows)
        return {name: _FromACallOn(agent, recorded, self) for name, agent in agents.items()}

    def effects(self, continuations: Sequence[JsonObject]) -> dict[str, Any]:
        """The effect of each call, 0 in an episode without it, with a 95% interval by problems, or episodes of one.

        Where no answer changed the outcome the bootstrap would be the point 0, so that the upper end is at least
        Wilson's of 0 in twice as many trials (each call was answered twice more at least), in units of the squared
        range of the returns.

        Returns:
            `episodes`, the number of those whose calls have two continuations each; `varied`, whether some succeeded
            and some did not, or where success is not known, whether returns differ; and `calls`, none if
            `episodes` is below 2, the largest effect first: `agent`, `call` from 1, `episodes` that have it, `mean`,
            `low`, `high`, and `share` of the sum of all effects, or None if that is not above 0.
        """
        played: dict[tuple[int, int, int], list[Mapping[str, float]]] = {}
        successes = {row.get("success") for row in (*self.rows, *continuations) if row["error"] is None} - {None}
        for row in continuations:
            if row["error"] is None:
                call, sample = self.call_of(row["sample"])
                played.setdefault((row["instance"]["index"], sample, call), []).append(row["returns"])
        found: dict[tuple[str, int], dict[tuple[int, int], float]] = {}
        used = []
        seen: list[Mapping[str, float]] = []
        for row in self.rows:
            returns = [played.get((*place(row), call), []) for call in range(len(row["steps"]))]
            if all(len(each) > 1 for each in returns):
                used.append(row)
                seen += [row["returns"], *(own for each in returns for own in each)]
                number = Counter[str]()
                for step, effect in zip(row["steps"], squares(returns, row["returns"]), strict=True):
                    number[step["agent"]] += 1
                    found.setdefault((step["agent"], number[step["agent"]]), {})[place(row)] = effect
        ranges = [np.ptp([own.get(agent, 0.0) for own in seen]) for agent in (used[0]["returns"] if used else ())]
        scale = float(np.mean(np.square(ranges))) if ranges else 0.0
        calls: list[dict[str, Any]] = []
        for (agent, call), own in found.items() if len(used) > 1 else ():
            of_rows = [(problem(row), own.get(place(row), 0.0)) for row in used]
            of_problems = mean_by_problem(of_rows)
            each = of_problems if len(of_problems) > 1 else [effect for _, effect in of_rows]
            low, high = studentized_bootstrap(each)
            high = max(high, wilson(0, 2 * len(each))[1] * scale)
            mean = sum(each) / len(each)
            calls.append({"agent": agent, "call": call, "episodes": len(own), "mean": mean, "low": low, "high": high})
        total = sum(each["mean"] for each in calls)
        calls = [{**each, "share": each["mean"] / total if total > 0 else None} for each in calls]
        return {
            "episodes": len(used),
            "varied": len(successes) > 1 if successes else scale > 0,
            "calls": sorted(calls, key=lambda each: -each["mean"]),
        }


@dataclass(frozen=True, slots=True)
class CallsSubstituted(CallsAnew):
    """The episodes in which a member's calls, from one on, are given by another agent, which the run's agents name.

    Args:
        member: The agent whose calls they are.
    """

    member: str

    kind: ClassVar[str] = "substitute"

    def asks(self, agent: str) -> bool:
        return agent == self.member

    def effects(self, continuations: Sequence[JsonObject]) -> dict[str, Any]:
        """What the return and success gain, with 95% intervals by problems, or episodes of one.

        Returns:
            `member`, `episodes` that were played on, and `calls` in order: `call` from 1, `episodes` that have it, and
            `gains`, of `return` and, where it is known, `success`: `mean`, `low`, `high`.
        """
        played: dict[tuple[int, int, int], list[JsonObject]] = {}
        for row in continuations:
            if row["error"] is None:
                call, sample = self.call_of(row["sample"])
                played.setdefault((row["instance"]["index"], sample, call), []).append(row)
        gains: dict[int, dict[str, list[tuple[str, float]]]] = {}
        for row in self.rows:
            own = [call for call, step in enumerate(row["steps"]) if step["agent"] == self.member]
            for number, call in enumerate(own, 1):
                for other in played.get((*place(row), call), ()):
                    found = gains.setdefault(number, {"return": [], "success": []})
                    gain = other["returns"].get(self.member, 0.0) - row["returns"].get(self.member, 0.0)
                    found["return"].append((problem(row), gain))
                    if row["success"] is not None and other["success"] is not None:
                        found["success"].append((problem(row), float(other["success"]) - float(row["success"])))
        calls = [
            {
                "call": number,
                "episodes": len(found["return"]) // self.num,
                "gains": {name: _gain(name, each) for name, each in found.items() if each},
            }
            for number, found in sorted(gains.items())
        ]
        return {"member": self.member, "episodes": len(self.rows), "calls": calls}


def _gain(name: str, found: Sequence[tuple[str, float]]) -> dict[str, float]:
    means = mean_by_problem(found)
    each = means if len(means) > 1 else [gain for _, gain in found]
    mean = sum(each) / len(each)
    low, high = difference_interval(each) if name == "success" else studentized_bootstrap(each)
    return {"mean": mean, "low": low, "high": high}


def squares(continuations: Sequence[Sequence[Mapping[str, float]]], returns: Mapping[str, float]) -> list[float]:
    """Unbiased estimates of (V(t + 1) - V(t))^2 for each call of an episode, each the mean over agents.

    Of each call there are at least two continuations; `returns` are those of the episode itself.
    """
    values = [np.array([[own.get(agent, 0.0) for agent in returns] for own in each]) for each in continuations]
    means = np.array([*(each.mean(axis=0) for each in values), list(returns.values())])  # (calls + 1, agents)
    noise = np.array([*(each.var(axis=0, ddof=1) / len(each) for each in values), np.zeros(len(returns))])
    found: list[float] = ((means[1:] - means[:-1]) ** 2 - noise[1:] - noise[:-1]).mean(axis=1).tolist()
    return found


class _FromACallOn:
    """Gives the recorded replies before the call that is answered anew, and an agent's from there on."""

    carries = CARRIES  # the run itself was refused where its agent cannot be given them

    def __init__(self, agent: Agent, recorded: Recorded, anew: CallsAnew) -> None:
        self._agent, self._recorded, self._anew = agent, recorded, anew

    def reply(self, request: Request) -> Reply:
        call, sample = self._anew.call_of(request.sample)
        if request.step < call:
            return self._recorded.reply(replace(request, sample=sample))
        return self._agent.reply(request)
