"""Writes prompts as OpenAI's chat completions have them, and the tool calls of an answer as a reply's text.

Images become data URLs, and the arguments of tool calls JSON in a string. An action is a `str`, so the calls of an
answer are appended to its text as `<tool_call>` blocks, which environments with tools parse.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from pettingllms_envs.observations import Image, Message, Part
from pettingllms_envs.tools.calls import strict_json, written_call


def messages_for_server(messages: Sequence[Message]) -> list[dict[str, Any]]:
    """Messages as a server takes them."""
    return [_message(message) for message in messages]


def text_with_calls(text: str, calls: Sequence[Mapping[str, Any]]) -> str:
    """An answer's text, and its tool calls after it.

    Arguments that are no JSON object stay as the model wrote them, so that the environment can tell it so.

    Args:
        text: The content of the answer.
        calls: Its `tool_calls`.

    Raises:
        KeyError, TypeError: A call has another form.
    """
    written = [written_call(call["function"]["name"], _arguments(call["function"])) for call in calls]
    return "\n".join([text, *written] if text else written)


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
