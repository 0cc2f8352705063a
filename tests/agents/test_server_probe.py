"""Whether a server is there, before any prompt is sent."""

from __future__ import annotations

import logging
from typing import Any

import httpx2
import pytest

from pettingllms_envs.agents.base import AgentFailed, AgentRefused, Request
from pettingllms_envs.agents.openai import ChatApi, Endpoint
from pettingllms_envs.agents.server_probe import FirstContact


SERVED = {"object": "list", "data": [{"id": "big"}, {"id": "small:latest"}]}
ASKED = Request(
    env=None,
    agent="a_0",
    messages=({"role": "user", "content": "Hi."},),
    seed=7,
    instance=0,
    sample=0,
    step=0,
)


class Clock:
    """Time that passes by sleeping alone."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds


def contact(*answers: Any, seconds: float = 0.0, **fields: Any) -> tuple[FirstContact, list[httpx2.Request], Clock]:
    """A contact whose requests get these answers, the last for good; the requests, and the clock."""
    seen: list[httpx2.Request] = []

    def handle(request: httpx2.Request) -> httpx2.Response:
        seen.append(request)
        answer = answers[min(len(seen), len(answers)) - 1]
        if isinstance(answer, Exception):
            raise answer
        return answer

    client, clock = httpx2.Client(transport=httpx2.MockTransport(handle)), Clock()
    endpoint = Endpoint(base_url="http://host/v1/", model="big", **fields)
    return FirstContact(endpoint, client, seconds, sleep=clock.sleep, clock=clock), seen, clock


def test_the_list_of_models_is_asked_for_once() -> None:
    made, seen, _ = contact(httpx2.Response(200, json=SERVED))
    for _ in range(3):
        made.make("big")
    assert [(request.method, str(request.url)) for request in seen] == [("GET", "http://host/v1/models")]
    assert made.models == ("big", "small:latest")
    assert [made.lists(name) for name in ("big", "small", "tiny")] == [True, True, False]


@pytest.mark.parametrize(
    "answer",
    [
        httpx2.Response(404, text="no such page"),
        httpx2.Response(405),
        httpx2.Response(501),
        httpx2.Response(401, text="no key"),
        httpx2.Response(500),
        httpx2.Response(200, text="<html>"),
        httpx2.Response(200, json=[1]),
        httpx2.Response(200, json={"data": "none"}),
        httpx2.Response(200, json={"data": [{"name": "big"}, 7]}),
        httpx2.Response(200, text="[" * 200_000),
    ],
)
def test_any_answer_is_one_also_of_a_server_that_lists_nothing(
    answer: httpx2.Response, caplog: pytest.LogCaptureFixture
) -> None:
    made, seen, _ = contact(answer)
    made.make("big")
    assert (len(seen), made.models, made.served(), caplog.records) == (1, (), "", [])


@pytest.mark.parametrize(
    ("trouble", "words"),
    [
        (httpx2.ConnectError("refused"), "ConnectError: refused"),
        (httpx2.ReadTimeout("slow"), "ReadTimeout: slow"),
        (httpx2.Response(503, text="loading"), "status 503: loading"),
        (
            httpx2.Response(502, html="<html>\n<title>502 Bad Gateway</title>\n<p>nginx</p></html>"),
            "status 502: a page of text/html: '502 Bad Gateway'",
        ),
    ],
)
def test_a_server_that_does_not_answer_is_given_up_after_5_s_for_all_who_ask(trouble: Any, words: str) -> None:
    made, seen, clock = contact(trouble)
    for _ in range(2):
        with pytest.raises(AgentRefused) as refused:
            made.make("big")
    assert str(refused.value) == (
        f"http://host/v1/models did not answer within 5 s ({words}); expected a server at http://host/v1. Check "
        "--base-url and that it runs; for one that is still starting, give the seconds to wait: --patience 600."
    )
    assert (len(seen), clock.now) == (5, 3.75)  # 0.25 + 0.5 + 1 + 2 s, and 2 more would be too long


def test_a_server_that_is_starting_is_waited_for_if_asked_to() -> None:
    made, seen, clock = contact(*[httpx2.ConnectError("refused")] * 20, httpx2.Response(200, json=SERVED), seconds=60)
    made.make("big")
    assert (len(seen), clock.now) == (21, 0.25 + 0.5 + 1 + 17 * 2)


def test_a_model_that_is_not_listed_is_told_and_played(caplog: pytest.LogCaptureFixture) -> None:
    made, _, _ = contact(httpx2.Response(200, json=SERVED))
    with caplog.at_level(logging.WARNING):
        made.make("bgi")
    assert [record.getMessage() for record in caplog.records] == [
        "http://host/v1/models does not list the model 'bgi'. It serves: big, small:latest."
    ]


def test_the_key_is_sent_and_never_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOST_KEY", "sk-secret")
    made, seen, _ = contact(httpx2.Response(503, text="not for sk-secret"), key_env="HOST_KEY")
    with pytest.raises(AgentRefused, match=r"not for \*\*\*\)"):
        made.make("big")
    assert seen[0].headers["Authorization"] == "Bearer sk-secret"


@pytest.mark.parametrize(("status", "error"), [(404, AgentRefused), (400, AgentFailed)])
@pytest.mark.parametrize(("model", "says"), [("bgi", True), ("big", False)])
def test_a_refusal_of_a_model_that_is_not_listed_names_those_that_are(
    status: int, error: type[Exception], model: str, says: bool
) -> None:
    made, _, _ = contact(httpx2.Response(200, json=SERVED))
    made.make("big")
    client = httpx2.Client(transport=httpx2.MockTransport(lambda request: httpx2.Response(status, text="no")))
    agent = ChatApi(Endpoint(base_url="http://host/v1", model=model), client, contact=made)
    with pytest.raises(error) as refused:
        agent.reply(ASKED)
    assert str(refused.value).endswith(" It serves: big, small:latest.") == says
