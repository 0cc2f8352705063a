"""Observations and the prompts that they become: texts, images, chat messages, tools.

An observation is one of

* a `str`, or `{"text": str}`, with perhaps a `"system"` prompt and a `"followup"` for agents with a history;
* `{"parts": [...]}`, texts and [`Image`]s in order, with perhaps a `"system"` prompt;
* `{"messages": [...]}`, a chat, with perhaps `"tools"` that the model may call, and `"limits"` of its reply.

`read_observation` converts all of them to a `Prompt`.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import groupby
from typing import Any, NamedTuple


PNG = b"\x89PNG\r\n\x1a\n"
"""The first bytes of every PNG file."""

CARRIED = ("system", "text", "followup")
"""Keys of an observation with a text. A `followup` is the text for an agent with a history of its turns."""

ROLES = ("system", "user", "assistant", "tool")
"""Roles of a message in an observation `{"messages": [...]}`."""

DATA_URL = "data:image/png;base64,"
"""The beginning of a PNG file as an address, as OpenAI's API takes images."""

LAST = ("user", "tool")
"""Roles of a last message, to which a model replies."""

_REQUIRED: Mapping[str, tuple[type, ...]] = {"role": (str,), "content": (str, list, tuple)}
_OPTIONAL = {"name": (str,), "tool_call_id": (str,), "tool_calls": (list, tuple)}


@dataclass(frozen=True)
class Image:
    """An image of an observation.

    Args:
        png: Its file, in the PNG format.
        alt: A description for those who cannot see it: models that read texts, terminals.

    Raises:
        TypeError: `png` is not `bytes`, or `alt` is not a `str`.
        ValueError: `png` is not a PNG file.
    """

    png: bytes = field(repr=False)
    alt: str

    def __post_init__(self) -> None:
        if not isinstance(self.png, bytes) or not isinstance(self.alt, str):
            given = f"{type(self.png).__name__} and {type(self.alt).__name__}"
            raise TypeError(f"Image got {given}; expected the bytes of a PNG file, and a description as a str.")
        if not self.png.startswith(PNG):
            raise ValueError(f"Image got the bytes {self.png[:8]!r} ...; expected a PNG file. Save it in that format.")

    @cached_property
    def digest(self) -> str:
        """SHA-256 of the file, 64 hex digits."""
        return hashlib.sha256(self.png).hexdigest()

    @classmethod
    def of_url(cls, url: Any, alt: str = "an image") -> Image:
        """The image of a data URL.

        Raises:
            ValueError: It is none of a PNG file. Other addresses are not fetched.
        """
        if not isinstance(url, str) or not url.startswith(DATA_URL):
            raise ValueError(
                f"an image has the address {str(url)[:40]!r}, which is not fetched; expected {DATA_URL}..., a file "
                "in base64. Open it, Image(path.read_bytes(), 'a cat'), and give its url."
            )
        try:
            png = base64.b64decode(url.removeprefix(DATA_URL), validate=True)
        except ValueError:
            raise ValueError(
                f"an image has the address {url[:40]!r}, which is no base64 throughout its {len(url)} characters; "
                f"expected {DATA_URL}... Give the url of an Image."
            ) from None
        return cls(png, alt)

    @property
    def url(self) -> str:
        """The file as a data URL."""
        return DATA_URL + base64.b64encode(self.png).decode("ascii")

    def __repr__(self) -> str:
        return f"Image({self.digest[:16]}, alt={self.alt!r})"


Part = str | Image
"""A part of an observation."""

Message = dict[str, Any]
"""A chat message: `{"role": "system" | "user" | "assistant" | "tool", "content": ...}`, a `str` or a list of `Part`s.

An assistant's may have `tool_calls`, a list of `{"id": str, "type": "function", "function": {"name": str,
"arguments": {...}}}`; a tool's has the `tool_call_id` it answers, and perhaps the tool's `name`.
"""


class Prompt(NamedTuple):
    """What a model is given: the chat messages, and the tools that it may call.

    Args:
        messages: The messages, the last one a user's or a tool's.
        tools: Tools in OpenAI's form: `{"type": "function", "function": {"name", "description", "parameters"}}`.
    """

    messages: Sequence[Message]
    tools: Sequence[Mapping[str, Any]] = ()


class Limits(NamedTuple):
    """What an observation asks of its reply. It can only shorten what the trainer or the evaluation allows.

    Args:
        max_tokens: Most tokens of the reply; None: no limit of its own.
        stop: Words that end the reply, in addition to others.
    """

    max_tokens: int | None = None
    stop: tuple[str, ...] = ()


Observation = str | Sequence[Part] | Prompt
"""What a workflow shows an agent: a text, texts and images in order, or a whole prompt."""


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
    """The messages of an observation `{"messages": [...]}`."""
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
    return {key: _encodable_values(value) for key, value in call.items()}


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


def _encodable_values(value: Any) -> Any:
    """JSON data with every text as `encodable`: a model wrote the arguments of a call."""
    if isinstance(value, str):
        return encodable(value)
    if isinstance(value, Mapping):
        return {_encodable_values(key): _encodable_values(each) for key, each in value.items()}
    return [_encodable_values(each) for each in value] if isinstance(value, list | tuple) else value


def encodable(text: str) -> str:
    """A text with lone surrogates replaced by U+FFFD."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return text
