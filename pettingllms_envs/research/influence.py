"""Measures how much a role's replies change the returns, by replaying episodes with one reply replaced."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from itertools import islice
from typing import Any

import pettingllms_envs
from pettingllms_envs.agent_names import role_of
from pettingllms_envs.branching import check_replayable
from pettingllms_envs.episodes.episode import EpisodeRecorder, Instance, RunLimits
from pettingllms_envs.episodes.files import JsonObject, problem, remade
from pettingllms_envs.evaluation.statistics import Interval, bootstrap


UNTIL_THE_END = RunLimits(max_steps=2**62)
MOST_EPISODES = 1000
"""Most episodes that are sampled from a run."""
SAME = 1e-9


@dataclass(frozen=True, slots=True, kw_only=True)
class Influence:
    """The effect of replacing replies of one role on the mean of all agents' returns.

    Args:
        silence: Mean change of an episode's result if a reply is replaced by the empty one.
        silence_interval: 95% interval of that mean, by resampling problems.
        other: Mean change if it is replaced by a reply of the role from another episode.
        num_changed: Number of those that changed the result in either way.
    """

    role: str
    silence: float
    silence_interval: Interval
    other: float
    other_interval: Interval
    num: int
    num_changed: int

    def __str__(self) -> str:
        silence = _mean_words(self.silence, self.silence_interval)
        other = _mean_words(self.other, self.other_interval)
        return (
            f"{self.role} silent {silence}, with a reply from elsewhere {other} "
            f"({self.num_changed} of {self.num} changed a return)"
        )


def of_roles(
    header: Mapping[str, Any], rows: Callable[[], Iterable[JsonObject]], *, num_replies: int, seed: int = 0
) -> Mapping[str, Influence] | str:
    """The influence of each role of a run, on the mean of all agents' returns of an episode.

    All other replies are the recorded ones, in their order, and empty once the record is used up.

    Args:
        rows: Reads its rows; called several times.
        num_replies: Most replies of each role that are replaced, one in an episode.

    Returns:
        The influence by role; or a message if it cannot be measured: the environment cannot be made, declares that it
        cannot be played again, or does not play as recorded.
    """
    rng = random.Random(seed)
    drawn = _sample(rows(), MOST_EPISODES, rng)
    found: dict[str, list[tuple[str, float, float]]] = {}
    envs: dict[str, Any] = {}
    pools = _replies_of(drawn)
    for row in drawn:
        try:
            name, settings = remade(header, row)
            key = repr((name, settings))
            if key not in envs:
                envs[key] = pettingllms_envs.make(name, **settings)
                check_replayable(envs[key])
        except (ValueError, TypeError, ImportError) as error:
            return f"the environment cannot be made or played again: {error}"
        places = [i for i, step in enumerate(row["steps"]) if len(found.get(role_of(step["agent"]), ())) < num_replies]
        if not places or row["error"] is not None:
            continue
        recorded = _result(envs[key], row, None, "")
        if any(abs(recorded.get(agent, 0.0) - value) > 1e-6 for agent, value in row["returns"].items()):
            return f"instance {row['instance']['index']} does not play again as recorded: see `pettingllms replay`"
        for role in dict.fromkeys(role_of(row["steps"][i]["agent"]) for i in places):
            at = rng.choice([i for i in places if role_of(row["steps"][i]["agent"]) == role])
            own = row["steps"][at]["reply"]
            others = [reply for reply in pools[role] if reply != own] or [own]
            silent = _mean(_result(envs[key], row, at, "")) - _mean(recorded)
            other = _mean(_result(envs[key], row, at, rng.choice(others))) - _mean(recorded)
            found.setdefault(role, []).append((problem(row), silent, other))
    if not found:
        return "there is no episode without an error"
    return {role: _summary(role, changes) for role, changes in found.items()}


def _summary(role: str, changes: list[tuple[str, float, float]]) -> Influence:
    by_problem: dict[str, list[tuple[float, float]]] = {}
    for name, silent, other in changes:
        by_problem.setdefault(name, []).append((silent, other))
    silences = [sum(s for s, _ in each) / len(each) for each in by_problem.values()]
    others = [sum(o for _, o in each) / len(each) for each in by_problem.values()]
    return Influence(
        role=role,
        silence=sum(silences) / len(silences),
        silence_interval=bootstrap(silences),
        other=sum(others) / len(others),
        other_interval=bootstrap(others),
        num=len(changes),
        num_changed=sum(max(abs(silent), abs(other)) > SAME for _, silent, other in changes),
    )


def _result(env: Any, row: JsonObject, at: int | None, reply: str) -> dict[str, float]:
    """The returns of a replayed episode with the reply of one step replaced."""
    recorder = EpisodeRecorder(env, Instance.of(row))
    queues: dict[str, list[str]] = {}
    for i, step in enumerate(row["steps"]):
        queues.setdefault(step["agent"], []).append(reply if i == at else step["reply"])
    left = {agent: iter(replies) for agent, replies in queues.items()}
    recorder.reset()
    most = 2 * len(row["steps"]) + len(queues)  # an environment may have no end of its own
    while not recorder.end(UNTIL_THE_END) and len(recorder.steps) < most:
        agent = env.agent_selection
        given = next(left.get(agent, iter(())), None)
        if given is None and at is None:
            break  # the record ends here
        recorder.play(given or "", {**recorder.prompt_fields(agent), "reply": given or ""})
    returns: dict[str, float] = recorder.row(row["sample"], "", None)["returns"]
    return returns


def _replies_of(rows: Iterable[JsonObject]) -> dict[str, list[str]]:
    pools: dict[str, dict[str, None]] = {}
    for row in rows:
        for step in row["steps"]:
            pools.setdefault(role_of(step["agent"]), {})[step["reply"]] = None
    return {role: list(replies) for role, replies in pools.items()}


def _sample(rows: Iterable[JsonObject], number: int, rng: random.Random) -> list[JsonObject]:
    """A uniform sample of `number` rows, taken in one pass; without their candidates."""
    stream = (_thin(row) for row in rows)
    kept = list(islice(stream, number))
    for seen, row in enumerate(stream, number + 1):
        if (at := rng.randrange(seen)) < number:
            kept[at] = row
    rng.shuffle(kept)
    return kept


def _thin(row: JsonObject) -> JsonObject:
    steps = [{key: step[key] for key in ("agent", "reply")} for step in row["steps"]]
    return {**row, "steps": steps}


def _mean_words(mean: float, interval: Interval) -> str:
    low, middle, high = (f"{round(value, 2) + 0.0:+.2f}" for value in (interval[0], mean, interval[1]))
    return f"{middle} [{low}, {high}]"


def _mean(returns: Mapping[str, float]) -> float:
    return sum(returns.values()) / len(returns) if returns else 0.0
