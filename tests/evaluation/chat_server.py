"""An OpenAI-compatible server on this machine that plays Plan-Path, slowly and with faults if asked to.

What it answers follows from the messages and the seed alone. Whether a request fails follows from them, too, and from
how often they came: so every prompt's fate is the same whatever the order of the requests.
"""

from __future__ import annotations

import hashlib
import json
import random
import re
import socket
import struct
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from pettingllms_envs.environments.plan_path.rules import PlanPath
from pettingllms_envs.environments.plan_path.text import read_board


@dataclass
class Faults:
    """Shares of the requests that fail: by status 500, by a connection that is reset, by 429, by half an answer."""

    errors: float = 0.0
    resets: float = 0.0
    too_many: float = 0.0
    halves: float = 0.0


@dataclass
class ChatServer:
    latency: float = 0.0
    skill: float = 0.6
    faults: Faults = field(default_factory=Faults)
    key: str = ""
    model: str = "tiny"
    others: dict[str, float] = field(default_factory=dict)
    """The skill of further models, whose replies are others than those of `model`."""

    leaves: dict[str, int] = field(default_factory=dict)
    """After so many requests a model is answered by status 404."""

    refuses: str = ""
    """A prompt with this in it is answered by status 400."""

    lists: bool = True
    """Whether there is `GET /models`; else that is a 404."""

    holds_after: int | None = None
    """After so many requests every further one waits until `let_go()`: whoever asks can be ended at a known point."""

    loading: int = 0
    """So many requests for the list are answered by status 503 first, as by a server that loads its model."""

    bodies: list[dict[str, Any]] = field(default_factory=list)
    fates: Counter[str] = field(default_factory=Counter)
    in_flight: int = 0
    most_in_flight: int = 0

    url: str = ""
    _open: threading.Event = field(default_factory=threading.Event)
    _times: Counter[str] = field(default_factory=Counter)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def let_go(self) -> None:
        """Answer what was held, and hold nothing from now on."""
        self.holds_after = None
        self._open.set()

    def fate(self, body: dict[str, Any]) -> str:
        name = hashlib.sha256(json.dumps(body, sort_keys=True).encode()).hexdigest()
        with self._lock:
            self._times[name] += 1
            draw = random.Random(f"{name} {self._times[name]}").random()
            faults = self.faults
            for fate in ("errors", "resets", "too_many", "halves"):
                share = getattr(faults, fate)
                if draw < share:
                    self.fates[fate] += 1
                    return fate
                draw -= share
            self.fates["answered"] += 1
        return "answered"

    def answer(self, body: dict[str, Any]) -> dict[str, Any]:
        text = body["messages"][-1]["content"]
        other = body["model"] if body["model"] in self.others else ""
        rng = random.Random(f"{body.get('seed')} {body['messages']}{other}")
        reply = (
            self.best(text)
            if rng.random() < self.others.get(other, self.skill)
            else rng.choice(["Moves: U", "Moves: L L D", "Hm.", ""])
        )
        words = {"prompt_tokens": len(text.split()), "completion_tokens": len(reply.split()) + 1}
        choice = {"index": 0, "message": {"role": "assistant", "content": reply}, "finish_reason": "stop"}
        return {"model": self.model, "choices": [choice], "usage": words}

    @staticmethod
    def best(text: str) -> str:
        rows = [line for line in text.splitlines() if re.fullmatch(r"[@G#.]( [@G#.])+", line)]
        if "@" not in "".join(rows) or "G" not in "".join(rows):  # another game
            return "Moves: U R"
        task = PlanPath(size=len(rows))
        return task.write(task.oracle(read_board("\n".join(rows), len(rows))))


@contextmanager
def serving(**settings: Any) -> Iterator[ChatServer]:
    """A server, for as long as the block lasts."""
    server = ChatServer(**settings)

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        disable_nagle_algorithm = True  # else an answer in two parts waits 40 ms for the first to be acknowledged

        def log_message(self, *args: Any) -> None:
            pass

        def do_GET(self) -> None:
            if server.loading > 0:
                server.loading -= 1
                return self.send(503, "loading")
            if not server.lists or not self.path.endswith("/models"):
                return self.send(404, "no such page")
            return self.send(200, json.dumps({"object": "list", "data": [{"id": server.model, "object": "model"}]}))

        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            with server._lock:
                server.bodies.append(body)
                server.in_flight += 1
                server.most_in_flight = max(server.most_in_flight, server.in_flight)
                is_held = server.holds_after is not None and len(server.bodies) > server.holds_after
            try:
                if is_held:
                    server._open.wait(300)
                self.serve(body)
            finally:
                with server._lock:
                    server.in_flight -= 1

        def serve(self, body: dict[str, Any]) -> None:
            if server.key and self.headers.get("Authorization") != f"Bearer {server.key}":
                return self.send(401, json.dumps({"error": f"no such key: {self.headers.get('Authorization')}"}))
            with server._lock:
                known = body["model"] in (server.model, *server.others) and server.leaves.get(body["model"], 1) > 0
                if body["model"] in server.leaves:
                    server.leaves[body["model"]] -= 1
            if not known:
                return self.send(404, json.dumps({"error": f"no model {body['model']}"}))
            if server.refuses and server.refuses in body["messages"][-1]["content"]:
                return self.send(400, json.dumps({"error": "the prompt is too long"}))
            fate = server.fate(body)
            time.sleep(server.latency)
            if fate == "resets":
                self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                self.close_connection = True
                self.connection.close()
                return None
            if fate == "errors":
                return self.send(500, "oh no")
            if fate == "too_many":
                return self.send(429, "not so fast", ("Retry-After", "0.2"))
            answer = json.dumps(server.answer(body))
            return self.send(200, answer[: len(answer) // 2] if fate == "halves" else answer)

        def send(self, status: int, text: str, *headers: tuple[str, str]) -> None:
            data = text.encode()
            self.send_response(status)
            for name, value in (*headers, ("Content-Type", "application/json"), ("Content-Length", str(len(data)))):
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(data)

    class Server(ThreadingHTTPServer):
        daemon_threads = True
        request_queue_size = 512

        def handle_error(self, *args: Any) -> None:
            pass

    http = Server(("127.0.0.1", 0), Handler)
    server.url = f"http://127.0.0.1:{http.server_address[1]}/v1"
    threading.Thread(target=http.serve_forever, args=(0.05,), daemon=True).start()
    try:
        yield server
    finally:
        http.shutdown()
        http.server_close()
