"""Rows of docs/records.md (a training's rollouts, a benchmark's episodes) to what the checks read."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterator, Mapping
from typing import Any

from pettingllms_envs.audit.rows import Candidate, Decision, Episode, Part, RunFacts, Written
from pettingllms_envs.episodes.files import JsonObject, digest


NUMBER = int | float | None
TYPES: Mapping[str, Any] = {"reply": str, "reward": NUMBER, "advantage": NUMBER, "tokens": NUMBER}
"""Of a candidate, as far as they are calculated with."""


def run_of(header: JsonObject, report: JsonObject | None = None) -> RunFacts:
    """What a `run.json` says of the run, and the `report.json` of a benchmark that came to its end."""
    config = header["config"]
    if header["kind"] != "rollouts":
        ended = None if report is None else report["episodes"]["ended"]
        return RunFacts(kind="bench", is_tree=False, written=None if ended is None else Written(episodes=ended))
    written = header.get("written")
    credit = config.get("credit") or {}
    sampling = config.get("sampling")
    agents = config.get("agents") or {}
    return RunFacts(
        kind="rollouts",
        is_tree=None if sampling is None else sampling == "tree",
        num_candidates=config.get("num_generations"),
        sums=credit.get("sums_to_zero"),
        credit=credit.get("name"),
        policies={
            agent: each["policy"]
            for agent, each in agents.items()
            if isinstance(each, dict) and isinstance(each.get("policy"), str)
        },
        judges_own_step=credit.get("judges_own_step"),
        scale=credit.get("scale"),
        temperature=config.get("temperature"),
        written=None if written is None else Written(episodes=written["episodes"], digest=written["digest"]),
    )


def episode_of(run: RunFacts, row: JsonObject, where: str = "") -> Episode:
    """A row of `episodes.jsonl`. In errors `where` is its place."""
    returns = [value for value in row["returns"].values() if value is not None]
    training = row.get("training") or {}
    written = row.get("digest")
    return Episode(
        instance=row["instance"]["index"],
        decisions=tuple(_decision(run, each, f"{where}: steps[{i}]") for i, each in enumerate(row["steps"])),
        step=training.get("step"),
        sample=row["sample"],
        where=where,
        result=sum(returns) / len(returns) if returns and row["error"] is None else None,
        success=row["success"],
        error=None if row["error"] is None else row["error"]["kind"],
        returns=row["returns"],
        reward_sums=_reward_sums(run, row),
        digest=written,
        is_changed=None if written is None else written != digest(row),
        part=_part(training),
        continued=tuple(each for each in _continued(run, row, where) if each.learns),
        is_history=row.get("states") == "history",
    )


def _continued(run: RunFacts, row: JsonObject, where: str) -> Iterator[Decision]:
    """The decisions inside the continuations of an episode's candidates."""
    for step in row["steps"]:
        for candidate in step.get("candidates") or ():
            for each in candidate.get("continuations", ()):
                for own in each["steps"]:
                    yield _decision(run, own, f"{where}: a continuation")


def _part(training: Mapping[str, int]) -> Part | None:
    if not {"before", "episodes"} <= training.keys():
        return None
    return Part(before=training["before"], episodes=training["episodes"])


def _reward_sums(run: RunFacts, row: JsonObject) -> dict[str, float]:
    """The sum of each agent's rewards. An earlier version wrote that of the agent that acted alone in a training."""
    steps = [step["rewards"] for step in row["steps"]]
    has_others = any(agent != step["agent"] for step in row["steps"] for agent in step["rewards"])
    are_all = has_others or not run.is_training
    agents = [each for each in row["returns"] if are_all or all(each in rewards for rewards in steps)]
    return {agent: math.fsum(rewards.get(agent, 0.0) for rewards in steps) for agent in agents}


def _decision(run: RunFacts, step: JsonObject, where: str) -> Decision:
    candidates = step.get("candidates")
    prompt = step.get("prompt_ids") if run.is_training else _digest(step)
    if candidates is None:
        played = {"reply": step["reply"], "tokens": step["tokens"].get("completion"), "finish": step["finish"]}
        candidates = [{**played, "reward": step["rewards"].get(step["agent"]), "chosen": True}]
    for i, each in enumerate(candidates):
        _check(each, f"{where}.candidates[{i}]")
    are_marked = all("advantage" in each for each in candidates)
    return Decision(
        agent=step["agent"],
        candidates=tuple(_candidate(each, prompt) for each in candidates),
        turn=step["turn"],
        state=step["state"],
        system=step["prompt"].get("system") or None,
        policy=step.get("policy"),
        learns=any(each["advantage"] is not None for each in candidates) if are_marked else None,
        reply=step["reply"],
    )


def _check(candidate: JsonObject, where: str) -> None:
    """Raise ValueError for what is no candidate of docs/records.md."""
    for name, types in TYPES.items():
        value = candidate.get(name)
        if not isinstance(value, types):
            raise ValueError(
                f"{where}.{name} is {value!r}; expected what docs/records.md says. Remove the line, or name another "
                "file."
            )


def _candidate(each: JsonObject, prompt: str | None) -> Candidate:
    finish = each.get("finish")
    return Candidate(
        reply=each["reply"],
        reward=each.get("reward"),
        advantage=each.get("advantage"),
        tokens=each.get("tokens"),
        is_cut_off=None if finish is None else finish == "length",
        state=each.get("state"),
        is_chosen=each.get("chosen"),
        prompt=each.get("prompt_ids", prompt),
        agent=each.get("agent"),
        turn=each.get("turn"),
        instance=each.get("instance"),
    )


def _digest(step: JsonObject) -> str:
    """Of what was shown, where the token ids are a server's."""
    return hashlib.sha256(repr((step["prompt"], step.get("messages"))).encode("utf-8", "surrogatepass")).hexdigest()
