"""Asking a server that speaks JSON; that it is tried again is claimed in `test_openai.py`."""

from __future__ import annotations

import json
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any

import httpx2
import pytest

from pettingllms_envs.agents.server import Server, ServerRefused, ServerUnreachable


class Echo(ThreadingHTTPServer):
    """Answers with what it was sent, and says the number of the connection."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.num_connections = 0


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Echo

    def setup(self) -> None:
        super().setup()
        self.server.num_connections += 1

    def do_POST(self) -> None:
        self.answer(200, self.rfile.read(int(self.headers["Content-Length"])))

    def do_GET(self) -> None:
        status, text = {"/text": (200, "Success"), "/no": (404, '{"error": "no such page"}')}[self.path]
        self.answer(status, text.encode())

    def answer(self, status: int, body: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: Any) -> None: ...


@pytest.fixture
def echo() -> Iterator[Echo]:
    with Echo() as server:
        Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        yield server
        server.shutdown()


def asking(url: str, client: httpx2.Client, **options: Any) -> Server:
    return Server(url=url, client=client, **{"timeout": 5.0, "patience": 5.0, **options})


def test_requests_share_a_connection_and_their_answers_are_json_or_text(echo: Echo) -> None:
    with httpx2.Client() as client:
        server = asking(f"http://127.0.0.1:{echo.server_port}/", client)
        assert [server.post("/echo", {"number": number}) for number in range(5)] == [{"number": n} for n in range(5)]
        assert server.get("/text") == "Success"
    assert echo.num_connections == 1


def test_a_refusal_is_final_and_in_the_servers_words(echo: Echo) -> None:
    with (
        httpx2.Client() as client,
        pytest.raises(ServerRefused, match=r"/no refused \(404\): .*no such page") as failed,
    ):
        asking(f"http://127.0.0.1:{echo.server_port}", client, patience=60.0).get("/no")
    assert (failed.value.status, json.loads(failed.value.message)) == (404, {"error": "no such page"})
    assert echo.num_connections == 1


def test_a_server_that_is_not_there_is_waited_for_with_patience_and_then_given_up_with_advice(echo: Echo) -> None:
    echo.server_close()
    with (
        httpx2.Client() as client,
        pytest.raises(
            ServerUnreachable, match=r"did not answer in \d+ tries and 0.3 s, .*ConnectError.*\. Start it\."
        ),
    ):
        asking(f"http://127.0.0.1:{echo.server_port}", client, patience=0.3, advice="Start it.").get("/text")


def test_pauses_grow_no_longer_than_they_may() -> None:
    sleeps: list[float] = []
    statuses = iter([503] * 6 + [200])
    transport = httpx2.MockTransport(lambda request: httpx2.Response(next(statuses), json="yes"))
    with httpx2.Client(transport=transport) as client:
        server = asking("http://host", client, longest_pause=0.6, sleep=sleeps.append)
        assert server.ask("GET", "/text").tries == 7
    for slept, pause in zip(sleeps, (0.25, 0.5, 0.6, 0.6, 0.6, 0.6), strict=True):
        assert 0.5 * pause <= slept <= 1.5 * pause


def test_a_url_without_a_scheme_is_refused() -> None:
    with (
        httpx2.Client() as client,
        pytest.raises(ValueError, match=r"server 'localhost:8000', expected a URL such as http://"),
    ):
        asking("localhost:8000", client)
