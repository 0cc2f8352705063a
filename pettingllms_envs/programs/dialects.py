"""OpenAI's two ways of asking a model, chat completions and Responses: requests to prompts, replies to answers.

A reply is whole before anything of it is sent, so a stream is a few events. What is not carried, such as sound or
several choices, is an error.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from pettingllms_envs.observations import Image, Limits, Message, Prompt
from pettingllms_envs.programs.replies import read_reply
from pettingllms_envs.prompts import LAST, read_observation
from pettingllms_envs.replies.counted import CountedReply


SAMPLING = (
    *("temperature", "top_p", "top_k", "min_p", "seed", "frequency_penalty", "presence_penalty"),
    "repetition_penalty",
)
"""Settings of the sampling, which are the trainer's or the evaluation's."""

NOT_CARRIED: Mapping[str, Any] = {
    "n": 1,
    "best_of": 1,
    "modalities": ["text"],
    "response_format": {"type": "text"},
    "text.format": {"type": "text"},
    **dict.fromkeys(("logprobs", "top_logprobs", "logit_bias", "audio", "functions", "store", "background")),
    **dict.fromkeys(("previous_response_id", "conversation", "prompt")),
}
"""Fields of a request that no model here can be given, with the value that asks for nothing, as an empty one does."""

TEXTS = ("text", "input_text", "output_text")
IMAGES = ("image_url", "input_image")


class RequestError(Exception):
    """A request that is answered with an error: a sentence for the program's author."""

    def __init__(self, message: str, status: int = 400) -> None:
        super().__init__(message)
        self.status = status


class Asked(NamedTuple):
    """A request: whether the answer is sent as events, and whether such a stream ends with the usage."""

    model: str
    prompt: Prompt
    limits: Limits
    has_stream: bool
    has_usage: bool


class Dialect(NamedTuple):
    """One way of asking: reads a body, and writes the answer to a call of a number, a content type and bytes."""

    read: Callable[[Mapping[str, Any]], Asked]
    write: Callable[[Asked, CountedReply, int], tuple[str, bytes]]


def _read_chat(body: Mapping[str, Any]) -> Asked:
    has_usage = bool((body.get("stream_options") or {}).get("include_usage"))
    return _asked(body, _list(body, "messages"), ("max_completion_tokens", "max_tokens"), has_usage)


def _read_response(body: Mapping[str, Any]) -> Asked:
    body = {**body, "text.format": (body.get("text") or {}).get("format")}
    given = body.get("input")
    items = [{"role": "user", "content": given}] if isinstance(given, str) else _list(body, "input")
    messages: list[Any] = []
    if body.get("instructions"):
        messages.append({"role": "system", "content": body["instructions"]})
    for item in items:
        kind = item.get("type") if isinstance(item, Mapping) else None
        if kind == "function_call":
            function = {"name": item.get("name"), "arguments": item.get("arguments")}
            call = {"id": item.get("call_id"), "type": "function", "function": function}
            if messages and messages[-1].get("role") == "assistant":
                messages[-1].setdefault("tool_calls", []).append(call)
            else:
                messages.append({"role": "assistant", "content": None, "tool_calls": [call]})
        elif kind == "function_call_output":
            output = item.get("output")
            content = output if isinstance(output, str | list) else json.dumps(output)
            messages.append({"role": "tool", "tool_call_id": item.get("call_id"), "content": content})
        elif kind in (None, "message"):
            messages.append({k: item[k] for k in ("role", "content") if k in item} if item else item)
        elif kind != "reasoning":  # which a server gives back to itself
            raise RequestError(
                f"input has an item of the type {kind!r}, which is not carried; expected messages and calls."
            )
    return _asked(body, messages, ("max_output_tokens",), has_usage=True)


def _asked(body: Mapping[str, Any], messages: Sequence[Any], most: Sequence[str], has_usage: bool) -> Asked:
    for name, nothing in NOT_CARRIED.items():
        if (value := body.get(name)) and value != nothing:
            raise RequestError(f"{name} is {json.dumps(value)[:80]}, which is not carried; leave it out.")
    prompt = _prompt(messages, _tools(body))
    return Asked(str(body.get("model")), prompt, _limits(body, most), bool(body.get("stream")), has_usage)


def _list(body: Mapping[str, Any], name: str) -> list[Any]:
    found = body.get(name) or []
    if not isinstance(found, list):
        raise RequestError(f"{name} is no list; expected one.")
    return found


def _limits(body: Mapping[str, Any], names: Sequence[str]) -> Limits:
    """The limits of the reply; `names` are those of the most tokens, of which the first that is given counts."""
    most = next((body[name] for name in names if body.get(name) is not None), None)
    if most is not None and (type(most) is not int or most < 1):
        raise RequestError(f"{names[0]} is {json.dumps(most)[:80]}; expected a whole number of at least 1.")
    stop = body.get("stop") or []
    stop = [stop] if isinstance(stop, str) else stop
    if not isinstance(stop, list) or not all(isinstance(word, str) and word for word in stop):
        raise RequestError(f"stop is {json.dumps(stop)[:80]}; expected words.")
    return Limits(most, tuple(stop))


def _tools(body: Mapping[str, Any]) -> list[Any]:
    """The tools that the model may call, by `tool_choice`: none, one, or all. `required` cannot be enforced."""
    tools = []
    for tool in _list(body, "tools"):
        if not isinstance(tool, Mapping) or tool.get("type") != "function":
            raise RequestError(f"tools has {json.dumps(tool)[:80]}; expected functions alone.")
        own = {key: tool[key] for key in ("name", "description", "parameters") if key in tool}  # of Responses
        tools.append({"type": "function", "function": tool.get("function", own)})
    choice = body.get("tool_choice")
    if choice == "none":
        return []
    if isinstance(choice, Mapping):
        name = (choice.get("function") or choice).get("name")
        tools = [tool for tool in tools if tool["function"].get("name") == name]
        if not tools:
            raise RequestError(f"tool_choice is {json.dumps(choice)[:80]}; expected one of the request's tools.")
    return tools


def _prompt(given: Sequence[Any], tools: Sequence[Any]) -> Prompt:
    messages = [_message(each, number) for number, each in enumerate(given)]
    made = {call["id"] for message in messages for call in message.get("tool_calls", ())}
    for number, message in enumerate(messages):
        if message["role"] == "tool" and message.get("tool_call_id") not in made:
            raise RequestError(f"message {number} is the result of a tool call that no message before has made.")
    if not messages or messages[-1]["role"] not in LAST:
        roles = [message["role"] for message in messages][-3:]
        raise RequestError(f"the last messages have the roles {roles}; expected a user's or a tool's, to reply to.")
    try:
        return read_observation({"messages": messages, "tools": tools}, agent="the program")
    except (TypeError, ValueError) as error:
        raise RequestError(str(error)) from None


def _message(given: Any, number: int) -> Message:
    role = given.get("role") if isinstance(given, Mapping) else None
    if role not in ("system", "developer", "user", "assistant", "tool"):
        raise RequestError(
            f"message {number} has the role {role!r}; expected system, developer, user, assistant or tool."
        )
    content = given.get("content")
    if isinstance(content, list):
        parts = [_part(part, number) for part in content]
        content = parts if any(isinstance(part, Image) for part in parts) else "".join(map(str, parts))
    if not isinstance(content, str | list | None):
        raise RequestError(f"message {number} has a content of the type {type(content).__name__}; expected a text.")
    found: Message = {"role": "system" if role == "developer" else role, "content": content or ""}
    if calls := given.get("tool_calls"):
        found["tool_calls"] = [_call(call, number) for call in calls]
    return found | {key: given[key] for key in ("tool_call_id", "name") if given.get(key)}


def _part(part: Any, number: int) -> str | Image:
    kind = part.get("type") if isinstance(part, Mapping) else None
    if kind in IMAGES:
        given = part.get("image_url")
        try:
            return Image.of_url(given.get("url") if isinstance(given, Mapping) else given)
        except ValueError as error:
            raise RequestError(f"message {number}: {error} Send the PNG file itself, in base64.") from None
    if kind not in TEXTS or not isinstance(part.get("text"), str):
        raise RequestError(f"message {number} has a part of the type {kind!r}; expected texts and images.")
    return str(part["text"])


def _call(call: Any, number: int) -> dict[str, Any]:
    try:
        function = call["function"]
        own = {"name": function["name"], "arguments": json.loads(function["arguments"] or "{}")}
        return {"id": str(call["id"]), "type": "function", "function": own}
    except (TypeError, KeyError, ValueError, RecursionError):
        raise RequestError(
            f"message {number} has a tool call that cannot be read; expected id, function.name and "
            "function.arguments, a JSON object in a string."
        ) from None


def _write_chat(asked: Asked, reply: CountedReply, number: int) -> tuple[str, bytes]:
    words, calls = read_reply(reply, asked.prompt.tools, number)
    finish = "tool_calls" if calls else "length" if reply.was_cut else "stop"
    head = {"id": f"chatcmpl-{number}", "created": 0, "model": asked.model}
    usage = _usage(reply, "prompt_tokens", "completion_tokens")
    if not asked.has_stream:
        content = words or (None if calls else "")
        message = {"role": "assistant", "content": content, **({"tool_calls": calls} if calls else {})}
        choice = {"index": 0, "message": message, "finish_reason": finish, "logprobs": None}
        return _json({**head, "object": "chat.completion", "choices": [choice], "usage": usage})
    delta: dict[str, Any] = {"role": "assistant", "content": words}
    if calls:
        delta["tool_calls"] = [{"index": k, **call} for k, call in enumerate(calls)]
    head["object"] = "chat.completion.chunk"
    chunks: list[Any] = [
        {**head, "choices": [{"index": 0, "delta": delta, "finish_reason": None}]},
        {**head, "choices": [{"index": 0, "delta": {}, "finish_reason": finish}]},
    ]
    if asked.has_usage:
        chunks.append({**head, "choices": [], "usage": usage})
    return _events(chunks, end=b"data: [DONE]\n\n")


def _write_response(asked: Asked, reply: CountedReply, number: int) -> tuple[str, bytes]:
    words, calls = read_reply(reply, asked.prompt.tools, number)
    output: list[dict[str, Any]] = []
    if words or not calls:
        content = [{"type": "output_text", "text": words, "annotations": []}]
        output.append({"type": "message", "id": f"msg_{number}", "role": "assistant", "content": content})
    for call in calls:
        head = {"type": "function_call", "id": f"fc_{call['id']}", "call_id": call["id"]}
        output.append({**head, **call["function"]})
    response = {
        "id": f"resp_{number}",
        "object": "response",
        "created_at": 0,
        "status": "incomplete" if reply.was_cut else "completed",
        "model": asked.model,
        "output": [{**item, "status": "completed"} for item in output],
        "parallel_tool_calls": True,
        "tool_choice": "auto",
        "tools": [],
        "error": None,
        "incomplete_details": {"reason": "max_output_tokens"} if reply.was_cut else None,
        "usage": {
            **_usage(reply, "input_tokens", "output_tokens"),
            "input_tokens_details": {"cached_tokens": 0},
            "output_tokens_details": {"reasoning_tokens": 0},
        },
    }
    return _events(_response_events(response)) if asked.has_stream else _json(response)


def _usage(reply: CountedReply, read: str, written: str) -> dict[str, Any]:
    total = reply.num_prompt_tokens + reply.num_tokens
    return {read: reply.num_prompt_tokens, written: reply.num_tokens, "total_tokens": total}


def _response_events(response: Mapping[str, Any]) -> Iterable[dict[str, Any]]:
    """The events of a streamed response: each item is begun, filled at once, and ended."""
    begun = {**response, "status": "in_progress", "output": [], "usage": None}
    events: list[dict[str, Any]] = [{"type": "response.created", "response": begun}]
    for index, item in enumerate(response["output"]):
        at = {"output_index": index}
        is_message = item["type"] == "message"
        fill = ("content", []) if is_message else ("arguments", "")
        empty: dict[str, Any] = {**item, "status": "in_progress", fill[0]: fill[1]}
        events.append({"type": "response.output_item.added", **at, "item": empty})
        at["item_id"] = item["id"]
        if is_message:
            part, at["content_index"] = item["content"][0], 0
            events += [
                {"type": "response.content_part.added", **at, "part": {**part, "text": ""}},
                {"type": "response.output_text.delta", **at, "delta": part["text"], "logprobs": []},
                {"type": "response.output_text.done", **at, "text": part["text"], "logprobs": []},
                {"type": "response.content_part.done", **at, "part": part},
            ]
        else:
            arguments = item["arguments"]
            events += [
                {"type": "response.function_call_arguments.delta", **at, "delta": arguments},
                {"type": "response.function_call_arguments.done", **at, "arguments": arguments},
            ]
        events.append({"type": "response.output_item.done", "output_index": index, "item": item})
    events.append({"type": f"response.{response['status']}", "response": response})
    return ({**event, "sequence_number": number} for number, event in enumerate(events))


def _json(value: Any) -> tuple[str, bytes]:
    return "application/json", json.dumps(value).encode("ascii")


def _events(values: Iterable[Mapping[str, Any]], end: bytes = b"") -> tuple[str, bytes]:
    lines = []
    for value in values:
        name = f"event: {value['type']}\n" if "type" in value else ""
        lines.append(f"{name}data: {json.dumps(value)}\n\n".encode("ascii"))
    return "text/event-stream", b"".join(lines) + end


DIALECTS: Mapping[str, Dialect] = {
    "chat/completions": Dialect(_read_chat, _write_chat),
    "responses": Dialect(_read_response, _write_response),
}
"""By the path behind a session's `/v1/`."""
