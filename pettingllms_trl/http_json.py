"""JSON to a server and back, by the standard library: patient with connections, never with refusals."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from http.client import HTTPConnection, HTTPException, HTTPSConnection
from typing import Any
from urllib.parse import urlsplit

from pettingllms_envs.server_errors import one_line


FIRST_PAUSE, LONGEST_PAUSE = 0.1, 5.0  # seconds, doubled from one to the other
NOT_NOW = (408, 425, 429)  # statuses below 500 that ask to come again: too slow, too early, too many requests


MOST_SHOWN = 1000
"""Characters of an answer in an error message; of an HTML page fewer, see `one_line`."""


class ServerUnreachable(ConnectionError):
    """A server did not answer for as long as we were to wait. No fault of a model, an environment or a prompt."""


class ServerRefused(RuntimeError):
    """A server answered that it will not do what it was asked.

    Args:
        status: Of HTTP, below 500.
        message: In the server's words.
    """

    def __init__(self, url: str, status: int, message: str) -> None:
        super().__init__(f"{url} refused ({status}): {one_line(message, length=MOST_SHOWN)}")
        self.status = status
        self.message = message


class Server:
    """A place that speaks JSON over HTTP.

    Args:
        url: `http://host:port` or `https://...`, with or without a path.
        patience: Seconds for which connections that fail, answers of 500 and above, and those that ask to come again
            (too many requests) are tried anew.
        answer_within: Seconds in which an answer must begin.
        headers: Sent with every request, beside its content's type.
        settings: What `url` and `patience` are called where the user gave them.

    Raises:
        ValueError: `url` is none.
    """

    def __init__(
        self,
        url: str,
        *,
        patience: float,
        answer_within: float,
        headers: Mapping[str, str] | None = None,
        settings: tuple[str, str] = ("vllm_server_base_url", "vllm_server_timeout"),
    ) -> None:
        self._settings = settings
        self._headers = {"Content-Type": "application/json", **(headers or {})}
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or parts.hostname is None:
            raise ValueError(f"server {url!r}, expected http://host:port. Check {settings[0]}.")
        self.url = url.rstrip("/")
        self._connection = HTTPSConnection if parts.scheme == "https" else HTTPConnection
        self._address = (parts.hostname, parts.port)
        self._prefix = parts.path.rstrip("/")
        self._patience, self._answer_within = patience, answer_within

    def get(self, path: str) -> Any:
        """See `post`."""
        return self._patiently("GET", path, None)

    def post(self, path: str, body: Any) -> Any:
        """What the server answers: JSON, or text where it is none.

        A request is sent again when its connection breaks, so it may be carried out twice.

        Raises:
            ServerUnreachable: All was tried for as long as `patience` says.
            ServerRefused: The server answered that the request is wrong.
        """
        return self._patiently("POST", path, json.dumps(body))

    def _patiently(self, method: str, path: str, body: str | None) -> Any:
        began, pause = time.monotonic(), FIRST_PAUSE
        while True:
            try:
                status, text = self._once(method, path, body)
            except (OSError, HTTPException) as error:
                trouble = f"{type(error).__name__}: {error}"
            else:
                if status < 300:
                    return _read(text)
                if status < 500 and status not in NOT_NOW:
                    raise ServerRefused(self.url + path, status, text)
                trouble = f"status {status}: {one_line(text, length=MOST_SHOWN)}"
            if time.monotonic() - began + pause > self._patience:
                raise ServerUnreachable(
                    f"{self.url}{path} did not answer for {self._patience:g} s, the last time with {trouble}. See "
                    f"whether the server runs; it is waited for as long as {self._settings[1]} says."
                )
            time.sleep(pause)
            pause = min(2 * pause, LONGEST_PAUSE)

    def _once(self, method: str, path: str, body: str | None) -> tuple[int, str]:
        connection = self._connection(*self._address, timeout=self._patience)
        try:
            connection.connect()
            connection.sock.settimeout(self._answer_within)
            connection.request(method, self._prefix + path, body=body, headers=self._headers)
            response = connection.getresponse()
            return response.status, response.read().decode("utf-8", "replace")
        finally:
            connection.close()


def _read(text: str) -> Any:
    try:
        return json.loads(text)
    except json.JSONDecodeError:
        return text
