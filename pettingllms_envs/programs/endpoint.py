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
from functools import cache
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, ClassVar

from pettingllms_envs.programs.dialects import DIALECTS, SAMPLING, Answered, Asked, BadRequest, Dialect
from pettingllms_envs.programs.rewards import read_rewards
from pettingllms_envs.programs.session import Call, Session, SessionClosed


MOST_BYTES = 8 * 2**20
"""Of a request."""

UNKNOWN = "there is no such run, or it is over; use the base URL that this run was given."
OVER = "the episode is over: its reward was given, or it was ended. Make no call afterwards."


class Endpoint(ThreadingHTTPServer):
    """Serves the runs of this process."""

    daemon_threads, request_queue_size = True, 1024
    block_on_close = False

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.sessions: dict[str, Session] = {}
        threading.Thread(target=self.serve_forever, name="endpoint of programs", daemon=True).start()
        # At its end Python waits for the threads of executors, such as a fan-out's, and they wait for an answer. What
        # is registered last is called first, and functions of `atexit` later than all of these.
        threading._register_atexit(self.close_all)  # type: ignore[attr-defined]

    def open(self, session: Session) -> str:
        """Serve a run. Returns its base URL."""
        self.sessions[session.key] = session
        return f"http://127.0.0.1:{self.server_port}/s/{session.key}/v1"

    def forget(self, session: Session) -> None:
        """The run's key is no longer known."""
        self.sessions.pop(session.key, None)

    def close_all(self) -> None:
        """End all runs: their calls get an error."""
        for session in list(self.sessions.values()):
            session.close()

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


class _Refused(Exception):
    """A request that is answered with an error."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


class _Handler(BaseHTTPRequestHandler):
    """Answers the requests of one connection, one after the other."""

    server: Endpoint
    protocol_version = "HTTP/1.1"
    # Headers and body in one packet: of two, the second would wait 40 ms for a delayed acknowledgement.
    wbufsize: ClassVar = -1
    disable_nagle_algorithm: ClassVar = True

    def log_message(self, format: str, *args: Any) -> None:
        """Nothing: paths have keys."""

    def do_GET(self) -> None:
        """Answer with the models, which are the agents."""
        self._answered(self._models)

    def do_POST(self) -> None:
        """Answer a request of an agent, or take a reward."""
        self._answered(self._post)

    def _answered(self, respond: Any) -> None:
        session = None
        try:
            session, path = self._session()
            respond(session, path)
        except _Refused as refused:
            if session is not None:
                session.num_refused += 1
            error = {"message": str(refused), "type": "invalid_request_error", "param": None, "code": None}
            self._send("application/json", json.dumps({"error": error}).encode("ascii"), refused.status)

    def _session(self) -> tuple[Session, str]:
        root, _, key, version, path = (*self.path.partition("?")[0].split("/", 4), "", "", "", "")[:5]
        session = self.server.sessions.get(key)
        if session is None or root or version != "v1":
            self.close_connection = True  # the rest of the request is not read
            raise _Refused(401, UNKNOWN)
        return session, path.rstrip("/")

    def _models(self, session: Session, path: str) -> None:
        if path != "models":
            raise _Refused(404, f"there is no /{path} to get; expected /models.")
        names = dict.fromkeys([*session.agents, *session.agents.values()])
        models = [{"id": name, "object": "model", "created": 0, "owned_by": "pettingllms"} for name in names]
        self._send("application/json", json.dumps({"object": "list", "data": models}).encode("ascii"))

    def _post(self, session: Session, path: str) -> None:
        body = self._body()
        try:
            if path == "reward":
                try:
                    session.post(read_rewards(body.get("reward"), set(session.agents.values())))
                except ValueError as error:
                    raise _Refused(400, str(error)) from None
                return self._send("application/json", b"{}")
            dialect = DIALECTS.get(path)
            if dialect is None:
                raise _Refused(404, f"there is no /{path}; expected one of: {', '.join(DIALECTS)}, models, reward.")
            self._ask(session, path, dialect, body)
        except SessionClosed:
            raise _Refused(409, OVER) from None
        except BadRequest as error:
            raise _Refused(400, str(error)) from None

    def _ask(self, session: Session, path: str, dialect: Dialect, body: Mapping[str, Any]) -> None:
        model = str(body.get("model"))
        name = self.headers.get("x-agent") or model
        agent = session.agent_of(name)
        if agent is None:
            known = ", ".join(map(repr, dict.fromkeys([*session.agents, *session.agents.values()])))
            raise _Refused(
                404, f"there is no agent {name!r}; expected the model, or the header x-agent, to be {known}."
            )
        asked = dialect.read(body)
        if wanted := {key: body[key] for key in SAMPLING if body.get(key) is not None}:
            session.asked_for.setdefault(agent, {}).update(wanted)
        given = Call(
            agent=agent,
            prompt=asked.prompt,
            limits=asked.limits,
            place=(agent, _digest(session.comparable(asked.prompt, asked.limits))),
            request=_digest(path, agent, json.dumps(body, sort_keys=True)),
            is_connected=self._is_connected,
        )
        is_retry = self.headers.get("x-stainless-retry-count", "0") != "0"
        call = session.ask(given, is_retry=is_retry)
        call.done.wait()
        if call.reply is None:
            raise SessionClosed
        self._reply(asked, dialect, call, model)

    def _reply(self, asked: Asked, dialect: Dialect, call: Call, model: str) -> None:
        reply = call.reply
        assert reply is not None
        counts = reply.num_prompt_tokens, reply.num_tokens, reply.was_cut
        call.is_delivered = True  # before its client has it, who may ask the same once more at once
        try:
            self._send(*dialect.write(asked, str(reply), Answered(model, call.number, *counts)))
            self.wfile.flush()
        except OSError:  # the client is gone; a second try gets the same answer
            call.is_delivered, self.close_connection = False, True

    def _body(self) -> dict[str, Any]:
        """The request's body, a JSON object."""
        length = self.headers.get("content-length", "")
        if not length.isdecimal() or int(length) > MOST_BYTES:
            self.close_connection = True
            what = f"a body of {length} bytes" if length.isdecimal() else "no content-length"
            raise _Refused(400, f"the request has {what}; expected at most {MOST_BYTES} bytes, with their number.")
        try:
            body = json.loads(self.rfile.read(int(length)))
        except (ValueError, RecursionError):
            body = None
        if not isinstance(body, dict):
            raise _Refused(400, "the request's body is no JSON object; expected one.")
        return body

    def _is_connected(self) -> bool:
        """Whether the client still waits."""
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


def _digest(*texts: str) -> str:
    return hashlib.sha256("\0".join(texts).encode("utf-8", "surrogatepass")).hexdigest()
