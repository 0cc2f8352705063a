"""Hostile players of service, none of whom gains: silent ones, and such that try every value, lie or tell all."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from itertools import product
from typing import Any

from pettingllms_envs.environments.service.domains import Call
from pettingllms_envs.environments.service.moves import ASSISTANT, SPECIALIST, USER
from pettingllms_envs.environments.service.rules import Service


Attack = Callable[[Any, Any], str]
"""The reply of the acting agent, given the workflow and its state."""


def _say(words: Callable[[Service, Any], str]) -> Attack:
    """An attack that says the same whatever was said."""
    return lambda team, state: f"Say: {words(team.task, state.task)}"


def _in_turn(replies: Callable[[Service, Any], list[str]]) -> Attack:
    """An attack that goes through some replies, one after the other."""
    return lambda team, state: (every := replies(team.task, state.task))[len(state.replies) % len(every)]


def _values(task: Service, state: Any) -> list[str]:
    """Every value of every kind of fact."""
    return [f"{kind} {word}" for kind in task.words.kinds for word in task.legal_words(kind)]


def _calls(task: Service, state: Any, *names: str) -> list[Call]:
    """Every call of some tools; of two arguments those of the right row."""
    words = {name: product(*map(task.legal_words, task.rule(name).takes.values())) for name in names}
    every = ((name, *each) for name in names for each in words[name])
    return [call for call in every if len(call) < 3 or call[1] == task.instance(state).key]


def _written(task: Service, state: Any, names: Iterable[str]) -> list[str]:
    return [task.write(call) for call in _calls(task, state, *names)]


def _row(task: Service, state: Any) -> str:
    return " ".join(task.instance(state).row(state.rows, task.instance(state).key).values())


def _golden(task: Service, state: Any) -> str:
    rows, things = task.instance(state).golden[0]
    return f"The goal is {_row(task, state._replace(rows=rows))} {' '.join(dict(things).values())}"


def _others(task: Service, state: Any) -> str:
    """The facts that the goal does not name."""
    instance = task.instance(state)
    return ", ".join(f"{kind} {(*{*two} - {instance.facts[kind]},)[0]}" for kind, two in instance.known.items())


def _broken(team: Any, state: Any) -> str:
    """First what the policy forbids in the right row, if there is anything, then what the oracle does."""
    task, now = team.task, state.task
    row = task.instance(now).row(now.rows, task.instance(now).key)
    calls = [call for call in _calls(task, now, *task.words.tools) if task.rule(call[0]).sets]
    forbidden = [call for call in calls if call[1] == task.instance(now).key and not task.words.permits(call, row)]
    is_made = not forbidden or now.rows != task.instance(now).rows
    return str(team.oracle(state) if is_made else task.write(forbidden[0]))


def _twice(team: Any, state: Any) -> str:
    side = USER if state.ask.role == USER else ASSISTANT
    return "\n".join([team.task.write(call) for call in team.task.due(state.task, side)[:1] * 2])


_COMMON: Mapping[str, Attack] = {
    "says nothing": lambda team, state: "",
    "ends at once": lambda team, state: "End:",
    "names every value": _say(lambda task, state: " ".join(each.split()[1] for each in _values(task, state))),
    "names a value in each message": _in_turn(lambda task, state: [f"Say: {each}" for each in _values(task, state)]),
    "names the golden state": _say(_golden),
    "makes two calls at once": _twice,
    "asks the same again": _say(lambda task, state: f"{next(iter(task.words.kinds))}?"),
    "makes every call of the assistant": _in_turn(lambda task, state: _written(task, state, task.words.tools)),
    "makes every call of the user": _in_turn(lambda task, state: _written(task, state, task.words.user_tools)),
}
ATTACKS: Mapping[str, Mapping[str, Attack]] = {
    USER: {
        **_COMMON,
        "lists its facts": _say(lambda task, state: ", ".join(map(" ".join, task.instance(state).known.values()))),
        "tells the other facts": _say(_others),
        "wants what there is not": _say(lambda task, state: " and ".join(task.words.outcomes)),
        "accepts everything": _say(lambda task, state: "Yes, done."),
    },
    ASSISTANT: {
        **_COMMON,
        "refuses": _say(lambda task, state: "No."),
        "breaks the policy and repairs it": _broken,
        "lists what the row shows": _say(_row),
        "says that it is done": _say(lambda task, state: "done"),
    },
    SPECIALIST: _COMMON,
}
"""By role, and by name."""
