"""Asking a server: what is tried again, what is not, what is sent."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import httpx2
import pytest

from chat_server import ChatServer, Faults, serving
from pettingllms_envs.agents.base import AgentFailed, AgentRefused, Request
from pettingllms_envs.agents.openai import ChatApi, Endpoint, endpoint_of
from pettingllms_envs.agents.spec import AgentSpec, parse
from pettingllms_envs.server_errors import one_line


MAZE = "Turn 1 of 4.\n@ . .\n# # G\n. . ."


@pytest.fixture
def client() -> Iterator[httpx2.Client]:
    with httpx2.Client() as client:
        yield client


def asked(text: str = MAZE, seed: int = 7) -> Request:
    messages = ({"role": "system", "content": "Walk."}, {"role": "user", "content": text})
    return Request(env=None, agent="planner_0", messages=messages, seed=seed, instance=0, sample=0, step=0)


def answers(*responses: Any) -> tuple[httpx2.Client, list[httpx2.Request]]:
    """A client whose requests get these, one after the other, the last for good; and the requests."""
    seen: list[httpx2.Request] = []

    def handle(request: httpx2.Request) -> httpx2.Response:
        seen.append(request)
        response = responses[min(len(seen), len(responses)) - 1]
        if isinstance(response, Exception):
            raise response
        return response

    return httpx2.Client(transport=httpx2.MockTransport(handle)), seen


def fine(text: str | None = "Moves: R R D") -> httpx2.Response:
    choice = {"message": {"content": text, "reasoning_content": "Hm."}, "finish_reason": "stop"}
    usage = {"prompt_tokens": 12, "completion_tokens": 5}
    return httpx2.Response(200, json={"model": "m-2", "choices": [choice], "usage": usage})


def api(client: httpx2.Client, sleeps: list[float] | None = None, **settings: Any) -> ChatApi:
    endpoint = Endpoint(**{"base_url": "http://host/v1", "model": "m", **settings})
    return ChatApi(endpoint, client, sleep=(sleeps if sleeps is not None else []).append)


def test_messages_seed_and_sampling_are_sent_and_the_reply_is_read() -> None:
    client, seen = answers(fine())
    reply = api(client, sampling={"temperature": 0.5, "stop": ["</a>"]}, extra={"n": 1}).reply(asked())
    assert str(seen[0].url) == "http://host/v1/chat/completions"
    assert httpx2.Response(200, content=seen[0].content).json() == {
        "model": "m",
        "messages": [{"role": "system", "content": "Walk."}, {"role": "user", "content": MAZE}],
        "temperature": 0.5,
        "stop": ["</a>"],
        "seed": 7,
        "n": 1,
    }
    assert (reply.text, reply.reasoning, reply.finish, reply.model) == ("Moves: R R D", "Hm.", "stop", "m-2")
    assert (reply.prompt_tokens, reply.completion_tokens, reply.tries) == (12, 5, 1)


@pytest.mark.parametrize(
    ("more", "num_tool_calls"),
    [
        ({}, 0),
        ({"tool_calls": None}, 0),
        ({"tool_calls": []}, 0),
        ({"tool_calls": [{"function": {"name": "move", "arguments": "{}"}}] * 2}, 2),
        ({"function_call": {"name": "move", "arguments": "{}"}}, 1),  # as servers had it before
    ],
)
def test_calls_of_tools_in_place_of_text_are_counted(more: dict[str, Any], num_tool_calls: int) -> None:
    message = {"content": None, **more}
    answer = httpx2.Response(200, json={"choices": [{"message": message, "finish_reason": "tool_calls"}]})
    reply = api(answers(answer)[0]).reply(asked())
    assert (reply.text, reply.num_tool_calls) == ("", num_tool_calls)


def test_a_model_that_says_nothing_has_replied() -> None:
    assert api(answers(fine(None))[0]).reply(asked()).text == ""


def test_a_model_that_used_all_its_tokens_to_think_has_replied_nothing() -> None:
    message = {"role": "assistant", "reasoning_content": "Hm, hm."}
    choice = {"message": message, "finish_reason": "length"}
    reply = api(answers(httpx2.Response(200, json={"choices": [choice]}))[0]).reply(asked())
    assert (reply.text, reply.reasoning, reply.finish, reply.tries) == ("", "Hm, hm.", "length", 1)


@pytest.mark.parametrize(
    ("said", "count"),
    [
        ("12", 12),
        ("12.0", 12),
        ("0", None),  # a prompt has some
        ('"12"', None),
        ("-1", None),
        ("12.5", None),
        ("NaN", None),
        ("1e999", None),
        ("true", None),
        ("[12]", None),
        ("null", None),
    ],
)
def test_a_count_of_tokens_that_is_none_is_not_known(said: str, count: int | None) -> None:
    text = '{"choices": [{"message": {"content": "U"}}], "usage": {"prompt_tokens": ' + said + "}}"
    reply = api(answers(httpx2.Response(200, text=text))[0]).reply(asked())
    assert (reply.text, reply.prompt_tokens, reply.completion_tokens) == ("U", count, None)
    assert type(reply.prompt_tokens) is type(count)


@pytest.mark.parametrize("usage", [[1], "12", 12])
def test_a_usage_that_is_none_costs_no_reply(usage: Any) -> None:
    response = httpx2.Response(200, json={"choices": [{"message": {"content": "U"}}], "usage": usage})
    reply = api(answers(response)[0]).reply(asked())
    assert (reply.text, reply.prompt_tokens) == ("U", None)


def test_what_a_server_says_besides_is_taken_where_it_is_text() -> None:
    choice = {"message": {"content": "U", "reasoning": {"a": 1}}, "finish_reason": ["eos"]}
    reply = api(answers(httpx2.Response(200, json={"model": ["m"], "choices": [choice]}))[0]).reply(asked())
    assert (reply.text, reply.reasoning, reply.finish, reply.model) == ("U", None, None, None)


def test_a_reply_in_parts_is_their_text() -> None:
    parts = [
        {"type": "thinking", "thinking": "Hm."},
        {"type": "text", "text": "Moves: "},
        {"type": "text", "text": "U"},
    ]
    response = httpx2.Response(200, json={"choices": [{"message": {"content": parts}}]})
    assert api(answers(response)[0]).reply(asked()).text == "Moves: U"


def test_a_server_that_wants_no_seed_gets_none() -> None:
    client, seen = answers(fine())
    api(client, send_seed=False).reply(asked())
    assert b"seed" not in seen[0].content


@pytest.mark.parametrize(
    "trouble",
    [
        httpx2.Response(500, text="oh no"),
        httpx2.Response(429, text="not so fast"),
        httpx2.Response(408),
        httpx2.Response(200, text='{"choices": [{"mess'),
        httpx2.Response(200, json={"error": "upstream"}),
        httpx2.Response(200, json={"choices": []}),
        httpx2.ConnectError("refused"),
        httpx2.ReadTimeout("slow"),
        httpx2.RemoteProtocolError("reset"),
        httpx2.DecodingError("not gzip"),
        httpx2.TooManyRedirects("round and round"),
        httpx2.Response(200, text="[" * 200_000),
        httpx2.Response(200, text="9" * 5_000),
        httpx2.Response(200, json={"choices": [{"message": None}]}),
        httpx2.Response(200, json={"choices": [{"message": {"content": 7}}]}),
        httpx2.Response(200, json={"choices": [{"message": {"content": [{"type": "text", "text": 7}]}}]}),
    ],
)
def test_what_may_pass_is_tried_again_after_pauses_that_grow(trouble: Any) -> None:
    sleeps: list[float] = []
    client, seen = answers(trouble, trouble, trouble, fine())
    assert api(client, sleeps).reply(asked()).tries == len(seen) == 4
    # 0.25, 0.5 and 1 s, each times 0.5 to 1.5.
    assert all(0.5 * pause <= slept <= 1.5 * pause for slept, pause in zip(sleeps, (0.25, 0.5, 1.0), strict=True))
    assert {request.content for request in seen} == {seen[0].content}


PAGE = (
    "<!DOCTYPE html>\n<html><head><title>502 Bad\n Gateway</title><style>h1 {color: red}</style></head>\n<body>"
    f"<h1>Bad &amp; Gateway</h1>{'<p>nginx</p>' * 5000}</body></html>"
)


@pytest.mark.parametrize(
    ("page", "content_type", "line"),
    [
        (PAGE, "text/html; charset=utf-8", "a page of text/html: '502 Bad Gateway'"),
        (PAGE, None, "a page of text/html: '502 Bad Gateway'"),
        ("<html><body><p>No such&nbsp;page</p><script>x()</script>", None, "a page of text/html: 'No such page'"),
        (f"<html>{'a ' * 500}</html>", None, f"a page of text/html: '{'a ' * 100}'"),
        ('{"error":\n "no <b> here"}', "application/json", '{"error": "no <b> here"}'),
        ("x" * 1000, None, "x" * 300),
        ("", "text/html", "a page of text/html: ''"),
    ],
)
def test_an_error_shows_one_short_line_of_an_html_page(page: str, content_type: str | None, line: str) -> None:
    assert one_line(page, content_type) == line


@pytest.mark.parametrize("status", [404, 400, 502, 200])
def test_the_page_of_a_proxy_is_named_by_its_title(status: int) -> None:
    client, _ = answers(httpx2.Response(status, html=PAGE))
    with pytest.raises((AgentFailed, AgentRefused)) as failed:
        api(client, patience=0.01).reply(asked())
    assert "a page of text/html: '502 Bad Gateway'" in str(failed.value)
    assert "nginx" not in str(failed.value)
    assert "\n" not in str(failed.value)


def test_a_server_that_stays_away_is_told_of_once_in_a_while(caplog: pytest.LogCaptureFixture) -> None:
    trouble = httpx2.ConnectError("refused")
    client, _ = answers(*[trouble] * 8, fine())
    agent = api(client)
    agent.reply(asked())
    assert [record.message for record in caplog.records] == [
        "http://host/v1/chat/completions does not answer: ConnectError: refused. It is tried again."
    ]
    caplog.clear()
    api(answers(*[trouble] * 3, fine())[0]).reply(asked())
    assert caplog.records == []


def test_pauses_follow_from_the_seed() -> None:
    found = []
    for seed in (7, 7, 8):
        sleeps: list[float] = []
        api(answers(httpx2.Response(500), fine())[0], sleeps).reply(asked(seed=seed))
        found.append(sleeps)
    assert found[0] == found[1] != found[2]


@pytest.mark.parametrize(("said", "least"), [("7", 7.0), ("7.5", 7.5), ("soon", 0.0), ("-3", 0.0)])
def test_no_sooner_than_the_server_asks(said: str, least: float) -> None:
    sleeps: list[float] = []
    api(answers(httpx2.Response(429, headers={"Retry-After": said}), fine())[0], sleeps).reply(asked())
    assert sleeps[0] == least if least else sleeps[0] < 0.5


def test_a_date_to_come_back_at_is_understood() -> None:
    sleeps: list[float] = []
    date = time.strftime("%a, %d %b %Y %H:%M:%S GMT", time.gmtime(time.time() + 20))
    api(answers(httpx2.Response(503, headers={"Retry-After": date}), fine())[0], sleeps).reply(asked())
    assert 15 < sleeps[0] <= 20


def test_patience_ends_and_says_what_the_last_trouble_was() -> None:
    client, seen = answers(httpx2.Response(503, headers={"Retry-After": "3600"}, text="resting"))
    with pytest.raises(AgentFailed, match=r"did not answer in 1 tries and 60 s, the last time with status 503: resti"):
        api(client, patience=60.0).reply(asked())
    assert len(seen) == 1


class Trickle(httpx2.SyncByteStream):
    """An answer that never ends: a space at a time, as some servers send to keep a connection."""

    def __init__(self) -> None:
        self.sent, self.closed = 0, False

    def __iter__(self) -> Iterator[bytes]:
        while self.sent < 1_000:
            self.sent += 1
            time.sleep(0.01)
            yield b" "

    def close(self) -> None:
        self.closed = True


def test_an_answer_that_trickles_is_given_up_when_its_time_is_over() -> None:
    trickle = Trickle()
    client, seen = answers(httpx2.Response(200, stream=trickle), fine())
    reply = api(client, timeout=0.1).reply(asked())
    assert (reply.text, reply.tries, len(seen)) == ("Moves: R R D", 2, 2)
    assert trickle.closed
    assert 1 < trickle.sent < 50


def test_an_answer_without_an_end_does_not_fill_the_memory() -> None:
    class Endless(httpx2.SyncByteStream):
        sent = 0

        def __iter__(self) -> Iterator[bytes]:
            while self.sent < 1_000:
                self.sent += 1
                yield b"x" * 2**20

    endless = Endless()
    with pytest.raises(AgentFailed, match="an answer of more than 64 MiB"):
        api(answers(httpx2.Response(200, stream=endless))[0], patience=0.01).reply(asked())
    assert endless.sent < 80


def test_a_prompt_that_is_refused_is_no_reason_to_try_again() -> None:
    client, seen = answers(httpx2.Response(400, text="too long"))
    with pytest.raises(AgentFailed, match=r"refused \(400\): too long") as failed:
        api(client).reply(asked())
    assert (failed.value.kind, len(seen)) == ("refused", 1)


@pytest.mark.parametrize("status", [401, 403, 404])
def test_a_wrong_key_or_model_is_hopeless(status: int) -> None:
    with pytest.raises(
        AgentRefused, match=rf"refused \({status}\) the model 'm': no. Check the base URL, the model and the key"
    ):
        api(answers(httpx2.Response(status, text="no"))[0]).reply(asked())


@pytest.mark.parametrize("status", [400, 401, 500])
def test_the_key_is_sent_and_never_shown(status: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOST_KEY", "sk-secret")
    client, seen = answers(httpx2.Response(status, text="bad key sk-secret"))
    with pytest.raises((AgentFailed, AgentRefused)) as failed:
        api(client, key_env="HOST_KEY", patience=0.1).reply(asked())
    assert seen[0].headers["Authorization"] == "Bearer sk-secret"
    assert "sk-secret" not in str(failed.value)
    assert "bad key ***" in str(failed.value)


@pytest.mark.parametrize("key", ["sk-secret\n", " sk-secret ", "sk-secret\r\n"])
def test_space_around_a_key_is_no_part_of_it(key: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOST_KEY", key)
    client, seen = answers(fine())
    api(client, key_env="HOST_KEY").reply(asked())
    assert seen[0].headers["Authorization"] == "Bearer sk-secret"


@pytest.mark.parametrize("key", ["sk-sec\nret", "sk-s\u00e9cret", "sk-sec\x01ret"])
def test_a_key_that_no_header_can_hold_is_refused_and_not_shown(key: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOST_KEY", key)
    with pytest.raises(ValueError, match="HOST_KEY has characters that no key has") as refused:
        Endpoint(base_url="http://host/v1", model="m", key_env="HOST_KEY")
    assert "sk-" not in str(refused.value)


@pytest.mark.parametrize(
    "url", ["https://me:sk-secret@host/v1", "https://sk-secret@host/v1", "https://host/v1?key=sk-secret"]
)
def test_a_url_with_a_password_is_refused_and_not_shown(url: str) -> None:
    with pytest.raises(ValueError, match=r"has a user name, a password or a key; .*--key-env MY_KEY") as refused:
        Endpoint(base_url=url, model="m")
    assert "sk-secret" not in str(refused.value)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("api", r"has no model \(--model MODEL\)"),
        ("api:m", r"has no server \(--base-url http"),
        ("api:m,base_url=localhost", r"base_url is 'localhost'; expected a URL such as http://"),
        ("api:m,base_url=http://h,key_env=sk-1", r"key_env is not shown here, since it may be the key itself"),
        (
            "api:m,base_url=http://h,key_env=NO_SUCH",
            r"key_env is 'NO_SUCH', but there is no such environment variable",
        ),
        ("api:m,base_url=http://h,temprature=1", r"got the option 'temprature'; .* Did you mean 'temperature'\?"),
        ("api:m,base_url=http://h,temperature=nan", r"temperature is 'nan'; expected a number"),
        ("api:m,base_url=http://h,top_p=inf", r"top_p is 'inf'; expected a number"),
        ("api:m,base_url=http://h,timeout=0", r"timeout is 0.0; expected seconds, more than 0"),
        ("api:m,base_url=http://h,send_seed=perhaps", r"send_seed is 'perhaps'; expected true or false"),
    ],
)
def test_an_endpoint_that_cannot_be_is_refused(text: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        endpoint_of(parse(text)[1])


def test_a_real_server_with_faults_answers_every_prompt_as_without(client: httpx2.Client) -> None:
    def replies(server: ChatServer) -> list[str]:
        agent = ChatApi(Endpoint(base_url=server.url, model="tiny"), client, sleep=lambda seconds: None)
        return [agent.reply(asked(seed=seed)).text for seed in range(20)]

    with serving() as clean:
        expected = replies(clean)
    with serving(faults=Faults(errors=0.1, resets=0.1, too_many=0.1, halves=0.1)) as faulty:
        assert replies(faulty) == expected
    assert set(faulty.fates) == {"answered", "errors", "resets", "too_many", "halves"}
    assert len(set(expected)) > 1


def test_the_spec_of_an_endpoint_has_what_the_command_line_gave() -> None:
    spec = AgentSpec("api", "m", {"base_url": "http://h/v1", "temperature": 0.5, "timeout": 3.0, "extra": {"a": 1}})
    endpoint = endpoint_of(spec)
    assert (endpoint.timeout, endpoint.patience, endpoint.extra) == (3.0, 1200.0, {"a": 1})
    assert endpoint.sampling == {"temperature": 0.5}
