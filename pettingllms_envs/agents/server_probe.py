"""Checks that a server answers, and which models it serves, before any prompt is sent.

It requests `<base_url>/models`. A server that does not answer fails the run within seconds; once it has answered, each
prompt has the full `patience`. Any answer counts, even a 404, since not every server lists its models.
"""

from __future__ import annotations

import json
import logging
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any, Protocol

import httpx2

from pettingllms_envs.agents.base import AgentRefused
from pettingllms_envs.agents.server import joined
from pettingllms_envs.server_errors import one_line


SECONDS = 5.0
"""Seconds within which a server must answer for the first time, unless a longer time is given."""

FIRST_PAUSE, LONGEST_PAUSE = 0.25, 2.0
STARTING = (502, 503, 504)
"""Statuses of a server that is still loading its model, or of a proxy in front of one that is down."""

MOST_NAMED = 20
MOST_BYTES = 2**24

logger = logging.getLogger(__name__)


class Endpoint(Protocol):
    """The part of `pettingllms_envs.agents.openai.Endpoint` that is used here."""

    @property
    def base_url(self) -> str:
        """The URL up to and including the version."""

    @property
    def headers(self) -> Mapping[str, str]:
        """Headers of each request."""

    def without_key(self, text: str) -> str:
        """The text with the key masked."""


class FirstContact:
    """Contacts a server once, for all agents that use it, within `SECONDS`, or `seconds` if they are more."""

    def __init__(
        self,
        endpoint: Endpoint,
        client: httpx2.Client,
        seconds: float = 0.0,
        *,
        sleep: Callable[[float], None] = time.sleep,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._endpoint, self._client, self._sleep, self._clock = endpoint, client, sleep, clock
        self._seconds = max(seconds, SECONDS)
        self._url = joined(endpoint.base_url, "/models")
        self._lock = threading.Lock()
        self._was_made = False
        self._failure = ""
        self.models: tuple[str, ...] = ()
        """Names of the models that the server lists; empty if it lists none, or was not contacted yet."""

    def make(self, model: str) -> None:
        """Contact the server, unless that was done; log a model it does not list; `AgentRefused` without an answer."""
        with self._lock:
            if not self._was_made:
                self._reach()
                self._was_made = True
                if self.models and not self.lists(model):
                    logger.warning("%s does not list the model %r.%s", self._url, model, self.served())
            if self._failure:
                raise AgentRefused(self._failure)

    def lists(self, model: str) -> bool:
        """Whether the server lists a model; Ollama lists `x` as `x:latest`."""
        return model in self.models or f"{model}:latest" in self.models

    def served(self) -> str:
        """A sentence with the models that the server lists, or an empty string."""
        if not self.models:
            return ""
        more = f" and {len(self.models) - MOST_NAMED} more" if len(self.models) > MOST_NAMED else ""
        return f" It serves: {', '.join(self.models[:MOST_NAMED])}{more}."

    def _reach(self) -> None:
        ends, pause = self._clock() + self._seconds, FIRST_PAUSE
        while True:
            try:
                status, answer, content_type = self._get(max(ends - self._clock(), 0.1))
                if status not in STARTING:
                    self.models = _listed(status, answer)
                    return
                words = self._endpoint.without_key(answer.decode("utf-8", "replace"))
                trouble = f"status {status}: {one_line(words, content_type, length=200)}"
            except httpx2.RequestError as error:
                trouble = f"{type(error).__name__}: {error}"
            if self._clock() + pause > ends:
                break
            self._sleep(pause)
            pause = min(2 * pause, LONGEST_PAUSE)
        trouble = self._endpoint.without_key(trouble)
        self._failure = (
            f"{self._url} did not answer within {self._seconds:g} s ({trouble}); expected a server at "
            f"{self._endpoint.base_url}. Check --base-url and that it runs; for one that is still starting, give the "
            "seconds to wait: --patience 600."
        )

    def _get(self, seconds: float) -> tuple[int, bytes, str | None]:
        """Status, body and content type of the answer; `httpx2.RequestError` if there was none in time."""
        ends, answer = self._clock() + seconds, bytearray()
        with self._client.stream("GET", self._url, headers=self._endpoint.headers, timeout=seconds) as response:
            content_type = response.headers.get("content-type")
            for piece in response.iter_bytes():
                answer += piece
                if len(answer) > MOST_BYTES or self._clock() > ends:  # alive, and its list is not worth the wait
                    return response.status_code, b"", content_type
        return response.status_code, bytes(answer), content_type


def _listed(status: int, answer: bytes) -> tuple[str, ...]:
    """Names of the models in an answer of the form `{"data": [{"id": ...}]}`; none for anything else."""
    try:
        found: Any = json.loads(answer) if status == 200 else None
    except (ValueError, RecursionError):
        return ()
    data = found.get("data") if isinstance(found, dict) else None
    ids = [each.get("id") for each in data if isinstance(each, dict)] if isinstance(data, list) else []
    return tuple(name for name in ids if isinstance(name, str))
