"""Agents of service that read their prompts alone, and perhaps not which of two facts the goal names."""

from __future__ import annotations

import random
import re
from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING

from pettingllms_envs.environments.service.domains import LABELS
from pettingllms_envs.environments.service.users import (
    ASKED,
    CALLED,
    HEARD,
    SAID,
    UNREAD,
    Entry,
    honest_assistant,
    honest_specialist,
    honest_user,
)


if TYPE_CHECKING:
    from pettingllms_envs.bounds import BlindPolicy
    from pettingllms_envs.environments.service.rules import Service

_HEADS = (
    (re.compile(r"The (\w+) wrote:"), HEARD),
    (re.compile(r"You called (.+):"), CALLED),
    (re.compile(r"You wrote to the (\w+):"), ASKED),
    (re.compile(r"You wrote()(?::| nothing\.)"), SAID),
    (re.compile(r"The (\w+) wrote nothing\."), HEARD),
    (re.compile(r"Your reply was unreadable()"), UNREAD),
)


def blind_policies(task: Service) -> Mapping[str, BlindPolicy]:
    """Honest players who take the first fact of each kind, or any."""
    return {
        "the first of each kind": partial(from_prompt, task, "first"),
        "any of each kind": partial(from_prompt, task, ""),
    }


def from_prompt(task: Service, label: str | None, prompt: str, rng: random.Random, expert: str = "") -> str:
    """The reply of an honest player of any role to its prompt.

    Args:
        label: Which fact of each kind it takes for the one that the goal names; empty for any, None to read the goal.
    """
    view = entries(prompt)
    goal = re.search(r"^You mean: (.*)\.$", prompt, re.M)
    accepts = re.search(r"^The user accepts: (.*)\.$", prompt, re.M)
    if goal is not None and accepts is None:
        pairs = (each.split(" ") for each in goal[1].split(", "))
        labels = {kind: word if label is None else label or rng.choice(LABELS) for kind, word in pairs}
        return task.write(honest_user(task, labels, view))
    if accepts is not None:
        return task.write(honest_assistant(task, accepts[1].split(", "), view, expert=expert))
    return task.write(honest_specialist(task, view))


def entries(prompt: str) -> list[Entry]:
    """What an agent has seen, as its prompt shows it."""
    view: list[Entry] = []
    for line in prompt.splitlines():
        if line.startswith("> ") and view:
            kind, name, text = view.pop()
            view.append((kind, name, f"{text} {line[2:]}".strip()))
            continue
        for pattern, kind in _HEADS:
            if found := pattern.match(line):
                view.append((kind, found[1], ""))
                break
    return view
