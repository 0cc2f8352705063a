"""Hostile players of service, none of whom gains: silent ones, and such that try every value, lie or tell all."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from itertools import product
from typing import Any

from pettingllms_envs.environments.service.domains import Call
from pettingllms_envs.environments.service.rules import ASSISTANT, SPECIALIST, USER, Service
from pettingllms_envs.environments.service.users import CALLED


Attack = Callable[[Any, Any], str]
"""The reply of the acting agent, given the workflow and its state."""


def _say(words: Callable[[Service, Any], str]) -> Attack:
    """An attack that says the same whatever was said."""
    return lambda team, state: f"Say: {words(team.task, state.task)}"


def _in_turn(moves: Callable[[Service, Any], list[str]]) -> Attack:
    """An attack that goes through some replies, one after the other."""

    def attack(team: Any, state: Any) -> str:
        replies = moves(team.task, state.task)
        return replies[len(_view(state)) % len(replies)]

    return attack


def _view(state: Any) -> Any:
    return dict(state.ask.keeps[0])[state.ask.role]


def _values(task: Service, state: Any) -> list[str]:
    """Every value of every kind of fact."""
    return [f"{kind} {word}" for kind in task.words.kinds for word in task.legal_words(kind)]


def _calls(task: Service, names: Mapping[str, Any]) -> Iterator[Call]:
    """Every call of some tools."""
    for name in names:
        for words in product(*map(task.legal_words, task.rule(name).takes.values())):
            yield name, *words


def _every_call(side: str) -> Callable[[Service, Any], list[str]]:
    """Every call of a side's tools, as replies; of two arguments those of the right row."""

    def replies(task: Service, state: Any) -> list[str]:
        calls = list(_calls(task, task.words.user_tools if side == USER else task.words.tools))
        key = task.instance(state).key
        return [task.write(task.call_move(call)) for call in calls if len(call) < 3 or call[1] == key]

    return replies


def _golden(task: Service, state: Any) -> str:
    instance = task.instance(state)
    row = instance.row(instance.golden[0][0], instance.key)
    return f"The goal is {' '.join(row.values())} and {' '.join(word for _, word in instance.golden[0][1])}"


def _others(task: Service, state: Any) -> str:
    """The facts that the goal does not name."""
    instance = task.instance(state)
    pairs = instance.known.items()
    return ", ".join(f"{kind} {next(word for word in two if word != instance.facts[kind])}" for kind, two in pairs)


def _broken(team: Any, state: Any) -> str:
    """First what the policy forbids in the right row, if there is anything, then what the planner does."""
    task: Service = team.task
    instance = task.instance(state.task)
    row = instance.row(state.task.rows, instance.key)
    made = any(kind == CALLED for kind, _, _ in _view(state))
    calls = (call for call in _calls(task, task.words.tools) if task.rule(call[0]).sets and call[1] == instance.key)
    forbidden = next((call for call in calls if not task.words.permits(call, row)), None)
    return str(team.oracle(state)) if made or forbidden is None else task.write(task.call_move(forbidden))


def _twice(team: Any, state: Any) -> str:
    task: Service = team.task
    calls = [
        task.write(task.call_move(call))
        for call in task.due(state.task, USER if state.ask.role == USER else ASSISTANT)[:2]
    ]
    return "\n".join([*calls, *calls, "Say: done"])


_OF_ALL: Mapping[str, Attack] = {
    "says nothing": lambda team, state: "",
    "ends at once": lambda team, state: "End:",
    "names every value": _say(lambda task, state: " ".join(each.split()[1] for each in _values(task, state))),
    "names a value in each message": _in_turn(lambda task, state: [f"Say: {each}" for each in _values(task, state)]),
    "names the golden state": _say(_golden),
    "makes two calls at once": _twice,
    "asks the same again": _say(lambda task, state: f"{next(iter(task.words.kinds))}?"),
    "makes every call of the assistant": _in_turn(_every_call(ASSISTANT)),
    "makes every call of the user": _in_turn(_every_call(USER)),
}
ATTACKS: Mapping[str, Mapping[str, Attack]] = {
    USER: {
        **_OF_ALL,
        "lists its facts": _say(lambda task, state: ", ".join(map(" ".join, task.instance(state).known.values()))),
        "tells the other facts": _say(_others),
        "wants what there is not": _say(lambda task, state: " and ".join(task.words.outcomes)),
        "accepts everything": _say(lambda task, state: "Yes, done."),
    },
    ASSISTANT: {
        **_OF_ALL,
        "refuses": _say(lambda task, state: "No."),
        "breaks the policy and repairs it": _broken,
        "lists what the row shows": _say(
            lambda task, state: " ".join(task.instance(state).row(state.rows, task.instance(state).key).values())
        ),
        "says that it is done": _say(lambda task, state: "done"),
    },
    SPECIALIST: _OF_ALL,
}
"""By role, and by name."""
