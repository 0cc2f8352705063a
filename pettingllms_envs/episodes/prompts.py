"""Writes prompts into records, and reads them from there.

An image becomes its digest and description; its file is `media/<digest>.png`, see `media.py`. The tools of a prompt
are written once for each episode: a step has their place in the row's list.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from pettingllms_envs.observations import Image, Message, Part
from pettingllms_envs.prompts import text_of


Tools = list[dict[str, Any]]


def recorded(messages: Sequence[Message]) -> dict[str, Any]:
    """A prompt's fields in a step's record: `prompt`, and `messages` if they are not a system prompt and a text."""
    by_role = {message["role"]: text_of(message["content"]) for message in messages}
    step: dict[str, Any] = {"prompt": {"system": by_role.get("system", ""), "text": by_role.get("user", "")}}
    written = in_record(messages)
    return step if messages_of(step) == written else {**step, "messages": written}


def messages_of(step: Mapping[str, Any]) -> list[Message]:
    """The chat messages of a recorded step's prompt, as `in_record`; an empty system prompt is left out."""
    if step.get("messages") is not None:
        return list(step["messages"])
    prompt = step["prompt"]
    lead = [{"role": "system", "content": prompt["system"]}] if prompt["system"] else []
    return [*lead, {"role": "user", "content": prompt["text"]}]


def in_record(messages: Sequence[Message]) -> list[dict[str, Any]]:
    """Messages as JSON data: `{"type": "image", "digest": ..., "alt": ...}` for an image, `{"type": "text", "text":
    ...}` for a text beside one."""
    return [_message(message) for message in messages]


def digests_of(step: Mapping[str, Any]) -> list[str]:
    """The digests of the images in a recorded step's prompt, in order."""
    contents = [message["content"] for message in step.get("messages") or ()]
    parts = [part for content in contents if not isinstance(content, str) for part in content]
    return [part["digest"] for part in parts if part["type"] == "image"]


def tools_of(row: Mapping[str, Any], step: Mapping[str, Any]) -> Tools:
    """The tools of a recorded step's prompt."""
    return list(row["tools"][step["tools"]]) if "tools" in step else []


def with_tools(tools: Sequence[Mapping[str, Any]], known: list[Tools]) -> dict[str, Any]:
    """A step's field `tools`, their place in the row's list, which gets new ones; nothing for a prompt without."""
    if not tools:
        return {}
    plain = _plain(list(tools))
    if plain not in known:
        known.append(plain)
    return {"tools": known.index(plain)}


def _message(message: Message) -> dict[str, Any]:
    content = message["content"]
    written = {**message, "content": content if isinstance(content, str) else [_part(part) for part in content]}
    return {**written, "tool_calls": _plain(message["tool_calls"])} if "tool_calls" in message else written


def _part(part: Part) -> dict[str, str]:
    if isinstance(part, Image):
        return {"type": "image", "digest": part.digest, "alt": part.alt}
    return {"type": "text", "text": part}


def _plain(value: Any) -> Any:
    """A value as JSON reads it again: tuples become lists."""
    return json.loads(json.dumps(value))
