"""Converts rows of a run (docs/records.md) to what the page shows of an episode. Pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

from pettingllms_envs.core import Unreadable
from pettingllms_envs.episodes.figures import of_row
from pettingllms_envs.episodes.files import JsonObject
from pettingllms_envs.teams.designed import DESIGNER
from pettingllms_envs.teams.designs import Limits, read_design


INDEX = (
    "name",
    "group",
    "problem",
    "success",
    "error",
    "num_steps",
    "tokens",
    "figures",
    "parts",
    "unreadable",
    "step",
    "about",
    "sampled",
)
"""The fields of every episode that the list and the summary use without unpacking it."""


def group_of(row: JsonObject) -> str:
    """The group in which an episode is counted: its environment, and its level if it has one."""
    instance = row["instance"]
    level = (instance["options"] or {}).get("level")
    return instance["env"] if level is None else f"{instance['env']}, level {level}"


def index_of(row: JsonObject) -> list[Any]:
    """An episode's values of `INDEX`."""
    instance, error = row["instance"], row["error"]
    name = instance.get("problem") or f"seed {instance['seed']}"
    tokens = [step["tokens"]["completion"] for step in row["steps"] if step.get("tokens")]
    sampled = [each.get("tokens") for step in row["steps"] for each in step.get("candidates") or []]
    parts: dict[str, float] = defaultdict(float)
    for step in row["steps"]:
        for scope, values in (step.get("parts") or {}).items():
            for part, value in values.items():
                parts[f"{scope}.{part}"] += value
    return [
        f"{instance['index'] + 1}: {name}" + (f", sample {row['sample'] + 1}" if row["sample"] else ""),
        group_of(row),
        instance["index"],
        row["success"],
        None if error is None else f"{error['kind']}: {error['message']}",
        len(row["steps"]),
        sum(tokens) if tokens and None not in tokens else None,
        of_row(row),
        parts,
        any(name.endswith(".format") and value < 0 for name, value in parts.items()),
        (row.get("training") or {}).get("step"),
        " ".join(f"{key}={value}" for key, value in (row["outcome"] or {}).items()),
        sum(sampled) if sampled and None not in sampled else None,
    ]


def episode_of(
    row: JsonObject, boards: Sequence[Any], systems: dict[str, int], limits: Limits | None = None
) -> dict[str, Any]:
    """An episode as the page unpacks it.

    Args:
        boards: Boards before each step and at the end; None where there is none.
        limits: What designs may ask for, if the first agent writes one.
    """
    instance = row["instance"]
    options = "".join(f", {key}={value!r}" for key, value in (instance["options"] or {}).items())
    return {
        "tools": row.get("tools", []),
        "steps": [_step(step, board, systems, limits) for step, board in zip(row["steps"], boards, strict=False)],
        "outcome": row["outcome"] or {},
        "board": boards[-1],
        "address": f"{instance['env']}, seed {instance['seed']}{options}, state {row['state'] or 'unknown'}",
    }


def _step(step: JsonObject, board: Any, systems: dict[str, int], limits: Limits | None) -> dict[str, Any]:
    prompt, tokens = step["prompt"], step.get("tokens") or {}
    rewards = step.get("rewards") or {}
    candidates = step.get("candidates") or []
    system = prompt.get("system", "")
    images, rounds = _after_text(step.get("messages") or [])
    limits = limits if step["agent"] == f"{DESIGNER}_0" else None
    return {
        "agent": step["agent"],
        "turn": step["turn"],
        "system": systems.setdefault(system, len(systems)) if system else None,
        "prompt": prompt["text"],
        "messages": step.get("messages"),
        "images": images,
        "rounds": rounds,
        "tools": step.get("tools"),
        "reply": step["reply"],
        "design": _design(step["reply"], limits),
        "reasoning": step.get("reasoning"),
        "reward": rewards.get(step["agent"]),
        "parts": _flat(step.get("parts")),
        "prompt_tokens": tokens.get("prompt"),
        "completion_tokens": tokens.get("completion"),
        "finish": step.get("finish"),
        "board": board,
        "chosen": next((at for at, candidate in enumerate(candidates) if candidate["chosen"]), 0),
        "candidates": [
            {
                "reply": candidate["reply"],
                "design": _design(candidate["reply"], limits),
                "continuations": [
                    {"return": each["return"], "steps": [_step(own, None, systems, None) for own in each["steps"]]}
                    for each in candidate.get("continuations", [])
                ],
                "reward": candidate["reward"],
                "advantage": candidate.get("advantage"),
                "parts": _flat(candidate.get("parts")),
            }
            for candidate in candidates
        ],
    }


def _design(reply: str, limits: Limits | None) -> dict[str, Any] | None:
    """The team in a designer's reply, or why there is none."""
    if limits is None:
        return None
    found = read_design(reply, limits)
    if isinstance(found, Unreadable):
        return {"unreadable": found.reason}
    return {"members": [member._asdict() for member in found.members], "rounds": found.rounds}


def _after_text(messages: Sequence[JsonObject]) -> tuple[list[JsonObject], Sequence[JsonObject]]:
    """The images of the user's last message, and the messages after it: tool calls and what they returned."""
    last = max((at for at, message in enumerate(messages) if message["role"] == "user"), default=None)
    if last is None:
        return [], messages
    content = messages[last]["content"]
    images = [part for part in content if part["type"] == "image"] if isinstance(content, list) else []
    return images, messages[last + 1 :]


def _flat(parts: Mapping[str, Mapping[str, float]] | None) -> dict[str, float]:
    """`{"team": {"progress": 1}}` as `{"team progress": 1}`."""
    return {f"{scope} {part}": value for scope, values in (parts or {}).items() for part, value in values.items()}
