"""Agents of service that read their prompts alone, and perhaps not which of two facts the goal names."""

from __future__ import annotations

import random
from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING

from pettingllms_envs.environments.service import users
from pettingllms_envs.environments.service.domains import LABELS


if TYPE_CHECKING:
    from pettingllms_envs.bounds import BlindPolicy
    from pettingllms_envs.environments.service.rules import Service

_BEGINNINGS = {
    "You called ": users.CALLED,
    "You wrote to": users.ASKED,
    "You wrote": users.SAID,
    "The user wrote": users.HEARD,
    "The assistant wrote": users.HEARD,
    "The specialist wrote": users.HEARD,
    "Your reply was": users.UNREAD,
}
"""How an entry begins in a prompt."""


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
        expert: The tool that the specialist alone has, if there is one.
    """
    told = {line.partition(": ")[0]: line.partition(": ")[2].rstrip(".").split(", ") for line in prompt.splitlines()}
    view = entries(prompt)
    if "The user accepts" in told:
        return task.write(users.honest_assistant(task, told["The user accepts"], view, expert))
    if "You mean" in told:
        pairs = (each.split(" ") for each in told["You mean"])
        labels = {kind: word if label is None else label or rng.choice(LABELS) for kind, word in pairs}
        return task.write(users.honest_user(task, labels, view))
    return task.write(users.honest_specialist(task, view))


def entries(prompt: str) -> list[users.Entry]:
    """What an agent has seen, as its prompt shows it."""
    view: list[users.Entry] = []
    for line in prompt.splitlines():
        kind = next((kind for words, kind in _BEGINNINGS.items() if line.startswith(words)), "")
        if line.startswith("> ") and view:
            view[-1] = (*view[-1][:2], f"{view[-1][2]} {line[2:]}".strip())
        elif kind:
            name = line.removeprefix("You called ").rstrip(":") if kind == users.CALLED else line.split(" ")[1]
            view.append((kind, name, ""))
    return view
