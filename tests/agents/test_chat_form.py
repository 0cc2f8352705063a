"""Prompts as a server takes them, and its tool calls as replies that environments parse."""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest

from adder import Adder
from pettingllms_envs.agents.chat_form import messages_for_server, text_with_calls
from pettingllms_envs.core import Unreadable
from pettingllms_envs.observations import PNG, Image
from pettingllms_envs.prompts import read_observation
from pettingllms_envs.tools import Call, read_native_calls


def call(arguments: Any) -> dict[str, Any]:
    return {"id": "x", "type": "function", "function": {"name": "add", "arguments": arguments}}


def test_an_image_is_sent_as_a_data_url_in_its_place() -> None:
    image = Image(PNG + b"pixels", "a board")
    (message,) = messages_for_server([{"role": "user", "content": ["Before.", image, "After."]}])
    before, shown, after = message["content"]
    assert (before, after) == ({"type": "text", "text": "Before."}, {"type": "text", "text": "After."})
    head, _, packed = shown["image_url"]["url"].partition(",")
    assert (shown["type"], head) == ("image_url", "data:image/png;base64")
    assert base64.b64decode(packed) == image.png


def test_arguments_are_sent_as_json_in_a_string_and_the_prompt_stays_as_it_was() -> None:
    prompt = [{"role": "assistant", "content": "", "tool_calls": [call({"numbers": "1 2"})]}]
    (message,) = messages_for_server(prompt)
    assert message["tool_calls"] == [call('{"numbers": "1 2"}')]
    assert prompt[0]["tool_calls"] == [call({"numbers": "1 2"})]


@pytest.mark.parametrize("arguments", ['{"numbers": "1 2"}', {"numbers": "1 2"}], ids=["text", "object"])
def test_the_calls_of_an_answer_are_parsed_from_its_text(arguments: Any) -> None:
    reply = text_with_calls("Let me add.", [call(arguments), call(arguments)])
    assert reply.startswith("Let me add.\n<tool_call>")
    assert read_native_calls(reply, [Adder()]) == [Call("add", "1 2")] * 2


@pytest.mark.parametrize("spelled", ["</tool_call>", "<tool_call>", "</think>", 'a </b> \\ " \n'])
def test_an_argument_may_spell_the_tags_of_a_call(spelled: str) -> None:
    reply = text_with_calls("", [call(json.dumps({"numbers": spelled}))])
    assert read_native_calls(reply, [Adder()]) == [Call("add", spelled)]


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        ('{"numbers": ', "the arguments of its tool call are no JSON object"),
        ('{"numbers": "1", "numbers": "2"}', "the arguments of its tool call are no JSON object"),
        ('{"numbers": NaN}', "the arguments of its tool call are no JSON object"),
        ('{"numbers": ' * 100_000, "the arguments of its tool call are no JSON object"),
        ("[1, 2]", "the arguments of its tool call are no JSON object"),
        ("", "the arguments of its tool call are not one text called 'numbers'"),
        (None, "the arguments of its tool call are not one text called 'numbers'"),
        ('{"sum": 3}', "the arguments of its tool call are not one text called 'numbers'"),
    ],
)
def test_wrong_arguments_reach_the_environment_which_says_what_is_wrong(arguments: Any, reason: str) -> None:
    assert read_native_calls(text_with_calls("", [call(arguments)]), [Adder()]) == Unreadable(reason)


def test_half_a_character_in_the_arguments_of_a_call_is_replaced_as_in_all_other_texts() -> None:
    asked = {"role": "assistant", "content": "", "tool_calls": [call({"numbers": "1 \ud800", "more": ["\udc00", 2]})]}
    observation = {"messages": [asked, {"role": "tool", "content": "3", "tool_call_id": "x"}]}
    first, _ = read_observation(observation, agent="a").messages
    assert first["tool_calls"] == [call({"numbers": "1 \ufffd", "more": ["\ufffd", 2]})]
