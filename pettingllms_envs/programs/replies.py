"""A model's reply as a program's client reads it: words and tool calls."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from types import SimpleNamespace
from typing import Any

from pettingllms_envs.core import ToolSpec, Unreadable
from pettingllms_envs.prompts import encodable
from pettingllms_envs.replies.fences import split_thoughts
from pettingllms_envs.tools.calls import arguments_of, call_id, native_places, read_native_calls


def read_reply(text: str, tools: Sequence[Mapping[str, Any]], number: int) -> tuple[str, list[dict[str, Any]]]:
    """The words and the tool calls of a reply, in OpenAI's form. Calls that cannot be read stay among the words.

    The number of the run's call numbers the ids, so that a replay has the same. Lone surrogates, which no client can
    send back, are replaced by U+FFFD.
    """
    text = encodable(text)
    try:
        specs = {
            each["name"]: ToolSpec(each["name"], each.get("description") or "", each.get("parameters") or {})
            for each in (tool["function"] for tool in tools)
        }
        described: list[Any] = [SimpleNamespace(spec=spec) for spec in specs.values()]  # a tool's spec alone is read
        calls = read_native_calls(text, described) if tools else []
    except (AttributeError, TypeError, LookupError, ValueError):  # a tool that is described in no known way
        return text, []
    if isinstance(calls, Unreadable) or not calls:
        return text, []
    thoughts, words, unended = split_thoughts(text)
    functions = [
        {
            "name": call.name,
            "arguments": encodable(json.dumps(arguments_of(call, specs[call.name]), ensure_ascii=False)),
        }
        for call in calls
    ]
    return f"{thoughts}{_without_calls(words)}{unended}".strip(), [
        {"id": call_id(number, k), "type": "function", "function": function} for k, function in enumerate(functions)
    ]


def _without_calls(words: str) -> str:
    """The words around the calls, without the white space before each call."""
    around, at = list[str](), 0
    for start, end in native_places(words):
        around.append(words[at:start].rstrip())
        at = end
    return "".join([*around, words[at:]])
