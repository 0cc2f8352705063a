"""Parses the tool calls in a model's reply, and writes them.

A call is written in one of two ways:

* as text, a fenced block whose first line names the tool, for models and servers without tool calling:

        ```call python
        print(6 * 7)
        ```

* natively, as chat templates have it (Hermes, Qwen). A server that returns `tool_calls` is read as the same text:

        <tool_call>
        {"name": "python", "arguments": {"program": "print(6 * 7)"}}
        </tool_call>

Parsing takes time linear in the reply, and never raises.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any, NamedTuple

from pettingllms_envs.core import Tool, ToolSpec, Unreadable
from pettingllms_envs.replies.fences import fence, fenced_blocks, without_thoughts


OPENING, CLOSING = "<tool_call>", "</tool_call>"

ARGUMENTS = ("arguments", "parameters", "args", "input")
"""What models of several families call the arguments of a call."""

MAX_DEPTH = 20
"""Most levels of lists and objects in the arguments of a native call."""


class Call(NamedTuple):
    """A call of a tool.

    Args:
        request: What the tool is called with: its one text argument, or the arguments as JSON.
    """

    name: str
    request: str


def only_text(spec: ToolSpec) -> str | None:
    """The name of a tool's argument if it has one, which is a text; else None."""
    properties: Mapping[str, Any] = spec.parameters.get("properties", {})
    (name,) = properties if len(properties) == 1 else (None,)
    return name if name is not None and properties[name].get("type") == "string" else None


def read_text_calls(reply: str, tools: Sequence[Tool]) -> list[Call] | Unreadable:
    """The calls written as fenced blocks, in order; none if the reply has no block that names a tool."""
    return read_named_calls(reply, [tool.spec.name for tool in tools])


def read_named_calls(reply: str, names: Iterable[str]) -> list[Call] | Unreadable:
    """The same, of tools that are known by their names, which are in lower case."""
    blocks = fenced_blocks(without_thoughts(reply), {f"call {name}": name for name in names})
    return blocks if isinstance(blocks, Unreadable) else [Call(name, text) for name, text in blocks]


def read_native_calls(reply: str, tools: Sequence[Tool]) -> list[Call] | Unreadable:
    """The calls written natively, in order; none if the reply has no call."""
    specs = {tool.spec.name: tool.spec for tool in tools}
    words, calls = without_thoughts(reply), []
    for start, end in native_places(words):
        if end < 0:
            return Unreadable("its tool call has no end")
        call = _read_json(words[start + len(OPENING) : end - len(CLOSING)], specs)
        if isinstance(call, Unreadable):
            return call
        calls.append(call)
    return calls


def native_places(words: str) -> Iterator[tuple[int, int]]:
    """Where each native call begins and ends in a text, its tags included; the end is -1 if there is none."""
    end = 0
    while (start := words.find(OPENING, end)) >= 0:
        closing = words.find(CLOSING, start)
        if closing < 0:
            yield start, -1
            return
        end = closing + len(CLOSING)
        yield start, end


def arguments_of(call: Call, spec: ToolSpec) -> dict[str, Any]:
    """The arguments of a call by name, for a chat template."""
    text = only_text(spec)
    if text is not None:
        return {text: call.request}
    found = json.loads(call.request)
    assert isinstance(found, dict)  # see `_read_json`
    return found


def call_id(number: int, index: int) -> str:
    """The id of a call, nine letters and digits, as templates of Mistral want it: the same in every replay.

    Args:
        number: Which of an episode's replies it is in.
    """
    return f"c{number:05}{index:03}"


def written_call(name: str, arguments: Mapping[str, Any] | str) -> str:
    """A native call as text; a `str` of arguments is what a model wrote instead, which makes the call unreadable."""
    # JSON allows a backslash before a slash, so that no argument spells an end tag.
    content = json.dumps({"name": name, "arguments": arguments}, ensure_ascii=False).replace("</", "<\\/")
    return f"{OPENING}\n{content}\n{CLOSING}"


def strict_json(text: str) -> Any:
    """What a JSON text holds.

    Raises:
        ValueError: It is none, an object has two values of one name, or a number is not finite.
        RecursionError: It is too deep.
    """
    return json.loads(text, object_pairs_hook=_object, parse_constant=_finite, parse_float=_finite)


def text_call(call: Call) -> str:
    """A call as a fenced block."""
    return fence(call.request, f"call {call.name}")


def _read_json(content: str, specs: Mapping[str, ToolSpec]) -> Call | Unreadable:
    try:
        found = strict_json(content)
    except (ValueError, RecursionError):
        return Unreadable("its tool call is no JSON")
    found = found.get("function", found) if isinstance(found, dict) else None
    if not isinstance(found, dict) or not isinstance(name := found.get("name"), str):
        return Unreadable("its tool call names no tool")
    name = name if name in specs else name.removeprefix("functions.")
    given = [found[key] for key in ARGUMENTS if key in found]
    if len(given) > 1:
        return Unreadable(f"its tool call has several of {', '.join(ARGUMENTS)}")
    arguments = given[0] if given else {}
    if isinstance(arguments, str):  # as OpenAI's servers have them
        with suppress(ValueError, RecursionError):
            arguments = strict_json(arguments)
    if name not in specs:
        return Unreadable("it calls a tool that there is not")
    if not isinstance(arguments, dict):
        return Unreadable("the arguments of its tool call are no JSON object")
    if _is_deeper(arguments, MAX_DEPTH):
        return Unreadable(f"the arguments of its tool call have more than {MAX_DEPTH} levels")
    text = only_text(specs[name])
    if text is None:
        return Call(name, json.dumps(arguments, ensure_ascii=False))
    if set(arguments) != {text} or not isinstance(arguments[text], str):
        return Unreadable(f"the arguments of its tool call are not one text called {text!r}")
    return Call(name, arguments[text])


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError("two values of one name")
    return found


def _finite(number: str) -> float:
    """A number that JSON can hold, unlike NaN, Infinity and 1e999."""
    if not math.isfinite(found := float(number)):
        raise ValueError(f"{number} is not finite")
    return found


def _is_deeper(value: Any, levels: int) -> bool:
    """Whether a value has more levels of lists and objects. Deep ones would exceed Python's stack where it is read."""
    if not isinstance(value, dict | list):
        return False
    items = value.values() if isinstance(value, dict) else value
    return not levels or any(_is_deeper(each, levels - 1) for each in items)
