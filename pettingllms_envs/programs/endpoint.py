"""The endpoint that programs ask instead of OpenAI's: one for each process, on a free port of this machine.

    POST /s/KEY/v1/chat/completions    plain or streamed
    POST /s/KEY/v1/responses           plain or streamed
    GET  /s/KEY/v1/models              the agents
    POST /s/KEY/v1/reward              {"reward": ...}, in the form that a program returns, for the step that goes on

KEY is a run's, and is never logged. The agent that asks is named by the header `x-agent`, else by the model's name.
A connection has a thread, which waits for the answer, so a run costs no more than the connections of its clients.
"""

from __future__ import annotations

import concurrent.futures.thread  # noqa: F401  # which registers itself for Python's end, before the endpoint does
import hashlib
import json
import os
import socket
import sys
import threading
from collections.abc import Mapping
from contextlib import suppress
from functools import cache
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, ClassVar

from pettingllms_envs.programs.dialects import DIALECTS, SAMPLING, RequestError
from pettingllms_envs.programs.rewards import read_rewards
from pettingllms_envs.programs.session import OVER, Call, Session


HOST = "127.0.0.1"
MOST_BYTES = 8 * 2**20
"""Of a request."""
MOST_WITHOUT_KEY, LONGEST_WAIT = 64, 1.0
"""Connections that have not named a run so far, and seconds that a further one waits for its turn."""
BUSY = b"HTTP/1.1 503 Service Unavailable\r\nContent-Length: 0\r\nRetry-After: 1\r\nConnection: close\r\n\r\n"


class Endpoint(ThreadingHTTPServer):
    """Serves the runs of this process."""

    daemon_threads, request_queue_size = True, 1024
    block_on_close = False

    def __init__(self) -> None:
        super().__init__((HOST, 0), _Handler)
        self.sessions: dict[str, Session] = {}
        self.without_key = threading.BoundedSemaphore(MOST_WITHOUT_KEY)
        for name in ("NO_PROXY", "no_proxy"):  # for clients of this process and of command lines
            given = os.environ.get(name, "")
            if given != "*" and HOST not in given.split(","):
                os.environ[name] = f"{given},{HOST}".lstrip(",")
        threading.Thread(target=self.serve_forever, name="endpoint of programs", daemon=True).start()
        # At its end Python waits for the threads of executors, such as a fan-out's, and they wait for an answer. What
        # is registered last is called first, and functions of `atexit` later than all of these.
        threading._register_atexit(self.close_all)  # type: ignore[attr-defined]

    def open(self, session: Session) -> str:
        """Serve a run. Returns its base URL."""
        self.sessions[session.key] = session
        return f"http://{HOST}:{self.server_port}/s/{session.key}/v1"

    def close_all(self) -> None:
        """End all runs: their calls get an error."""
        for session in list(self.sessions.values()):
            session.close()

    def process_request(self, request: Any, client_address: Any) -> None:
        """Answer a connection on a thread of its own; 503 where too many have not named their run."""
        if self.without_key.acquire(timeout=LONGEST_WAIT):
            super().process_request(request, client_address)
            return
        with suppress(OSError):
            request.settimeout(LONGEST_WAIT)
            request.recv(2**16)  # what is not read would take the answer along when the connection is closed
            request.sendall(BUSY)
        self.shutdown_request(request)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that went away is no error."""
        if not isinstance(sys.exception(), OSError):
            super().handle_error(request, client_address)


def endpoint() -> Endpoint:
    """The endpoint of this process; it is started when it is first needed."""
    return _endpoint_of(os.getpid())


@cache
def _endpoint_of(process: int) -> Endpoint:
    """Of a forked child another: threads are not forked."""
    return Endpoint()


class _Handler(BaseHTTPRequestHandler):
    """Answers the requests of one connection, one after the other."""

    server: Endpoint
    protocol_version = "HTTP/1.1"
    timeout: ClassVar = 60.0  # seconds without a byte of a request
    disable_nagle_algorithm: ClassVar = True  # else a body would wait 40 ms for the acknowledgement of its headers

    has_key = False

    def setup(self) -> None:
        """Prepare the connection, which the client may have reset already."""
        try:
            super().setup()
        except OSError:
            self._count_key()
            raise

    def finish(self) -> None:
        try:
            super().finish()
        finally:
            self._count_key()

    def _count_key(self) -> None:
        """Count the connection no longer among those without a key; once."""
        if not self.has_key:
            self.has_key = True
            self.server.without_key.release()

    def log_message(self, format: str, *args: Any) -> None:
        """Nothing: paths have keys."""

    def do_GET(self) -> None:
        """Answer the request, or say what is wrong with it."""
        session = None
        try:
            session, path = self._session()
            self._answer(session, path)
        except RequestError as refused:
            if session is not None:
                session.num_refused += 1
            error = {"message": str(refused), "type": "invalid_request_error", "param": None, "code": None}
            self._send("application/json", json.dumps({"error": error}).encode("ascii"), refused.status)

    do_POST = do_GET

    def _session(self) -> tuple[Session, str]:
        root, _, key, version, path = (*self.path.partition("?")[0].split("/", 4), "", "", "", "")[:5]
        session = self.server.sessions.get(key)
        if session is None or root or version != "v1":
            self.close_connection = True  # the rest of the request is not read
            raise RequestError("there is no such run, or it is over; use the base URL that this run was given.", 401)
        self._count_key()
        return session, path.rstrip("/")

    def _answer(self, session: Session, path: str) -> None:
        given = session.agents
        if (self.command, path) == ("GET", "models"):
            models = [{"id": name, "object": "model", "created": 0, "owned_by": "pettingllms"} for name in given]
            self._send("application/json", json.dumps({"object": "list", "data": models}).encode("ascii"))
        elif self.command == "GET" or path not in ("reward", *DIALECTS):
            self.close_connection = True
            raise RequestError(f"there is no /{path}; expected one of: {', '.join(DIALECTS)}, models, reward.", 404)
        elif path in DIALECTS:
            self._ask(session, path, self._body())
        else:
            try:
                rewards = read_rewards(self._body().get("reward"), set(given.values()))
            except ValueError as error:
                raise RequestError(str(error)) from None
            session.post(rewards, is_retry=self._is_retry())
            self._send("application/json", b"{}")

    def _ask(self, session: Session, path: str, body: Mapping[str, Any]) -> None:
        name = self.headers.get("x-agent") or str(body.get("model"))
        agent = session.agent_of(name)
        if agent is None:
            known = ", ".join(map(repr, session.agents))
            raise RequestError(
                f"there is no agent {name!r}; expected the model, or the header x-agent, to be {known}.", 404
            )
        try:
            asked = DIALECTS[path].read(body)
            place = (agent, _digest(session.comparable(asked.prompt, asked.limits)))
        except (AttributeError, TypeError, LookupError, ValueError, RecursionError) as error:
            what = f"{type(error).__name__}: {error}"
            raise RequestError(f"the request cannot be read ({what:.200}); expected one as OpenAI's.") from None
        if wanted := {key: body[key] for key in SAMPLING if body.get(key) is not None}:
            session.asked_for.setdefault(agent, {}).update(wanted)
        given = Call(
            agent=agent,
            prompt=asked.prompt,
            limits=asked.limits,
            place=place,
            request=_digest(path, agent, json.dumps(body, sort_keys=True)),
            is_connected=self._is_connected,
        )
        self.connection.settimeout(None)  # `_is_connected` looks and does not wait
        call = session.ask(given, is_retry=self._is_retry())
        call.done.wait()
        if call.reply is None:
            raise RequestError(OVER, 409)
        # Before the client has it, who may ask the same once more at once. To write to one that is gone is no error.
        call.is_delivered = self._is_connected() or call.is_delivered  # to a second try, before this one was woken up
        try:
            self._send(*DIALECTS[path].write(asked, call.reply, call.number))
        except OSError:  # the client is gone; a second try gets the same answer
            call.is_delivered = call.is_delivered and call.is_connected != self._is_connected
            self.close_connection = True

    def _body(self) -> dict[str, Any]:
        length = self.headers.get("content-length", "")
        if not length.isdecimal() or len(length) > len(str(MOST_BYTES)) or int(length) > MOST_BYTES:
            self.close_connection = True
            what = f"a body of {length:.20} bytes" if length.isdecimal() else "no content-length"
            raise RequestError(f"the request has {what}; expected at most {MOST_BYTES} bytes, with their number.")
        content = self.rfile.read(int(length))
        try:
            body = json.loads(content)
        except (ValueError, RecursionError):
            body = None
        if not isinstance(body, dict):
            raise RequestError("the request's body is no JSON object; expected one.")
        return body

    def _is_retry(self) -> bool:
        return bool(self.headers.get("x-stainless-retry-count", "0") != "0")

    def _is_connected(self) -> bool:
        try:
            content: bytes = self.connection.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT)
        except BlockingIOError:
            return True
        except OSError:
            return False
        return content != b""

    def _send(self, kind: str, content: bytes, status: int = 200) -> None:
        self.send_response_only(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(content)))
        if status != 200:
            self.send_header("x-should-retry", "false")  # OpenAI's clients would ask again after a 409
        if self.close_connection:
            self.send_header("Connection", "close")
        self.end_headers()
        self.wfile.write(content)
        self.connection.settimeout(self.timeout)  # for the next request


def _digest(*texts: str) -> str:
    return hashlib.sha256("\0".join(texts).encode("utf-8", "surrogatepass")).hexdigest()
