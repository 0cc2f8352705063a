"""A server of OpenAI's protocol with one of the quirks that servers are known to have, and what bench makes of it.

It answers Plan-Path as its oracle, and "Add 3 and 2" with the sum. Requests are numbered by their prompt, from 0, in
the order in which prompts come first.
"""

from __future__ import annotations

import json
import re
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, NamedTuple

from chat_server import ChatServer


LIMIT = 512
"""Most tokens of a reply, as the agents of these tests ask for."""


class Asked(NamedTuple):
    """A request: its body, the right reply, the number of its prompt, and whether that comes for the first time."""

    body: Mapping[str, Any]
    good: str
    number: int
    is_first: bool


Answer = Callable[[Asked], tuple[int, Any]]


class Quirk(NamedTuple):
    """A server's way, and what four prompts with the right reply come to.

    Args:
        answer: Status and body of the answer to a request.
        solved: Episodes that succeed.
        refused: Episodes with an error of the kind `refused`.
        stops: What the error says that stops the run, or an empty text.
        requests: Number of requests of all prompts together; None: not said.
        written: Completion tokens of each reply; None: unknown.
        note: What is said of the server's counts.
        finish: Why each reply ended, as records have it.
        url: What the base URL has behind `/v1`.
        proxy: Whether the environment names a proxy, which does not answer.
    """

    answer: Answer
    solved: int = 4
    refused: int = 0
    stops: str = ""
    requests: int | None = 4
    written: int | None = 5
    note: str | None = None
    finish: str | None = "stop"
    url: str = ""
    proxy: bool = False


def completion(
    content: str | None,
    finish: Any = "stop",
    usage: tuple[int, int, int] | None = (50, 5, 55),
    message: Mapping[str, Any] | None = None,
    **choice: Any,
) -> dict[str, Any]:
    names = ("prompt_tokens", "completion_tokens", "total_tokens")
    said = {"role": "assistant", "content": content, **(message or {})}
    whole = {"index": 0, "message": said, "finish_reason": finish, **choice}
    counts = None if usage is None else dict(zip(names, usage, strict=True))
    return {"object": "chat.completion", "model": "fake", "choices": [whole], "usage": counts}


def always(**changes: Any) -> Answer:
    return lambda asked: (200, completion(asked.good, **changes))


def at_first(answer: Mapping[str, Any], status: int = 200) -> Answer:
    """The first try of every second prompt is answered so, and all else as it should be."""
    return lambda asked: (status, answer) if asked.is_first and not asked.number % 2 else always()(asked)


def of_one_prompt(status: int, answer: Mapping[str, Any], number: int = 0) -> Answer:
    return lambda asked: (status, answer) if asked.number == number else always()(asked)


def where(refuses: Callable[[Mapping[str, Any]], bool], words: str) -> Answer:
    return lambda asked: (400, error(words)) if refuses(asked.body) else always()(asked)


def error(message: str, **more: Any) -> dict[str, Any]:
    return {"error": {"message": message, **more}}


def tool_calls(asked: Asked) -> tuple[int, Any]:
    """As Mistral's servers: a call is asked for again unless its id has nine letters or digits."""
    if "tools" not in asked.body:
        return always()(asked)
    ids = [message["tool_call_id"] for message in asked.body["messages"] if message["role"] == "tool"]
    if not ids:
        call = {"id": "x", "type": "function", "function": {"name": "add", "arguments": "{}"}}
        return 200, completion(None, "tool_calls", message={"tool_calls": [call]})
    if not re.fullmatch("[a-zA-Z0-9]{9}", ids[0]):
        return 400, error("Tool call id must be a-z, A-Z, 0-9, with a length of 9.")
    return always()(asked)


UPSTREAM = {"code": 502, "message": "Upstream provider disconnected"}
NO_MAX_TOKENS = "Unsupported parameter: 'max_tokens' is not supported with this model. Use 'max_completion_tokens'."
FLAGGED = error("Your chosen model requires moderation and your input was flagged.")
TOO_LONG = error("This model's maximum context length is 4096 tokens.", code="context_length_exceeded")
NO_QUOTA = error("You exceeded your current quota.", code="insufficient_quota")
FLAKY = {"requests": 6}

QUIRKS: dict[str, Quirk] = {
    "none": Quirk(always()),
    "bold": Quirk(lambda asked: (200, completion(f"**{asked.good}**"))),
    # A 200 that says that it failed, or that something was refused.
    "abort": Quirk(at_first(completion("", "abort")), **FLAKY),
    "abort with a part": Quirk(at_first(completion("Moves: U", "abort")), **FLAKY),
    "error": Quirk(at_first(completion("", "error", error=UPSTREAM)), **FLAKY),
    "error with a part": Quirk(at_first(completion("Moves:", "error", error=UPSTREAM)), **FLAKY),
    "error in place of choices": Quirk(at_first({"error": UPSTREAM}), **FLAKY),
    "content_filter": Quirk(of_one_prompt(200, completion(None, "content_filter")), solved=3, refused=1),
    "refusal": Quirk(lambda asked: (200, completion(None, message={"refusal": asked.good}))),
    "context length in a 200": Quirk(of_one_prompt(200, TOO_LONG), solved=3, refused=1),
    "quota in a 200": Quirk(lambda asked: (200, NO_QUOTA), stops="insufficient_quota", requests=1),
    # Words for how a reply ended.
    "length": Quirk(lambda asked: (200, completion("Moves: U U", "length")), solved=0, finish="length"),
    "max_tokens": Quirk(lambda asked: (200, completion("Moves: U U", "MAX_TOKENS")), solved=0, finish="length"),
    "an unknown word": Quirk(always(finish="fin"), finish="fin"),
    # Counts of tokens.
    "no usage": Quirk(always(usage=None), written=None, note="not given"),
    "zeros": Quirk(always(usage=(0, 0, 0)), written=None, note="0 tokens for a text"),
    "reasoning beside": Quirk(always(usage=(12, 2, 331)), written=319),
    "too small a total": Quirk(always(usage=(50, 5, 54)), written=None, note="a total below its parts"),
    "beyond the limit": Quirk(always(usage=(50, 513, 563)), written=None, note="more tokens than the limit"),
    # Statuses.
    "403": Quirk(of_one_prompt(403, FLAGGED), solved=3, refused=1),
    "404": Quirk(of_one_prompt(404, error("no endpoint")), solved=3, refused=1, requests=5),  # one to be sure
    "409": Quirk(at_first(error("conflict"), 409), **FLAKY),
    "498": Quirk(at_first(error("capacity exceeded"), 498), **FLAKY),
    "quota": Quirk(lambda asked: (429, NO_QUOTA), stops="insufficient_quota", requests=1),
    # What a request may have.
    "no max_tokens": Quirk(where(lambda body: "max_tokens" in body, NO_MAX_TOKENS), requests=5),
    "no system": Quirk(
        where(lambda body: body["messages"][0]["role"] == "system", "System role not supported"), requests=5
    ),
    "ids of tool calls": Quirk(tool_calls),
    # Where it is.
    "URL of the endpoint": Quirk(always(), url="/chat/completions"),
    "URL with a query": Quirk(always(), url="?api-version=1"),
    "proxy": Quirk(always(), proxy=True),
}


def right_reply(messages: list[dict[str, Any]]) -> str:
    text = "\n".join(str(message["content"]) for message in messages if message["role"] == "user")
    if numbers := re.search(r"Add (\d+) and (\d+)", text):
        return str(sum(map(int, numbers.groups())))
    return ChatServer.best(text)


class QuirkServer(ThreadingHTTPServer):
    """A server with a quirk; `requests` are the bodies of those that it was sent."""

    daemon_threads = True

    def __init__(self, quirk: Quirk) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.quirk = quirk
        self.requests: list[Mapping[str, Any]] = []
        self.tries: Counter[str] = Counter()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}/v1{self.quirk.url}"


class _Handler(BaseHTTPRequestHandler):
    server: QuirkServer
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def log_message(self, *args: Any) -> None: ...

    def do_GET(self) -> None:
        self.send(200, {"data": [{"id": "fake"}]})

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        server = self.server
        query = server.quirk.url if "?" in server.quirk.url else ""
        if self.path != f"/v1/chat/completions{query}":
            return self.send(404, error(f"no {self.path}"))
        prompt = json.dumps([message["content"] for message in body["messages"] if message["role"] == "user"])
        server.requests.append(body)
        server.tries[prompt] += 1
        number = list(server.tries).index(prompt)
        asked = Asked(body, right_reply(body["messages"]), number, server.tries[prompt] == 1)
        return self.send(*server.quirk.answer(asked))

    def send(self, status: int, value: Any) -> None:
        content = json.dumps(value).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)


@contextmanager
def serving(quirk: Quirk) -> Iterator[QuirkServer]:
    """A server with a quirk, for as long as the block lasts."""
    server = QuirkServer(quirk)
    threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
    try:
        yield server
    finally:
        server.shutdown()
        server.server_close()
