"""The wire of an OpenEnv server, a WebSocket that carries JSON, and how a reply becomes an action of its schema.

A message is `{"type": "reset" | "step", "data"}`, its answer `{"type": "observation", "data"}` with `observation`,
`reward` and `done`, or `{"type": "error", "data": {"message", "code"}}`: their package is not needed.
"""

from __future__ import annotations

import json
import sys
import threading
import time
from collections.abc import Mapping
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from queue import Empty, SimpleQueue
from typing import Any, NamedTuple, NoReturn
from urllib.parse import urlsplit

import httpx2

from pettingllms_envs.core import Unreadable
from pettingllms_envs.failures import ServiceFailed
from pettingllms_envs.installing import needs_extra
from pettingllms_envs.replies.fences import without_thoughts
from pettingllms_envs.tools.calls import strict_json


MOST_BYTES = 16_000_000  # of a message of a server, and of its schema


def is_finite(value: Any) -> bool:
    """Whether JSON data is a number, or a truth value, that a float holds; `10**400` is none."""
    return isinstance(value, int | float) and abs(value) <= sys.float_info.max


class Answer(NamedTuple):
    """What a server answers; the reward is 0 where it gives none."""

    observation: Mapping[str, Any]
    reward: float
    done: bool


@dataclass
class OpenEnvClient:
    """A session with a server, opened when it is needed."""

    url: str
    timeout: float

    def __post_init__(self) -> None:
        parts = urlsplit(self.url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ValueError(f"the server is {self.url!r}; expected an address, such as openenv:http://localhost:8000")
        if isinstance(self.timeout, bool) or not is_finite(self.timeout) or self.timeout <= 0:
            raise ValueError(f"timeout is {self.timeout!r}; expected seconds above 0, such as 60.")
        self.url = self.url.rstrip("/")
        self._is_near = parts.hostname in ("localhost", "127.0.0.1", "::1")  # where no proxy leads
        self._open = ExitStack()
        self._socket: Any = None

    def failed(self, words: object) -> NoReturn:
        """Close the session, and raise `ServiceFailed` with the server's name."""
        self.close()
        raise ServiceFailed(
            f"the OpenEnv server {self.url} failed: {str(words)[:500] or 'no answer in time'}"
        ) from None

    def schema(self) -> Mapping[str, Any]:
        """The JSON schemas of actions and observations, by these names."""
        got = SimpleQueue[Any]()
        threading.Thread(target=lambda: got.put(self._schema()), daemon=True).start()
        try:
            found = got.get(timeout=self.timeout)  # HTTP's own limit is of each read, which may be of one byte
        except Empty:
            self.failed("its /schema did not come in time")
        if isinstance(found, Exception):
            self.failed(f"its /schema is none of OpenEnv 0.10: {type(found).__name__}: {found}")
        return dict(found)

    def _schema(self) -> Any:
        """What the server says, or what is wrong with it; it may be late."""
        body, until = b"", time.monotonic() + self.timeout
        try:
            get = httpx2.stream("GET", f"{self.url}/schema", timeout=self.timeout, trust_env=not self._is_near)
            with get as answer:
                for chunk in answer.raise_for_status().iter_bytes():
                    body += chunk
                    if len(body) > MOST_BYTES or time.monotonic() > until:
                        raise ValueError("it does not end")
            found = json.loads(body)
            fields = [found[name]["properties"] for name in ("action", "observation")]
            if not all(isinstance(each, dict) for name in fields for each in (name, *name.values())):
                raise TypeError("no fields")
        except (httpx2.HTTPError, httpx2.InvalidURL, ValueError, LookupError, TypeError, RecursionError) as error:
            return error
        return found

    def ask(self, kind: str, data: Mapping[str, Any]) -> Answer:
        """The answer to a message; `ServiceFailed` without one as of version 0.10 in time, `ValueError` for an action
        that does not fit the schema, and `RuntimeError` for what the environment raised."""
        with needs_extra("openenv", "websockets", "environments behind a URL"):
            from websockets.exceptions import ConnectionClosed, WebSocketException
            from websockets.sync.client import connect
        if self._socket is None and kind == "step":  # another session has another episode
            self.failed("the session was lost, and its episode with it")
        try:
            if self._socket is None:
                how: Any = {"open_timeout": self.timeout, "max_size": MOST_BYTES, "compression": None}
                how["proxy"] = None if self._is_near else True
                self._socket = self._open.enter_context(connect(f"ws{self.url[4:]}/ws", close_timeout=1, **how))
            with suppress(ConnectionClosed):  # by a server without room, which has said so
                self._socket.send(json.dumps({"type": kind, "data": data}))
            found = json.loads(self._socket.recv(timeout=self.timeout))
            said = dict(found["data"])
        except (OSError, EOFError, WebSocketException, ValueError, TypeError, LookupError, RecursionError) as error:
            self.failed(error)
        if found.get("type") == "error":
            words, code = f"{said.get('message')} {said.get('errors') or ''}"[:500].strip(), said.get("code")
            if code == "VALIDATION_ERROR" and kind == "step":
                raise ValueError(words)
            if code != "EXECUTION_ERROR":
                self.failed(f"{code}: {words}")
            raise RuntimeError(f"the OpenEnv server {self.url} raised: {words}")
        observation, reward, done = said.get("observation"), said.get("reward"), said.get("done", False)
        reward = 0 if reward is None else reward
        if not (isinstance(observation, dict) and is_finite(reward) and isinstance(done, bool)):
            self.failed(f"it answered {said!s:.300}; expected an observation, a finite reward, and done")
        return Answer(observation, float(reward), done)

    def close(self) -> None:
        """End the session."""
        opened, self._open, self._socket = self._open, ExitStack(), None
        with suppress(Exception):  # it may be gone
            opened.close()


class ActionForm:
    """How an agent writes an action of a JSON schema: the value of its one field, or JSON with all of them."""

    def __init__(self, schema: Mapping[str, Any]) -> None:
        fields = {name: each for name, each in schema["properties"].items() if name != "metadata"}
        self._constants = {name: each["const"] for name, each in fields.items() if "const" in each}
        self.fields = {name: each for name, each in fields.items() if name not in self._constants}
        self._only = next(iter(self.fields)) if len(self.fields) == 1 else None
        what = "the value of the action's field" if self._only else "the action as a JSON object with the fields"
        known = {"required": schema.get("required", []), "$defs": schema.get("$defs", {})}
        shown = json.dumps({"properties": self.fields, **{name: each for name, each in known.items() if each}})
        self.words = f"Reply with {what} that this JSON schema describes, and nothing else: {shown}"

    def read(self, reply: str) -> dict[str, Any] | Unreadable:
        """The action that a reply is; what is in it the server checks."""
        text = without_thoughts(reply).strip()
        start, end = text.find("{"), text.rfind("}") + 1
        kind = self.fields[self._only].get("type") if self._only else "object"
        try:
            found: Any = text if self._only and kind not in ("array", "object") else strict_json(text[start:end])
        except (ValueError, RecursionError):
            return Unreadable("it has no JSON object")
        return {**self._constants, **({self._only: found} if self._only else found)}
