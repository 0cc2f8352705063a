"""Converts observations to the chat messages of a model's prompt."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


Message = dict[str, str]
"""A chat message: `{"role": "system" | "user" | "assistant", "content": ...}`."""


CARRIED = ("system", "text", "followup")
"""Keys of an observation without messages. A `followup` is the text for an agent with a history of its turns."""


ROLES = ("system", "user", "assistant")
"""Roles of a message in an observation `{"messages": [...]}`."""


def prompt_of(observation: Any, *, agent: str) -> list[Message]:
    """An observation as chat messages: of a `str`, `{"text": ..., "system": ...}` (system optional), or messages.

    Messages are `{"messages": [{"role": ..., "content": ...}, ...]}`, the last one the user's: few-shot examples and
    the question, or a dialogue so far.

    Lone surrogates, which a reply or a data set may contain and which no tokenizer accepts, are replaced by U+FFFD.

    Raises:
        TypeError: It is none of these, or has another key, such as an image, which the model would not see.
        ValueError: There are messages and a text, the messages have another role, are empty, or do not end with the
            user's.
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
    given = f"a {type(observation).__name__}"
    if isinstance(observation, Mapping):
        given = f"a mapping with the keys {sorted(map(str, observation))}"
    raise TypeError(
        f"agent {agent!r} observes {given}; expected text: a str, or a dict with a str under "
        "'text' and perhaps one under 'system', or with chat messages under 'messages'. Wrap the environment so that "
        "observe() returns what a model can read."
    )


def followup_of(observation: Any) -> str | None:
    """The text for an agent with a history instead of the observation's text, if there is a `"followup"`."""
    followup = observation.get("followup") if isinstance(observation, Mapping) else None
    return _encodable(followup) if isinstance(followup, str) else None


def _check_carried(observation: Mapping[str, Any], agent: str) -> None:
    """Raise TypeError for a key of an observation that no prompt can contain."""
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
        TypeError: They are not a list of `{"role": str, "content": str}`.
        ValueError: There are other keys, another role, no messages, or the last one is not the user's.
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
    """One message. Keys whose value is `None` are ignored: Arrow adds them if rows differ in their keys."""
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


def _encodable(text: str) -> str:
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return text
