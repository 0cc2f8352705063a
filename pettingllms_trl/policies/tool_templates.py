"""Checks that a chat template writes tools, their calls and their results into a prompt."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence

from jinja2 import TemplateError

from pettingllms_envs.tools.calls import CLOSING, OPENING
from pettingllms_trl.records import Message, Tools


NAME, DESCRIPTION, ARGUMENT, RESULT = "tool_5d1c", "DOES-8a40", "ARGUMENT-c27e", "RESULT-91bb"
PARAMETERS = {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]}
FUNCTION = {"name": NAME, "description": DESCRIPTION, "parameters": PARAMETERS}
TOOLS: Tools = [{"type": "function", "function": FUNCTION}]
ASKED: Message = {"role": "user", "content": "QUESTION-0e6f"}
CALLING: Message = {
    "role": "assistant",
    "content": "",
    "tool_calls": [
        {"id": "call_0_0", "type": "function", "function": {"name": NAME, "arguments": {"text": ARGUMENT}}}
    ],
}
RETURNED: Message = {"role": "tool", "content": RESULT, "name": NAME, "tool_call_id": "call_0_0"}
CONVERSATION = (ASKED, CALLING, RETURNED)

Render = Callable[[Sequence[Message], Tools], str]
"""The text that a chat template makes of messages and tools."""


def why_unsupported(render: Render) -> str:
    """Why a template does not write tools, as the end of a sentence; empty if it does."""
    try:
        first = render([ASKED], TOOLS)
        whole = render(CONVERSATION, TOOLS)
    except (TemplateError, TypeError, ValueError) as error:
        return f"refuses tools ({error})"
    if NAME not in first or DESCRIPTION not in first:
        return "does not write the tools"
    called = whole.partition(ASKED["content"])[2]
    if NAME not in called or ARGUMENT not in called:
        return "does not write the calls of tools"
    return "" if RESULT in called else "does not write the results of tools"


def why_unreadable(render: Render, read: Callable[[str], str]) -> str:
    """Why an environment of this package cannot read the calls of a model with this template; empty if it can.

    `read` encodes a text and decodes it, as a reply is decoded.
    """
    if OPENING not in read(f"{OPENING}\n{{}}"):
        return f"has {OPENING!r} as a special token, which the text of a reply lacks"
    called = render(CONVERSATION, TOOLS).partition(ASKED["content"])[2]
    try:
        call = json.loads(called.partition(OPENING)[2].partition(CLOSING)[0])
    except ValueError:
        call = None
    is_same = call == {"name": NAME, "arguments": {"text": ARGUMENT}}
    return "" if is_same else f"writes calls in another form than {OPENING} with name and arguments as JSON"
