"""How servers' answers are read: words, counts, errors, URLs; further members of the kinds of `test_quirks.py`."""

from __future__ import annotations

import json
import logging
from typing import Any

import httpx2
import pytest

from pettingllms_envs.agents.answers import (
    AnswerFailed,
    ErrorInside,
    ending,
    finish_of,
    is_passing,
    is_refused,
    read_chat,
    read_checked,
    read_usage,
    status_of,
)
from pettingllms_envs.agents.chat_form import ServerForm
from pettingllms_envs.agents.openai import Endpoint
from pettingllms_envs.agents.server import connections, joined


@pytest.mark.parametrize(
    ("word", "kind", "finish"),
    [
        ("stop", "finished", "stop"),
        ("end_turn", "finished", "stop"),  # Anthropic
        ("STOP", "finished", "stop"),  # Gemini
        ("COMPLETE", "finished", "stop"),  # Cohere
        ("eos_token", "finished", "stop"),  # TGI
        ("tool_calls", "finished", "stop"),
        ("MAX_TOKENS", "cut", "length"),
        ("model_length", "cut", "length"),  # Mistral
        ("model_context_window_exceeded", "cut", "length"),
        ("repetition", "cut", "length"),  # vLLM
        ("network_error", "failed", "network_error"),  # Zhipu
        ("insufficient_system_resource", "failed", "insufficient_system_resource"),  # DeepSeek
        ("USER_CANCEL", "failed", "USER_CANCEL"),
        ("SAFETY", "refused", "SAFETY"),
        ("guardrail_intervened", "refused", "guardrail_intervened"),  # Bedrock
        ("content-filter", "refused", "content-filter"),
        ("fin", None, "fin"),
    ],
)
def test_a_word_for_the_end_of_a_reply_is_one_of_four_or_unknown(word: str, kind: str | None, finish: str) -> None:
    assert (ending(word), finish_of(word)) == (kind, finish)


@pytest.mark.parametrize("word", [None, "", " ", ["stop"], 7, {"matched": 2}])
def test_what_is_no_word_is_not_known(word: Any) -> None:
    assert finish_of(word) is None


def test_the_word_of_an_object_is_its_type() -> None:
    assert finish_of({"type": "length", "length": 8}) == "length"  # SGLang
    choice = {"message": {"content": "U"}, "finish_reason": {"type": "abort", "message": "out of memory"}}
    with pytest.raises(AnswerFailed, match="finish_reason 'abort'"):
        read_checked(json.dumps({"choices": [choice]}))


@pytest.mark.parametrize(
    ("parts", "said"),
    [
        ([{"type": "text", "text": "U"}, {"type": "text", "text": " R"}], "U R"),
        ([{"type": "output_text", "text": "U"}], "U"),
        ([{"type": "thinking", "thinking": [{"type": "text", "text": "D?"}]}, {"type": "text", "text": "U"}], "U"),
        ([{"type": "reasoning", "text": "D?"}, {"type": "text", "text": "U"}], "U"),
        ([{"type": "refusal", "refusal": "I will not."}], "I will not."),
        ([], ""),
    ],
)
def test_a_reply_in_parts_is_the_text_of_those_that_are_no_thoughts(parts: list[Any], said: str) -> None:
    choice = {"message": {"content": parts}, "finish_reason": "stop"}
    assert read_chat(json.dumps({"choices": [choice]}), with_calls=False).text == said


@pytest.mark.parametrize(
    "part", [{"type": "audio", "data": "AA=="}, {"type": "text", "text": None}, {"text": "U"}, "U"]
)
def test_a_part_that_cannot_be_read_is_no_empty_reply(part: Any) -> None:
    choice = {"message": {"content": [part]}, "finish_reason": "stop"}
    with pytest.raises((TypeError, KeyError)):
        read_chat(json.dumps({"choices": [choice]}), with_calls=False)


def test_a_refusal_with_white_space_alone_has_no_text() -> None:
    choice = {"message": {"content": " \n"}, "finish_reason": "content_filter"}
    assert is_refused(read_chat(json.dumps({"choices": [choice]}), with_calls=False))


@pytest.mark.parametrize(
    ("usage", "prompt", "written", "note"),
    [
        ({"prompt_tokens": 9, "completion_tokens": 3, "total_tokens": 12}, 9, 3, None),
        ({"prompt_tokens": 9, "completion_tokens": 3}, 9, 3, None),
        ({"input_tokens": 9, "output_tokens": 3}, 9, 3, None),
        ({"prompt_tokens": 9, "completion_tokens": 3, "total_tokens": 18}, 9, 9, None),
        (
            {"prompt_tokens": 9, "completion_tokens": 3, "completion_tokens_details": {"reasoning_tokens": 5}},
            9,
            8,  # more of reasoning than of all: they are counted beside
            None,
        ),
        (
            {"prompt_tokens": 9, "completion_tokens": 7, "completion_tokens_details": {"reasoning_tokens": 5}},
            9,
            7,
            None,
        ),
        ({"prompt_tokens": 9, "total_tokens": 12}, 9, 3, None),
        ({"prompt_tokens": 9, "completion_tokens": 3, "total_tokens": 30}, 9, 21, "more tokens than the limit"),
        ({"prompt_tokens": 0, "completion_tokens": 3}, None, None, "0 tokens for a text"),
        ({"prompt_tokens": 9, "completion_tokens": 0}, None, None, "0 tokens for a text"),
        ({"prompt_tokens": 9, "completion_tokens": 11}, None, None, "more tokens than the limit"),
        ({"prompt_tokens": 9, "completion_tokens": 3, "total_tokens": 0}, None, None, "a total below its parts"),
        ({"prompt_tokens": 9, "completion_tokens": None}, 9, None, "not given"),
        ({"prompt_tokens": -9, "completion_tokens": 3, "total_tokens": 12}, None, 3, "not given"),
        ({"prompt_tokens": "9", "completion_tokens": True}, None, None, "not given"),
        (None, None, None, "not given"),
    ],
)
def test_counts_that_cannot_be_true_are_unknown(
    usage: Any, prompt: int | None, written: int | None, note: str | None
) -> None:
    assert read_usage(usage, wrote=True, limit=10) == (prompt, written, note)


def test_a_reply_without_a_text_may_have_no_tokens() -> None:
    assert read_usage({"prompt_tokens": 9, "completion_tokens": 0}, wrote=False) == (9, 0, None)


@pytest.mark.parametrize(
    ("answer", "status"),
    [
        ({"error": {"code": 429, "message": "slow down"}}, 429),
        ({"error": {"code": "rate_limit_exceeded", "message": "slow down"}}, 500),
        ({"error": "upstream"}, 500),
        ({"error": {"code": "insufficient_quota"}}, 402),
        ({"error": {"code": 500, "message": "This model's maximum context length is 9 tokens"}}, 400),
        ({"error": {"message": "The model does not exist", "code": "model_not_found"}}, 404),
        ({"error": {"type": "authentication_error"}}, 401),
        ({"object": "error", "message": "bad", "code": 400}, 400),  # vLLM before 0.9, FastChat
        ({"choices": [{"message": {"content": "U"}, "error": {"code": 502}}]}, 502),  # OpenRouter
    ],
)
def test_an_error_in_a_200_has_the_status_that_it_should_have_had(answer: Any, status: int) -> None:
    with pytest.raises(ErrorInside) as found:
        read_checked(json.dumps(answer))
    assert found.value.status == status


def test_an_error_that_is_null_is_none() -> None:
    answer = {"error": None, "choices": [{"message": {"content": "U"}, "error": None, "finish_reason": "stop"}]}
    assert read_chat(json.dumps(answer), with_calls=False).text == "U"


@pytest.mark.parametrize(
    ("status", "words", "passes"),
    [
        (409, "", True),
        (498, "", True),
        (529, "overloaded", True),
        (408, "", True),
        (503, "", True),
        (429, "slow down", True),
        (429, '{"code": "insufficient_quota"}', False),
        (500, "the request exceeds the available context size", False),  # llama.cpp
        (400, "Insufficient Balance", False),  # DeepSeek
        (501, "", False),
        (422, "", False),
        (404, "", False),
    ],
)
def test_a_status_passes_or_stays(status: int, words: str, passes: bool) -> None:
    assert is_passing(status_of(status, words)) is passes


@pytest.mark.parametrize(
    ("given", "asked"),
    [
        ("http://h/v1", "http://h/v1/chat/completions"),
        ("http://h/v1/", "http://h/v1/chat/completions"),
        (" http://h/v1//chat/completions/ ", "http://h/v1/chat/completions"),
        ("http://h/v1/completions", "http://h/v1/chat/completions"),
        ("http://h/v1/models", "http://h/v1/chat/completions"),
        ("https://h/openai/v1?api-version=2", "https://h/openai/v1/chat/completions?api-version=2"),
        ("https://h/v1/chat/completions?api-version=2", "https://h/v1/chat/completions?api-version=2"),
        ("http://[::1]:8000/v1", "http://[::1]:8000/v1/chat/completions"),
    ],
)
def test_a_base_url_may_be_written_in_several_ways(given: str, asked: str) -> None:
    assert joined(Endpoint(base_url=given, model="m").base_url, "/chat/completions") == asked


@pytest.mark.parametrize(
    ("url", "is_direct"),
    [
        ("http://localhost:8000/v1", True),
        ("http://127.0.0.1:8000/v1", True),
        ("http://127.8.8.8/v1", True),
        ("http://[::1]:8000/v1", True),
        ("http://0.0.0.0:8000/v1", True),
        ("http://vllm.localhost/v1", True),
        ("http://10.0.0.7:8000/v1", False),
        ("https://api.example.com/v1", False),
    ],
)
def test_a_server_of_this_machine_is_asked_without_a_proxy(
    url: str, is_direct: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("NO_PROXY", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
    for name in ("HTTP_PROXY", "HTTPS_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    with connections([url], httpx2.Limits()) as client:
        assert (client._transport_for_url(httpx2.URL(url)) is client._transport) is is_direct


@pytest.mark.parametrize(
    ("words", "has_long_name", "has_system"),
    [
        ("Unsupported parameter: 'max_tokens'. Use 'max_completion_tokens' instead.", True, True),
        ("System role not supported", False, False),  # Gemma
        ("Only user and assistant roles are supported!", False, False),  # Mistral
        ("Conversation roles must alternate user/assistant/user/assistant/...", False, False),  # Llama 2
        ("Developer instruction is not enabled for models/gemma-3-27b-it", False, False),
        ("This model does not support the system message", False, False),
        ("the prompt is too long", False, True),
    ],
)
def test_a_refusal_that_names_another_form_is_learned_from(
    words: str, has_long_name: bool, has_system: bool, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)
    form = ServerForm()
    messages = [{"role": "system", "content": "Walk."}, {"role": "user", "content": "Where?"}]
    body = {"model": "m", "messages": messages, "max_tokens": 7}
    assert form.learn(words, body) is (has_long_name or not has_system)
    assert len(caplog.records) == (has_long_name or not has_system)
    sent = form.applied(body)
    assert sent["messages"] == (messages if has_system else [{"role": "user", "content": "Walk.\n\nWhere?"}])
    assert ("max_completion_tokens" in sent, "max_tokens" in sent) == (has_long_name, not has_long_name)
    assert not form.learn(words, sent)  # or it would be asked for ever


@pytest.mark.parametrize(
    ("messages", "sent"),
    [
        ([("system", "Walk.")], [("user", "Walk.")]),
        ([("system", "Walk."), ("assistant", "U")], [("user", "Walk."), ("assistant", "U")]),
        ([("user", "Where?")], [("user", "Where?")]),
    ],
)
def test_a_system_message_goes_where_a_user_may_speak(messages: Any, sent: Any) -> None:
    body = {"messages": [{"role": role, "content": content} for role, content in messages]}
    found = ServerForm(has_system=False).applied(body)["messages"]
    assert [(message["role"], message["content"]) for message in found] == sent


def test_a_system_message_is_put_before_a_picture() -> None:
    picture = {"type": "image_url", "image_url": {"url": "data:"}}
    messages = [{"role": "system", "content": "Walk."}, {"role": "user", "content": [picture]}]
    (message,) = ServerForm(has_system=False).applied({"messages": messages})["messages"]
    assert message["content"] == [{"type": "text", "text": "Walk.\n\n"}, picture]


def test_the_least_of_two_limits_is_sent_by_the_name_that_a_user_has_given() -> None:
    body = {"max_tokens": 9, "max_completion_tokens": 7}
    assert ServerForm().applied(body) == {"max_completion_tokens": 7}
    assert ServerForm().applied({"max_tokens": 9}) == {"max_tokens": 9}
