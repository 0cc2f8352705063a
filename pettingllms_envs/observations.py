"""From what an agent observes to the chat messages that a model is asked with."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


Message = dict[str, str]
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
    given = f"a {type(observation).__name__}"
    if isinstance(observation, Mapping):
        given = f"a mapping with the keys {sorted(map(str, observation))}"
    raise TypeError(
        f"agent {agent!r} observes {given}; expected text: a str, or a dict with a str under "
        "'text' and perhaps one under 'system', or with chat messages under 'messages'. Wrap the environment so that "
        "observe() returns what a model can read."
    )


def followup_of(observation: Any) -> str | None:
    """What an agent that remembers is shown in place of an observation's text, where it offers a `"followup"`."""
    followup = observation.get("followup") if isinstance(observation, Mapping) else None
    return _encodable(followup) if isinstance(followup, str) else None


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


def _encodable(text: str) -> str:
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return text
