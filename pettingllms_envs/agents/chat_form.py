"""Writes prompts as OpenAI's chat completions have them, and the tool calls of an answer as a reply's text.

Images become data URLs, and the arguments of tool calls JSON in a string. An action is a `str`, so the calls of an
answer are appended to its text as `<tool_call>` blocks, which environments with tools parse. What a server takes in
another form, its refusals tell (`ServerForm`).
"""

from __future__ import annotations

import json
import logging
import re
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from pettingllms_envs.observations import Image, Message, Part
from pettingllms_envs.tools.calls import strict_json, written_call


LIMIT_NAMES = ("max_completion_tokens", "max_tokens")
_NO_SYSTEM = re.compile(
    r"system (role|message|prompt|instruction)s? (is |are )?not (supported|allowed|enabled)|"
    r"does(n't| not) support .{,9}system|only user and assistant roles|roles must alternate|"
    r"developer instruction is not enabled",
    re.I,
)

logger = logging.getLogger(__name__)


@dataclass(slots=True, eq=False)
class ServerForm:
    """The form of requests that a model's server takes, as far as it has told; shared by all that ask it.

    Args:
        has_long_name: Whether the most tokens are called `max_completion_tokens`, as reasoning models have it.
        has_system: Whether there are system messages; if not, their text is put before the first user's.
        has_answered: Whether it has answered a prompt, so that the URL, the key and the model are right.
        is_closed: Whether it has refused a short prompt as well, so that one of these is wrong.
    """

    has_long_name: bool = False
    has_system: bool = True
    has_answered: bool = False
    is_closed: bool = False
    lock: threading.Lock = field(default_factory=threading.Lock)

    def applied(self, body: Mapping[str, Any]) -> dict[str, Any]:
        """A request in the server's form, with one limit of tokens, the least of those that it has."""
        name = LIMIT_NAMES[0 if self.has_long_name or LIMIT_NAMES[0] in body else 1]
        limits = [body[each] for each in LIMIT_NAMES if body.get(each) is not None]
        found = {key: value for key, value in body.items() if key not in LIMIT_NAMES}
        if not self.has_system:
            found["messages"] = _without_system(body["messages"])
        return {**found, name: min(limits)} if limits else found

    def learn(self, words: str, body: Mapping[str, Any]) -> bool:
        """Whether a refusal of a request says that it is taken in another form, which then is the server's."""
        if "max_tokens" in body and LIMIT_NAMES[0] in words:
            self.has_long_name = True
            changed = f"the most tokens are sent as {LIMIT_NAMES[0]}"
        elif body["messages"][0]["role"] == "system" and _NO_SYSTEM.search(words):
            self.has_system = False
            changed = "the system message is put before the first user's"
        else:
            return False
        logger.warning("%s: %s from now on, since the server says: %s", body["model"], changed, words[:200])
        return True


def messages_for_server(messages: Sequence[Message]) -> list[dict[str, Any]]:
    """Messages as a server takes them."""
    return [_message(message) for message in messages]


def text_with_calls(text: str, calls: Sequence[Mapping[str, Any]]) -> str:
    """An answer's text, and its tool calls after it.

    Arguments that are no JSON object stay as the model wrote them, so that the environment can tell it so.

    Raises:
        KeyError, TypeError: A call has another form.
    """
    written = [written_call(call["function"]["name"], _arguments(call["function"])) for call in calls]
    return "\n".join([text, *written] if text else written)


def _without_system(messages: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    first, *rest = messages
    if first["role"] != "system":
        return list(messages)
    if not rest or rest[0]["role"] != "user":
        return [{**first, "role": "user"}, *rest]
    content, begin = rest[0]["content"], f"{first['content']}\n\n"
    whole = begin + content if isinstance(content, str) else [{"type": "text", "text": begin}, *content]
    return [{**rest[0], "content": whole}, *rest[1:]]


def _message(message: Message) -> dict[str, Any]:
    content = message["content"]
    whole = {**message, "content": content if isinstance(content, str) else [_part(part) for part in content]}
    if "tool_calls" in message:
        whole["tool_calls"] = [_call(call) for call in message["tool_calls"]]
    return whole


def _part(part: Part) -> dict[str, Any]:
    if isinstance(part, Image):
        return {"type": "image_url", "image_url": {"url": part.url}}
    return {"type": "text", "text": part}


def _call(call: Mapping[str, Any]) -> dict[str, Any]:
    function = call["function"]
    arguments = json.dumps(function["arguments"], ensure_ascii=False)
    return {**call, "function": {**function, "arguments": arguments}}


def _arguments(function: Mapping[str, Any]) -> Mapping[str, Any] | str:
    """The arguments of an answer's call: a JSON object in a string; some servers give the object itself."""
    given = function.get("arguments") or "{}"
    if isinstance(given, str):
        try:
            found = strict_json(given)
        except (ValueError, RecursionError):
            return given
        return found if isinstance(found, dict) else given
    return given if isinstance(given, dict) else str(given)
