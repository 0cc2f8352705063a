"""What programs send to the endpoint, and what they are answered."""

from __future__ import annotations

import http.client
import io
import itertools
import json
import logging
import os
import queue
import socket
import struct
import threading
import time
import urllib.parse
from collections.abc import Callable
from typing import Any

import pytest
from PIL import Image as Picture

from calls import ask, chat, played, send
from pettingllms_envs.observations import Image, Limits
from pettingllms_envs.programs import endpoint, program


pytestmark = pytest.mark.filterwarnings("ignore:critic made no call:UserWarning")

AGENTS = ("writer", "critic")
TOOL = {
    "type": "function",
    "function": {
        "name": "add",
        "description": "Adds.",
        "parameters": {"type": "object", "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}}},
    },
}
CALL = '<tool_call>\n{"name": "add", "arguments": {"a": 2, "b": 3}}\n</tool_call>'


def answers(call: Callable[[str], Any], reply: str = "Yes.", agents: Any = AGENTS) -> Any:
    """What a program gets for a call whose reply is `reply`; it asks once more if the call had no reply."""
    found = []

    def team(base_url: str, row: Any) -> float:
        found.append(call(base_url))
        ask(base_url, "writer", "the end")
        return 1.0

    env = program(team, agents=agents)()
    played(env, lambda text: "0" if text == "the end" else reply)
    env.close()
    return found[0]


def shown(url: str) -> dict[str, Any]:
    """A request with a text, an image and a text."""
    content = [
        {"type": "text", "text": "Look:"},
        {"type": "image_url", "image_url": {"url": url}},
        {"type": "text", "text": "Moves?"},
    ]
    return {"messages": [{"role": "user", "content": content}]}


def test_an_image_in_a_data_url_is_a_part_of_what_the_agent_observes_in_its_place() -> None:
    file = io.BytesIO()
    Picture.new("RGB", (8, 8)).save(file, "PNG")
    image = Image(file.getvalue(), "a board")
    in_responses = [
        {"type": "input_text", "text": "Look:"},
        {"type": "input_image", "image_url": image.url},
        {"type": "input_text", "text": "Moves?"},
    ]

    def team(base_url: str, row: Any) -> float:
        send(f"{base_url}/chat/completions", {"model": "writer", **shown(image.url)})
        send(f"{base_url}/responses", {"model": "writer", "input": [{"role": "user", "content": in_responses}]})
        return 1.0

    env = program(team, agents=["writer"])()
    env.reset(seed=0)
    for _ in range(2):
        observed = env.observe("writer")
        assert observed["messages"] == [{"role": "user", "content": ["Look:", Image(image.png, "an image"), "Moves?"]}]
        assert env.observation_space("writer").contains(observed)
        env.step("Yes.")
    env.close()


def test_a_chat_completion_has_the_reply_and_why_it_ended() -> None:
    status, answer = answers(lambda url: chat(url, "writer", "Who?"))
    assert status == 200
    assert answer["choices"] == [
        {
            "index": 0,
            "message": {"role": "assistant", "content": "Yes."},
            "finish_reason": "stop",
            "logprobs": None,
        }
    ]
    assert (answer["id"], answer["model"]) == ("chatcmpl-0", "writer")


def test_a_stream_has_the_whole_reply_in_one_event_and_the_usage_where_it_is_asked_for() -> None:
    options = {"stream": True, "stream_options": {"include_usage": True}}
    status, text = answers(lambda url: chat(url, "writer", "Who?", **options))
    events = [line.removeprefix("data: ") for line in text.split("\n\n") if line]
    assert (status, events[-1]) == (200, "[DONE]")
    first, last, usage = map(json.loads, events[:-1])
    assert first["choices"][0]["delta"] == {"role": "assistant", "content": "Yes."}
    assert last["choices"][0] == {"index": 0, "delta": {}, "finish_reason": "stop"}
    assert (usage["choices"], usage["usage"]["total_tokens"]) == ([], 0)


def test_a_tool_call_is_read_and_its_id_has_the_number_of_the_call() -> None:
    _, answer = answers(lambda url: chat(url, "writer", "2 + 3?", tools=[TOOL]), f"I add.\n{CALL}")
    message = answer["choices"][0]["message"]
    assert message["content"] == "I add."
    assert message["tool_calls"] == [
        {"id": "c00000000", "type": "function", "function": {"name": "add", "arguments": '{"a": 2, "b": 3}'}}
    ]
    assert answer["choices"][0]["finish_reason"] == "tool_calls"


@pytest.mark.parametrize(
    ("fields", "reply"),
    [
        ({}, CALL),
        ({"tools": [TOOL], "tool_choice": "none"}, CALL),
        ({"tools": [TOOL]}, '<tool_call>\n{"name": "add", "argum'),
        ({"tools": [TOOL]}, '<tool_call>\n{"name": "subtract", "arguments": {}}\n</tool_call>'),
    ],
)
def test_a_call_of_no_tool_and_one_that_was_cut_reach_the_program_as_text(fields: Any, reply: str) -> None:
    _, answer = answers(lambda url: chat(url, "writer", "2 + 3?", **fields), reply)
    assert answer["choices"][0]["message"] == {"role": "assistant", "content": reply}


def test_the_agent_is_shown_the_messages_the_results_of_tools_and_the_tool_that_is_chosen() -> None:
    call = {"id": "call_7", "type": "function", "function": {"name": "add", "arguments": '{"a": 2, "b": 3}'}}
    messages = [
        {"role": "developer", "content": [{"type": "text", "text": "You "}, {"type": "text", "text": "add."}]},
        {"role": "user", "content": "2 + 3?", "name": "ann"},
        {"role": "user", "content": "Now."},
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "call_7", "content": "5"},
    ]
    other = {"type": "function", "function": {"name": "subtract"}}
    choice = {"type": "function", "function": {"name": "add"}}

    def team(base_url: str, row: Any) -> float:
        chat(base_url, "writer", "", messages=messages, tools=[TOOL, other], tool_choice=choice)
        return 1.0

    env = program(team, agents=("writer",))()
    env.reset(seed=0)
    parsed = {"id": "call_7", "type": "function", "function": {"name": "add", "arguments": {"a": 2, "b": 3}}}
    assert env.observe("writer") == {
        "messages": [
            {"role": "system", "content": "You add."},
            {"role": "user", "content": "2 + 3?", "name": "ann"},
            {"role": "user", "content": "Now."},
            {"role": "assistant", "content": "", "tool_calls": [parsed]},
            {"role": "tool", "content": "5", "tool_call_id": "call_7"},
        ],
        "tools": [TOOL],
    }
    env.close()


@pytest.mark.parametrize(
    ("path", "fields", "expected"),
    [
        ("chat/completions", {}, None),
        ("chat/completions", {"max_tokens": 7, "stop": "."}, Limits(7, (".",))),
        ("chat/completions", {"max_completion_tokens": 5, "max_tokens": 7, "stop": ["a", "b"]}, Limits(5, ("a", "b"))),
        ("responses", {"max_output_tokens": 3}, Limits(3)),
    ],
)
def test_limits_of_a_request_are_those_of_the_observation(path: str, fields: Any, expected: Any) -> None:
    def team(base_url: str, row: Any) -> float:
        messages = [{"role": "user", "content": "Who?"}]
        send(f"{base_url}/{path}", {"model": "writer", "messages": messages, "input": messages, **fields})
        return 1.0

    env = program(team, agents=("writer",))()
    env.reset(seed=0)
    assert env.observe("writer").get("limits") == expected
    env.close()


def test_a_response_has_items_for_words_and_for_calls() -> None:
    items = [
        {"role": "user", "content": "2 + 3?"},
        {"type": "function_call", "call_id": "call_7", "name": "add", "arguments": '{"a": 1, "b": 1}'},
        {"type": "function_call_output", "call_id": "call_7", "output": "2"},
    ]
    tool = {"type": "function", **TOOL["function"]}  # type: ignore[dict-item]
    body = {"model": "writer", "instructions": "You add.", "input": items, "tools": [tool], "text": {"format": None}}
    status, answer = answers(lambda url: send(f"{url}/responses", body), f"Again.\n{CALL}")
    assert (status, answer["status"]) == (200, "completed")
    words, call = answer["output"]
    assert words["content"] == [{"type": "output_text", "text": "Again.", "annotations": []}]
    assert (call["type"], call["call_id"], call["name"]) == ("function_call", "c00000000", "add")
    assert json.loads(call["arguments"]) == {"a": 2, "b": 3}


def test_a_streamed_response_begins_fills_and_ends_each_item() -> None:
    body = {"model": "writer", "input": "Who?", "stream": True}
    _, text = answers(lambda url: send(f"{url}/responses", body))
    events = [json.loads(line.partition("data: ")[2]) for line in text.split("\n\n") if line]
    assert [event["type"].removeprefix("response.") for event in events] == [
        "created",
        "output_item.added",
        "content_part.added",
        "output_text.delta",
        "output_text.done",
        "content_part.done",
        "output_item.done",
        "completed",
    ]
    assert [event["sequence_number"] for event in events] == list(range(8))
    assert events[3]["delta"] == events[-1]["response"]["output"][0]["content"][0]["text"] == "Yes."


def test_the_models_are_the_agents_and_the_names_that_stand_for_them() -> None:
    status, answer = answers(
        lambda url: send(f"{url}/models", None), agents={"gpt-5-mini": "writer", "writer": "writer"}
    )
    assert (status, [model["id"] for model in answer["data"]]) == (200, ["gpt-5-mini", "writer"])


@pytest.mark.parametrize(
    ("agents", "model", "headers", "expected"),
    [
        (AGENTS, "critic", {}, "critic"),
        (AGENTS, "anything", {"x_agent": "critic"}, "critic"),
        ({"gpt-5-mini": "critic", "gpt-5": "writer"}, "gpt-5-mini", {}, "critic"),
        ({"gpt-5-mini": "critic", "gpt-5": "writer"}, "critic", {}, "critic"),
        ({"gpt-5-mini": "critic", "gpt-5": "writer"}, "gpt-5", {"x_agent": "critic"}, "critic"),
        ({"critic": "writer", "writer": "critic"}, "writer", {}, "critic"),
        (("critic",), "anything", {}, "critic"),
    ],
)
def test_an_agent_is_named_by_the_header_else_by_the_model_and_a_lone_one_by_anything(
    agents: Any, model: str, headers: dict[str, str], expected: str
) -> None:
    def team(base_url: str, row: Any) -> float:
        send(f"{base_url}/responses", {"model": model, "input": "Who?"}, **headers)
        return 1.0

    env = program(team, agents=agents)()
    env.reset(seed=0)
    assert env.agent_selection == expected
    env.close()


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ({"n": 2}, "n is 2, which is not carried"),
        ({"logprobs": True}, "logprobs is true"),
        ({"response_format": {"type": "json_schema"}}, "response_format is"),
        ({"modalities": ["text", "audio"]}, "modalities is"),
        ({"store": True}, "store is true"),
        ({"messages": []}, "expected a user's or a tool's"),
        ({"messages": [{"role": "system", "content": "Be good."}]}, "expected a user's or a tool's"),
        ({"messages": [{"role": "robot", "content": "x"}]}, "message 0 has the role 'robot'"),
        ({"messages": [{"role": "user", "content": [{"type": "input_audio"}]}]}, "of the type 'input_audio'"),
        (shown("https://example.org/board.png"), "'https://example.org/board.png', which is not fetched"),
        (shown("data:image/jpeg;base64,AAAA"), "expected data:image/png;base64,..."),
        (shown("data:image/png;base64,@"), "is no base64"),
        (shown("data:image/png;base64,AAAA"), "expected a PNG file"),
        ({"messages": [{"role": "user", "content": 7}]}, "a content of the type int"),
        ({"messages": [{"role": "tool", "tool_call_id": "x", "content": "5"}]}, "no message before has made"),
        ({"messages": "Who?"}, "messages is no list"),
        ({"max_tokens": 0}, "max_completion_tokens is 0; expected a whole number of at least 1"),
        ({"stop": [""]}, "expected words"),
        ({"tools": [{"type": "web_search"}]}, "expected functions alone"),
        ({"tools": [TOOL], "tool_choice": {"function": {"name": "fly"}}}, "expected one of the request's tools"),
        ({"messages": [{"role": "assistant", "tool_calls": [{}]}]}, "a tool call that cannot be read"),
    ],
)
def test_what_is_not_carried_is_answered_400_with_a_sentence(body: dict[str, Any], expected: str) -> None:
    status, answer = answers(lambda url: chat(url, "writer", "Who?", **body))
    assert status == 400
    assert expected in answer["error"]["message"]


@pytest.mark.parametrize(
    ("path", "body", "status", "expected"),
    [
        ("/chat/completions", b"{", 400, "no JSON object"),
        ("/chat/completions", b"[" * 100_000, 400, "no JSON object"),
        ("/chat/completions", b"7", 400, "no JSON object"),
        (
            "/chat/completions",
            {"model": "editor", "messages": []},
            404,
            "no agent 'editor'; expected the model, or the",
        ),
        ("/embeddings", {"model": "writer"}, 404, "there is no /embeddings"),
        ("/responses", {"model": "writer", "input": "x", "previous_response_id": "r"}, 400, "previous_response_id is"),
        ("/responses", {"model": "writer", "input": [{"type": "computer_call"}]}, 400, "'computer_call'"),
        (
            "/responses",
            {"model": "writer", "input": "x", "text": {"format": {"type": "json_schema"}}},
            400,
            "text.format",
        ),
        *(
            ("/chat/completions", {"messages": [{"role": "user", "content": "x"}], **fields}, 400, "cannot be read")
            for fields in (
                {"model": "writer", "stream_options": "x"},
                {"model": "writer", "tools": [TOOL], "tool_choice": {"function": "x"}},
                {"model": "writer", "tools": [{"type": "function", "function": None}], "tool_choice": {"name": "x"}},
                {"model": "writer", "messages": [{"role": "assistant", "content": "", "tool_calls": 5}]},
            )
        ),
        ("/responses", {"model": "writer", "input": "x", "text": "x"}, 400, "cannot be read"),
        ("/responses", {"model": "writer", "input": ["role"]}, 400, "cannot be read"),
        ("/reward", {"reward": float("nan")}, 400, "expected a finite number"),
        ("/reward", {"reward": {"editor": 1}}, 400, "expected one of team, "),
    ],
)
def test_other_requests_are_answered_with_their_fault(path: str, body: Any, status: int, expected: str) -> None:
    got, answer = answers(lambda url: send(f"{url}{path}", body))
    assert got == status
    assert expected in answer["error"]["message"]


def test_refused_requests_are_counted_in_the_outcome() -> None:
    def team(base_url: str, row: Any) -> float:
        chat(base_url, "writer", "Who?", n=2)
        chat(base_url, "editor", "Who?")
        ask(base_url, "writer", "Who?")
        return 1.0

    env = program(team, agents=("writer", "critic"))()
    env.reset(seed=0)
    env.step("I.")
    assert env.infos["writer"]["outcome"] == {"refused_requests": 2, "success": True}


def begun(base_url: str, *headers: str, end: str = "\r\n\r\n") -> str:
    """What a request is answered, until its connection is closed, of which nothing is sent after its headers."""
    url = urllib.parse.urlsplit(base_url)
    with socket.create_connection((url.hostname or "", url.port or 0), timeout=30) as connection:
        head = "\r\n".join([f"POST {url.path}/chat/completions HTTP/1.1", "Host: x", *headers])
        connection.sendall(f"{head}{end}".encode())
        return connection.makefile("rb").read().decode()


@pytest.mark.parametrize(("length", "shown"), [("1" + "0" * 7, "10000000"), ("1" + "0" * 5000, "1" + "0" * 19)])
def test_a_body_that_is_too_long_is_refused_before_it_is_read(length: str, shown: str) -> None:
    answer = answers(lambda url: begun(url, f"Content-Length: {length}"))
    assert "400 Bad Request" in answer
    assert f"{shown} bytes; expected at most 8388608 bytes" in answer


def test_a_client_that_waits_for_leave_to_send_its_body_gets_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(endpoint._Handler, "timeout", 0.05)
    answer = answers(lambda url: begun(url, "Content-Length: 5", "Expect: 100-continue"))
    assert answer == "HTTP/1.1 100 Continue\r\n\r\n"


@pytest.mark.parametrize("end", ["", "\r\n", "\r\n\r\n", "\r\n\r\n{"])
def test_a_request_that_stops_coming_in_its_headers_or_body_ends_its_connection(
    end: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(endpoint._Handler, "timeout", 0.05)
    assert answers(lambda url: begun(url, "Content-Length: 5", end=end)) == ""


def test_a_client_that_waits_longer_than_that_for_a_reply_is_answered_and_may_keep_its_connection_no_longer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(endpoint._Handler, "timeout", 0.05)
    left = list[bytes]()

    def team(base_url: str, row: Any) -> float:
        url = urllib.parse.urlsplit(f"{base_url}/chat/completions")
        kept = http.client.HTTPConnection(url.hostname or "", url.port, timeout=30)
        kept.request("POST", url.path, json.dumps({"model": "writer", "messages": [{"role": "user", "content": "?"}]}))
        kept.getresponse().read()
        left.append(kept.sock.recv(1))
        kept.close()
        return 1.0

    env = program(team, agents=("writer",))()
    env.reset(seed=0)
    time.sleep(0.2)
    env.step("I.")
    assert env.rewards == {"writer": 1.0}
    assert left == [b""]


def test_lone_surrogates_reach_no_client() -> None:
    _, answer = answers(
        lambda url: chat(url, "writer", "2 + 3?", tools=[TOOL]),
        f"\ud800{CALL.replace('3', chr(34) + chr(92) + 'udfff' + chr(34))}",
    )
    message = answer["choices"][0]["message"]
    assert message["content"] == "\ufffd"
    assert message["tool_calls"][0]["function"]["arguments"] == '{"a": 2, "b": "\ufffd"}'


def test_a_call_of_a_tool_that_is_described_in_no_known_way_is_text() -> None:
    tool = {"type": "function", "function": {"name": "add", "parameters": {"type": "object", "properties": [1]}}}
    status, answer = answers(lambda url: chat(url, "writer", "2 + 3?", tools=[tool]), CALL)
    assert status == 200
    assert answer["choices"][0]["message"] == {"role": "assistant", "content": CALL}


def test_of_two_equal_calls_the_one_whose_client_went_away_is_answered_to_its_second_try() -> None:
    body = {"model": "writer", "messages": [{"role": "user", "content": "Who?"}]}
    gone, found = threading.Event(), list[str]()

    def content(url: str, **headers: str) -> None:
        found.append(send(url, body, **headers)[1]["choices"][0]["message"]["content"])

    def team(base_url: str, row: Any) -> float:
        url = urllib.parse.urlsplit(f"{base_url}/chat/completions")
        first = http.client.HTTPConnection(url.hostname or "", url.port)
        first.request("POST", url.path, json.dumps(body))
        other = threading.Thread(target=content, args=(url.geturl(),))
        other.start()
        gone.wait()
        first.close()
        again = threading.Thread(target=content, args=(url.geturl(),), kwargs={"x_stainless_retry_count": "1"})
        again.start()
        other.join()
        again.join()
        return 1.0

    env = program(team, agents=("writer",))()
    env.reset(seed=0)
    while not env.program.state.wait:  # both are open
        time.sleep(0.001)
    gone.set()
    time.sleep(0.05)
    env.step("a")
    env.step("b")
    assert env.terminations == {"writer": True}
    assert sorted(found) == ["a", "b"]
    env.close()


def test_the_clients_of_this_process_and_of_command_lines_ask_it_without_a_proxy(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for given, expected in (("", "127.0.0.1"), ("intranet", "intranet,127.0.0.1"), ("*", "*")):
        monkeypatch.setenv("no_proxy", given)
        endpoint.Endpoint().shutdown()
        assert os.environ["no_proxy"] == expected


def test_an_unknown_key_and_that_of_an_ended_run_are_answered_401_and_in_no_error_or_log(
    caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    urls = []

    def team(base_url: str, row: Any) -> float:
        urls.append(base_url)
        return float(ask(base_url, "writer", "Who?") == "I.")

    env = program(team, agents=("writer",))()
    with caplog.at_level(logging.DEBUG):
        played(env, ["I."])
        assert chat(urls[0], "writer", "Again?")[0] == 409  # its reward was given
        env.close()
        key = urls[0].split("/")[-2]
        others = [chat(urls[0], "writer", "Again?"), chat(urls[0].replace(key, "x" * len(key)), "writer", "Me?")]
        assert [status for status, _ in others] == [401, 401]
    written = capfd.readouterr()
    assert key not in "".join([caplog.text, written.out, written.err, json.dumps(others)])


def test_a_second_try_of_a_client_gets_the_same_answer_and_is_no_decision() -> None:
    body = {"model": "writer", "messages": [{"role": "user", "content": "Who?"}]}

    def team(base_url: str, row: Any) -> float:
        first = send(f"{base_url}/chat/completions", body)
        again = send(f"{base_url}/chat/completions", body, x_stainless_retry_count="1")
        other = send(f"{base_url}/chat/completions", body)  # the same question once more
        return float(first == again != other)

    env = program(team, agents=("writer",))()
    assert len(played(env, ["I.", "You."])) == 2
    assert env.infos == {}  # all have left


def test_the_same_question_asked_again_at_once_is_a_decision_each_time() -> None:
    def team(base_url: str, row: Any) -> float:
        return float({ask(base_url, "writer", "Who?") for _ in range(300)} == {str(number) for number in range(300)})

    env, numbers = program(team, agents=("writer",), max_calls=300)(), itertools.count()
    assert len(played(env, lambda text: str(next(numbers)))) == 300


def test_a_client_that_goes_before_its_answer_leaves_the_decision_to_its_second_try() -> None:
    gone = threading.Event()

    def team(base_url: str, row: Any) -> float:
        url = urllib.parse.urlsplit(base_url)
        body = json.dumps({"model": "writer", "messages": [{"role": "user", "content": "Who?"}]})
        connection = http.client.HTTPConnection(url.hostname or "", url.port)
        connection.request("POST", f"{url.path}/chat/completions", body, {"content-type": "application/json"})
        gone.wait()
        connection.close()
        return float(ask(base_url, "writer", "Who?") == "I.")

    env = program(team, agents=("writer",))()
    env.reset(seed=0)
    gone.set()
    threading.Event().wait(0.1)  # so that the second try comes first
    env.step("I.")
    assert env.terminations == {"writer": True}
    assert env.rewards == {"writer": 1.0}


@pytest.mark.parametrize("is_reset", [False, True])
def test_the_same_that_is_asked_again_after_a_second_try_was_answered_is_another_decision(
    is_reset: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    shown, known_gone, answered = (threading.Event() for _ in range(3))
    late = queue.SimpleQueue[threading.Thread]()
    looks = endpoint._Handler._is_connected

    def first_is_late(handler: Any) -> bool:
        if "x-first" in handler.headers and known_gone.is_set():  # in its own thread, once there is a reply
            late.put(threading.current_thread())
            answered.wait()
        elif "x-first" in handler.headers and not looks(handler):  # in the thread of the second try
            known_gone.set()
        return looks(handler)

    def team(base_url: str, row: Any) -> float:
        url = urllib.parse.urlsplit(f"{base_url}/chat/completions")
        body = {"model": "writer", "messages": [{"role": "user", "content": "Who?"}]}
        first = http.client.HTTPConnection(url.hostname or "", url.port)
        first.request("POST", url.path, json.dumps(body), {"x-first": "yes"})
        shown.wait()
        if is_reset:  # so that writing to it fails
            first.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            first.close()
        else:
            first.sock.shutdown(socket.SHUT_WR)
        found.append(ask(base_url, "writer", "Who?"))
        answered.set()
        late.get().join()
        found.append(ask(base_url, "writer", "Who?"))
        first.close()
        return 1.0

    monkeypatch.setattr(endpoint._Handler, "_is_connected", first_is_late)
    found: list[str] = []
    env = program(team, agents=("writer",))()
    env.reset(seed=0)
    shown.set()
    known_gone.wait()
    env.step("I.")
    assert env.terminations == {"writer": False}
    env.step("You.")
    assert found == ["I.", "You."]
    env.close()


def test_a_second_try_after_a_reply_that_its_client_did_not_wait_for_gets_that_reply() -> None:
    shown, gone, given = (threading.Event() for _ in range(3))

    def team(base_url: str, row: Any) -> float:
        url = urllib.parse.urlsplit(base_url)
        body = json.dumps({"model": "writer", "messages": [{"role": "user", "content": "Who?"}]})
        connection = http.client.HTTPConnection(url.hostname or "", url.port)
        connection.request("POST", f"{url.path}/chat/completions", body)
        shown.wait()
        connection.close()
        gone.set()
        given.wait()
        return float(ask(base_url, "writer", "Who?") == "I.")

    env = program(team, agents=("writer",))()
    env.reset(seed=0)
    shown.set()
    gone.wait()
    threading.Timer(0.1, given.set).start()  # once the reply was written
    env.step("I.")
    assert env.terminations == {"writer": True}
    assert env.rewards == {"writer": 1.0}


def test_the_key_of_a_run_is_not_found_in_words_that_begin_as_it_does() -> None:
    def team(base_url: str, row: Any) -> float:
        return float(ask(base_url, "writer", f"Make a {base_url.split('/')[-2][:6]}mark of it.") == "0")

    env = program(team, agents=("writer",))()
    env.reset(seed=0)
    assert "***" not in env.comparable("writer")
    env.close()


def test_connections_that_are_reset_before_they_are_read_leave_their_places_to_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    server, handler = endpoint.endpoint(), endpoint._Handler
    monkeypatch.setattr(server, "without_key", threading.BoundedSemaphore(1))
    reset = iter([True, True, False])

    def setup(self: Any) -> None:
        if next(reset):
            raise ConnectionResetError
        plain(self)

    plain = endpoint.BaseHTTPRequestHandler.setup
    monkeypatch.setattr(handler.__mro__[1], "setup", setup)
    for expected in (b"", b"", b"HTTP/1.1 401"):
        with socket.create_connection(server.server_address, timeout=10) as connection:
            connection.sendall(b"GET /none/v1/models HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
            try:
                answered = connection.recv(100)
            except ConnectionResetError:
                answered = b""
            assert answered.startswith(expected)
            assert bool(answered) == bool(expected)


def test_of_connections_without_a_key_no_more_than_64_are_held_and_the_next_is_answered_503(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(endpoint, "LONGEST_WAIT", 0.05)
    own = endpoint.Endpoint()
    try:
        place = ("127.0.0.1", own.server_port)
        held = [socket.create_connection(place) for _ in range(64)]
        with socket.create_connection(place) as further:
            further.sendall(b"GET / HTTP/1.1\r\n\r\n")
            assert further.recv(100).startswith(b"HTTP/1.1 503 ")
        for each in held:
            each.close()
        with socket.create_connection(place) as later:  # their places are free
            later.sendall(b"GET /s/none/v1/models HTTP/1.1\r\n\r\n")
            assert later.recv(100).startswith(b"HTTP/1.1 401 ")
    finally:
        own.shutdown()
        own.server_close()
