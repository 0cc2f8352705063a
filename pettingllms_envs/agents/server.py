"""An HTTP client of servers that speak JSON, with connections that are kept alive, and retries.

What is worth a second try gets one: connections that fail or break, time-outs, answers that cannot be read or say that
they failed, and the statuses of `answers.is_passing`, after pauses that double, with jitter, and no sooner than
`Retry-After` says. Any other status is a refusal. A request that is sent again may be carried out twice.
"""

from __future__ import annotations

import email.utils
import ipaddress
import json
import logging
import random
import threading
import time
import urllib.parse
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

import httpx2

from pettingllms_envs.agents.answers import AnswerFailed, ErrorInside, is_passing, status_of
from pettingllms_envs.server_errors import one_line


FIRST_PAUSE, LONGEST_PAUSE = 0.25, 30.0
"""Seconds between tries: doubled from the first to the longest."""

MOST_BYTES = 2**26
"""Largest answer; a larger one counts as a failure."""
MOST_SHOWN = 1000
"""Characters of an answer in an error message; of an HTML page fewer, see `one_line`."""

LONGEST_CONNECT = 30.0
"""Seconds for a connection: an unreachable server is retried sooner than one that takes long to answer."""

WARN_AFTER_TRIES, WARN_EVERY = 4, 30.0
"""Tries after which a warning is logged, and least seconds between two warnings."""

logger = logging.getLogger(__name__)
Value = TypeVar("Value")


class ServerUnreachable(ConnectionError):
    """A server did not answer for as long as it was waited for. No fault of a model, an environment or a prompt."""


class ServerFailing(ServerUnreachable):
    """A server answered until the end that this request failed."""


class ServerRefused(RuntimeError):
    """A server answered that it will not do what it was asked.

    Args:
        status: Of HTTP, or what the server's words say that it should be.
    """

    def __init__(self, url: str, status: int, message: str) -> None:
        super().__init__(f"{url} refused ({status}): {message}")
        self.url, self.status, self.message = url, status, message


class Notices:
    """Logs that a server does not answer, once for all threads that wait for it."""

    def __init__(self) -> None:
        self._lock, self._next = threading.Lock(), 0.0

    def tell(self, text: str) -> None:
        """Log a warning, unless another one was logged recently."""
        with self._lock:
            if time.monotonic() < self._next:
                return
            self._next = time.monotonic() + WARN_EVERY
        logger.warning(text)


@dataclass(frozen=True, slots=True)
class Answer(Generic[Value]):
    """What a server answered, and how many requests it took."""

    value: Value
    tries: int


def joined(url: str, path: str) -> str:
    """A URL with a path behind its own, before its query."""
    whole, mark, query = url.partition("?")
    return f"{whole.rstrip('/')}{path}{mark}{query}"


def connections(urls: Iterable[str], limits: httpx2.Limits) -> httpx2.Client:
    """A client for these servers. It asks those of this machine directly, whatever proxy the environment names."""
    hosts = {urllib.parse.urlsplit(url).hostname or "" for url in urls}
    direct = {f"all://{f'[{host}]' if ':' in host else host}": None for host in hosts if _is_local(host)}
    return httpx2.Client(limits=limits, follow_redirects=True, mounts=direct)


def _is_local(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback or host == "0.0.0.0"
    except ValueError:
        return host == "localhost" or host.endswith(".localhost")


def json_or_text(text: str) -> Any:
    """What JSON says, or the text where it is none."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text


@dataclass(frozen=True, slots=True, kw_only=True)
class Server:
    """Where requests go, and how long they are waited for. Safe to use from many threads.

    Args:
        url: `http://host:port` or `https://...`, with or without a path.
        timeout: Seconds in which an answer must come.
        patience: Seconds after which a request that was not answered is given up.
        secret: Shown nowhere: stars in its place.
        longest_pause: Seconds between two tries, at most but for jitter and `Retry-After`.
        most_bytes: Of an answer; one that has more is tried again.
        advice: What to do about a server that does not answer.
        notices: Where it is said that the server does not answer; may be shared.
    """

    url: str
    client: httpx2.Client
    timeout: float
    patience: float
    headers: Mapping[str, str] = field(default_factory=dict)
    secret: str = ""
    longest_pause: float = LONGEST_PAUSE
    most_bytes: int = MOST_BYTES
    advice: str = ""
    notices: Notices = field(default_factory=Notices)
    sleep: Callable[[float], None] = time.sleep

    def __post_init__(self) -> None:
        if not self.url.startswith(("http://", "https://")):
            raise ValueError(f"server {self.url!r}, expected a URL such as http://localhost:8000. Correct it.")

    def get(self, path: str) -> Any:
        return self.ask("GET", path).value

    def post(self, path: str, body: Any) -> Any:
        """What the server answers: JSON, or text where it is none; fails as `ask` does."""
        return self.ask("POST", path, body).value

    def ask(
        self,
        method: str,
        path: str,
        body: Any = None,
        *,
        read: Callable[[str], Value] = json_or_text,
        expected: str = "JSON",
        seed: int | None = None,
    ) -> Answer[Value]:
        """Send a request until it is answered.

        Args:
            body: Sent as JSON. `None`: no body.
            read: Makes a value of the answer's text. What raises is asked for again.
            expected: What `read` reads, in words.

        Raises:
            ServerUnreachable: All was tried for as long as `patience` says.
            ServerRefused: The server answered that it will not do it.
        """
        url = joined(self.url, path)
        rng = random.Random(seed)
        began, pause, tries = time.monotonic(), FIRST_PAUSE, 0
        while True:
            tries += 1
            found = self._once(method, url, body, read, expected)
            if not isinstance(found, _Trouble):
                return Answer(found, tries)
            wait = max(pause * (0.5 + rng.random()), found.wait)
            if time.monotonic() - began + wait > self.patience:
                raise (ServerFailing if found.is_answer else ServerUnreachable)(
                    f"{url} did not answer in {tries} tries and {self.patience:g} s, the last time with "
                    f"{found.trouble}"
                    + (f"; it asks for no request within {found.wait:g} s" if found.wait > self.patience else "")
                    + (f". {self.advice}" if self.advice else "")
                )
            if tries >= WARN_AFTER_TRIES:
                self.notices.tell(f"{url} does not answer: {found.trouble}. It is tried again.")
            self.sleep(wait)
            pause = min(2 * pause, self.longest_pause)

    def _once(self, method: str, url: str, body: Any, read: Callable[[str], Value], expected: str) -> Value | _Trouble:
        """Try once: the answer, or why the try failed."""
        try:
            response, content = self._send(method, url, body)
        except httpx2.RequestError as error:
            return _Trouble(self._without_secret(f"{type(error).__name__}: {error}"))
        status, text = response.status_code, content.decode("utf-8", "replace")
        if status < 300:
            try:
                return read(text)
            except AnswerFailed as failed:
                return _Trouble(str(failed), is_answer=True)
            except ErrorInside as inside:
                status = inside.status
            except (ValueError, KeyError, IndexError, TypeError, AttributeError, RecursionError):
                return _Trouble(f"an answer that is no {expected}: {self._words(response, text)}")
        else:
            status = status_of(status, text[:MOST_SHOWN])
        if is_passing(status):
            wait = _retry_after(response.headers.get("retry-after"))
            return _Trouble(f"status {status}: {self._words(response, text)}", wait)
        raise ServerRefused(url, status, self._words(response, text))

    def _send(self, method: str, url: str, body: Any) -> tuple[httpx2.Response, bytes]:
        """Send the request and read the whole answer; `httpx2.RequestError` if it is late, incomplete or too large."""
        ends, answer = time.monotonic() + self.timeout, bytearray()
        timeout = httpx2.Timeout(self.timeout, connect=min(self.timeout, LONGEST_CONNECT))
        with self.client.stream(method, url, json=body, headers=self.headers, timeout=timeout) as response:
            for piece in response.iter_bytes():
                answer += piece
                if len(answer) > self.most_bytes:
                    raise httpx2.ReadError(f"an answer of more than {self.most_bytes // 2**20} MiB")
                if time.monotonic() > ends:
                    raise httpx2.ReadTimeout(f"no whole answer in {self.timeout:g} s")
        return response, bytes(answer)

    def _words(self, response: httpx2.Response, text: str) -> str:
        return one_line(self._without_secret(text), response.headers.get("content-type"), length=MOST_SHOWN)

    def _without_secret(self, text: str) -> str:
        return text.replace(self.secret, "***") if self.secret else text


@dataclass(frozen=True, slots=True)
class _Trouble:
    """Why a try failed, after how many seconds the server wants the next, and whether its answer said so."""

    trouble: str
    wait: float = 0.0
    is_answer: bool = False


def _retry_after(value: str | None) -> float:
    """Seconds of a `Retry-After` header, which is a number or a date; 0 if it is neither."""
    if value is None:
        return 0.0
    try:
        return max(0.0, float(value))
    except ValueError:
        pass
    try:
        return max(0.0, email.utils.parsedate_to_datetime(value).timestamp() - time.time())
    except ValueError:
        return 0.0
