"""Reads observations: what an agent observes becomes a model's prompt, or an error says what is wrong with it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import groupby
from typing import Any

from pettingllms_envs.observations import Image, Limits, Message, Part, Prompt, in_texts


CARRIED = ("system", "text", "followup")
"""Keys of an observation with a text. A `followup` is the text for an agent with a history of its turns."""

ROLES = ("system", "user", "assistant", "tool")
"""Roles of a message in an observation `{"messages": [...]}`."""

LAST = ("user", "tool")
"""Roles of a last message, to which a model replies."""

_REQUIRED: Mapping[str, tuple[type, ...]] = {"role": (str,), "content": (str, list, tuple)}
_OPTIONAL = {"name": (str,), "tool_call_id": (str,), "tool_calls": (list, tuple)}


def read_observation(observation: Any, *, agent: str) -> Prompt:
    """An observation as a prompt.

    Lone surrogates, which a reply or a data set may contain and which no tokenizer accepts, are replaced by U+FFFD.

    Raises:
        TypeError: It is no observation as above, or has another key, which the model would not see.
        ValueError: There are messages and a text, the messages have another role, are empty, or do not end with a
            user's or a tool's.
    """
    if isinstance(observation, str):
        return Prompt([{"role": "user", "content": encodable(observation)}])
    if isinstance(observation, Mapping) and "messages" in observation:
        return Prompt(_messages_of(observation, agent), _tools_of(observation, agent))
    if isinstance(observation, Mapping) and "parts" in observation:
        _check_keys(observation, ("system", "parts"), agent)
        return Prompt([*_system_of(observation), {"role": "user", "content": _parts_of(observation["parts"], agent)}])
    if isinstance(observation, Mapping) and isinstance(observation.get("text"), str):
        _check_keys(observation, CARRIED, agent)
        return Prompt([*_system_of(observation), {"role": "user", "content": encodable(observation["text"])}])
    given = f"a {type(observation).__name__}"
    if isinstance(observation, Mapping):
        given = f"a mapping with the keys {sorted(map(str, observation))}"
    raise TypeError(
        f"agent {agent!r} observes {given}; expected text: a str, or a dict with a str under "
        "'text' and perhaps one under 'system', texts and images under 'parts', or chat messages under 'messages'. "
        "Wrap the environment so that observe() returns what a model can read."
    )


def followup_of(observation: Any) -> str | None:
    """The text for an agent with a history instead of the observation's text, if there is a `"followup"`."""
    followup = observation.get("followup") if isinstance(observation, Mapping) else None
    return encodable(followup) if isinstance(followup, str) else None


def limits_of(observation: Any) -> Limits:
    """The limits of the reply to an observation; `TypeError` if they are no `Limits`."""
    limits = observation.get("limits") if isinstance(observation, Mapping) else None
    if limits is None:
        return Limits()
    if not isinstance(limits, Limits):
        raise TypeError(f"an agent observes {type(limits).__name__!r} as 'limits'; expected observations.Limits.")
    return limits


def images_of(messages: Sequence[Message]) -> list[Image]:
    """The images of a prompt, in order."""
    return [
        part
        for message in messages
        if not isinstance(message["content"], str)
        for part in message["content"]
        if isinstance(part, Image)
    ]


def text_of(content: str | Sequence[Part]) -> str:
    """A message's content as text, with the description of each image in its place."""
    if isinstance(content, str):
        return content
    return "\n".join(part if isinstance(part, str) else f"[image: {part.alt}]" for part in content)


def described(messages: Sequence[Message]) -> list[Message]:
    """Messages of texts only, with the description of each image in its place."""
    return [{**message, "content": text_of(message["content"])} for message in messages]


def _system_of(observation: Mapping[str, Any]) -> list[Message]:
    system = observation.get("system")
    return [{"role": "system", "content": encodable(system)}] if system else []


def _parts_of(parts: Any, agent: str) -> str | list[Part]:
    """Parts as a message's content, with neighbouring texts as one: a `str` if there are no images."""
    if isinstance(parts, str) or not isinstance(parts, Sequence):
        raise TypeError(
            f"agent {agent!r} observes a {type(parts).__name__} as 'parts'; expected a list of texts and images."
        )
    for part in parts:
        if not isinstance(part, str | Image):
            raise TypeError(
                f"agent {agent!r} observes a {type(part).__module__}.{type(part).__name__} among its parts; expected "
                "texts and pettingllms_envs.observations.Image(png, description)."
            )
    found = list[Part]()
    for is_text, group in groupby(parts, lambda part: isinstance(part, str)):
        own = list(group)
        found += [encodable("\n".join(own))] if is_text else own
    return found if any(isinstance(part, Image) for part in found) else text_of(found)


def _check_keys(observation: Mapping[str, Any], known: Sequence[str], agent: str) -> None:
    """Raise TypeError for a key of an observation that no prompt can contain."""
    for key, value in observation.items():
        if key not in known or not (key == "parts" or isinstance(value, str | None)):
            raise TypeError(
                f"agent {agent!r} observes {key!r}, a {type(value).__name__}; expected text under "
                f"{', '.join(map(repr, known))} and nothing else, since models are shown no more. Wrap the "
                "environment so that observe() puts it into the text (a picture into 'parts', a list of texts and "
                "observations.Image), or leaves it out."
            )


def _messages_of(observation: Mapping[str, Any], agent: str) -> list[Message]:
    if others := sorted(map(str, set(observation) - {"messages", "tools", "limits"})):
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
    if not messages or messages[-1]["role"] not in LAST:
        roles = [message["role"] for message in messages]
        raise ValueError(
            f"agent {agent!r} observes messages of the roles {roles}; expected a last message of the role 'user' or "
            "'tool', which the policy replies to. Append it."
        )
    return messages


def _message_of(message: Any, number: int, agent: str) -> Message:
    """One message. Keys whose value is `None` are ignored: Arrow adds them if rows differ in their keys."""
    found = {key: value for key, value in message.items() if value is not None} if isinstance(message, Mapping) else {}
    known = {**_REQUIRED, **_OPTIONAL}
    if not found.keys() >= _REQUIRED.keys() or not all(
        key in known and isinstance(value, known[key]) for key, value in found.items()
    ):
        types = {key: type(value).__name__ for key, value in found.items()} or type(message).__name__
        raise TypeError(
            f"agent {agent!r} observes {types} as message {number}; expected a dict with a str under 'role' and one "
            "under 'content' (or a list of texts and images), perhaps 'tool_calls', 'tool_call_id' and 'name', and "
            "nothing else, since models read no more. Leave the rest out."
        )
    if found["role"] not in ROLES:
        raise ValueError(
            f"agent {agent!r} observes message {number} with the role {found['role']!r}; expected one of "
            f"{', '.join(map(repr, ROLES))}."
        )
    content = found["content"]
    whole = encodable(content) if isinstance(content, str) else _parts_of(content, agent)
    calls = {"tool_calls": [_call_of(call, number, agent) for call in found.get("tool_calls", ())]}
    return {**found, "content": whole, **(calls if "tool_calls" in found else {})}


def _call_of(call: Any, number: int, agent: str) -> dict[str, Any]:
    """One of a message's tool calls, in OpenAI's form."""
    function = call.get("function") if isinstance(call, Mapping) else None
    if not (
        isinstance(function, Mapping)
        and isinstance(function.get("name"), str)
        and isinstance(function.get("arguments"), Mapping)
    ):
        raise TypeError(
            f"agent {agent!r} observes {call!r} as a tool call of message {number}; expected "
            '{"id": str, "type": "function", "function": {"name": str, "arguments": {...}}}.'
        )
    return dict(in_texts(call, encodable))  # a model wrote the arguments of a call


def _tools_of(observation: Mapping[str, Any], agent: str) -> list[Mapping[str, Any]]:
    tools = observation.get("tools") or ()
    for tool in tools:
        function = tool.get("function") if isinstance(tool, Mapping) else None
        if not isinstance(function, Mapping) or not isinstance(function.get("name"), str):
            raise TypeError(
                f"agent {agent!r} observes {tool!r} as a tool; expected "
                '{"type": "function", "function": {"name": str, "description": str, "parameters": {...}}}.'
            )
    return list(tools)


def encodable(text: str) -> str:
    """A text with lone surrogates replaced by U+FFFD."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return text
