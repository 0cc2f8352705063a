"""What an environment shows of itself: prompts, states, parts of rewards, answers; a stranger's what it has."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any


Message = Mapping[str, str]
"""A chat message: `{"role": "system" | "user" | "assistant", "content": ...}`."""

CARRIED = ("system", "text", "followup")
"""What an observation without messages may have. A `followup` is the text for an agent that remembers its turns."""

ROLES = ("system", "user", "assistant")
"""What a message of an observation `{"messages": [...]}` may have as its role."""


def prompt_of(observation: Any, *, agent: str) -> list[Message]:
    """An observation as chat messages: of a `str`, `{"text": ..., "system": ...}` (system optional), or messages.

    Messages are `{"messages": [{"role": ..., "content": ...}, ...]}`, the last one the user's: few-shot examples and
    the question, or a dialogue so far.

    Lone surrogates, which a reply or a data set may have brought in, and which no tokenizer takes, are
    U+FFFD in them.

    Raises:
        TypeError: It is none of these, or has something else besides, such as an image, which the model would not be
            shown.
        ValueError: The messages stand beside a text, have another role, are none, or do not end with the user's.
    """
    if isinstance(observation, str):
        return [{"role": "user", "content": _encodable(observation)}]
    if isinstance(observation, Mapping) and "messages" in observation:
        return _messages_of(observation, agent)
    if isinstance(observation, Mapping) and isinstance(observation.get("text"), str):
        _check_carried(observation, agent)
        system = observation.get("system")
        lead = [{"role": "system", "content": _encodable(system)}] if system else []
        return [*lead, {"role": "user", "content": _encodable(observation["text"])}]
    raise TypeError(
        f"agent {agent!r} observes a {type(observation).__name__}; expected text: a str, or a dict with a str under "
        "'text' and perhaps one under 'system', or with chat messages under 'messages'. Wrap the environment so that "
        "observe() returns what a model can read."
    )


def _check_carried(observation: Mapping[str, Any], agent: str) -> None:
    """Raise TypeError for a part of an observation that no prompt carries."""
    for key, value in observation.items():
        if key not in CARRIED or not isinstance(value, str | None):
            raise TypeError(
                f"agent {agent!r} observes {key!r}, a {type(value).__name__}; expected text under "
                f"{', '.join(map(repr, CARRIED))} and nothing else, since models are shown texts only. Wrap the "
                "environment so that observe() puts it into the text, or leaves it out."
            )


def _messages_of(observation: Mapping[str, Any], agent: str) -> list[Message]:
    """The messages of an observation `{"messages": [...]}`.

    Raises:
        TypeError: They are no list of `{"role": str, "content": str}`.
        ValueError: They stand beside other keys, have another role, are none, or do not end with the user's.
    """
    if others := sorted(map(str, set(observation) - {"messages"})):
        raise ValueError(
            f"agent {agent!r} observes 'messages' beside {', '.join(map(repr, others))}; expected 'messages' alone, "
            "which are the whole prompt. Put the other texts into the messages."
        )
    given = observation["messages"]
    if not isinstance(given, list | tuple):
        raise TypeError(
            f"agent {agent!r} observes {type(given).__name__!r} as 'messages'; expected a list of "
            '{"role": ..., "content": ...}, the last one the user\'s.'
        )
    messages = [_message_of(message, number, agent) for number, message in enumerate(given)]
    if not messages or messages[-1]["role"] != "user":
        roles = [message["role"] for message in messages]
        raise ValueError(
            f"agent {agent!r} observes messages of the roles {roles}; expected a last message of the role 'user', "
            "which the policy replies to. Append it."
        )
    return messages


def _message_of(message: Any, number: int, agent: str) -> Message:
    """One of them. Keys whose value is `None` are ignored: Arrow adds them where rows differ in their keys."""
    found = {key: value for key, value in message.items() if value is not None} if isinstance(message, Mapping) else {}
    if set(found) != {"role", "content"} or not all(isinstance(value, str) for value in found.values()):
        types = {key: type(value).__name__ for key, value in found.items()} or type(message).__name__
        raise TypeError(
            f"agent {agent!r} observes {types} as message {number}; expected a dict with a str under 'role' and one "
            "under 'content' and nothing else, since models read texts only. Leave the rest out."
        )
    if found["role"] not in ROLES:
        raise ValueError(
            f"agent {agent!r} observes message {number} with the role {found['role']!r}; expected one of "
            f"{', '.join(map(repr, ROLES))}."
        )
    return {"role": found["role"], "content": _encodable(found["content"])}


def recorded(messages: Sequence[Message]) -> dict[str, Any]:
    """A prompt as a step's record has it: `prompt`, and `messages` where they are not a system prompt and a text."""
    by_role = {message["role"]: message["content"] for message in messages}
    step: dict[str, Any] = {"prompt": {"system": by_role.get("system", ""), "text": by_role["user"]}}
    return step if messages_of(step) == list(messages) else {**step, "messages": [dict(each) for each in messages]}


def messages_of(step: Mapping[str, Any]) -> list[Message]:
    """The chat messages that a recorded step's agent was asked with; an empty system prompt is none."""
    if step.get("messages") is not None:
        return list(step["messages"])
    prompt = step["prompt"]
    lead = [{"role": "system", "content": prompt["system"]}] if prompt["system"] else []
    return [*lead, {"role": "user", "content": prompt["text"]}]


def state_hash(env: Any) -> str | None:
    """The environment's own hash of its state, where it has one."""
    found = getattr(env.unwrapped, "state_hash", None)
    return None if found is None else str(found())


def parts_of(env: Any) -> dict[str, dict[str, float]] | None:
    """The named parts of the last step's reward by scope, where the environment's snapshots have them."""
    snapshot = getattr(env.unwrapped, "snapshot", None)
    parts = None if snapshot is None else getattr(snapshot(), "parts", None)
    if parts is None:
        return None
    return {scope: {name: float(value) for name, value in named.items()} for scope, named in parts.items()}


def problem_of(env: Any) -> str | None:
    """The id of the data set's problem that is played, where the task's state says: `state.problem.id`."""
    found = getattr(getattr(_task_state(env), "problem", None), "id", None)
    return None if found is None else str(found)


def answer_of(env: Any, outcome: Mapping[str, Any] | None) -> str | None:
    """The answer so far, to be counted for a majority: the outcome's, or `state.answer` of the task."""
    found = (outcome or {}).get("answer", getattr(_task_state(env), "answer", None))
    return None if found is None else str(found)


def _encodable(text: str) -> str:
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return text


def _task_state(env: Any) -> Any:
    snapshot = getattr(env.unwrapped, "snapshot", None)
    return None if snapshot is None else getattr(getattr(snapshot(), "play", None), "task", None)


def plain(value: Any) -> bool | int | float | str | None:
    """A figure of an outcome as plain data; NaN and what is no figure become None, or words."""
    if value is None or isinstance(value, bool | str):
        return value
    if hasattr(value, "item"):
        value = value.item()
    if isinstance(value, int):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    return str(value)
