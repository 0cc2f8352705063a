"""Frozen agents behind an API: a function of the user's that is given chat messages and returns a reply.

`ChatApi` is one, of an OpenAI-compatible chat endpoint: a hosted model, or a `vllm serve` of one's own.

    policies={"drafter": "drafter", "planner": Policy(api=ChatApi("https://host/v1", "big-model", key_env="HOST_KEY"))}

and in a configuration `planner: {api: {base_url: https://host/v1, model: big-model, key_env: HOST_KEY}}`. The key
itself is read from the environment variable when it is sent, and kept nowhere: in no configuration, checkpoint or log.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Any

from pettingllms_envs.server_errors import one_line
from pettingllms_trl.engines.http import Server, ServerRefused, ServerUnreachable
from pettingllms_trl.engines.router import RequestThreads
from pettingllms_trl.policies.routing import Api
from pettingllms_trl.records import POLL_SECONDS, Completion, Message, Request, Sampled


@dataclass(frozen=True, slots=True)
class ChatApi:
    """Chat messages to a reply, by `POST <base_url>/chat/completions`.

    Args:
        base_url: Up to and with the version: `https://host/v1`.
        model: As the server calls it.
        key_env: Name of the environment variable with the key. `None`: none is sent.
        max_tokens: Of a reply. `None`, here and below: as the server pleases.
        temperature: Of sampling.
        top_p: Of sampling.
        timeout: Seconds in which an answer must begin.
        patience: Seconds for which a server that does not answer, fails, or has too many requests is tried again.
        extra: Further fields of the request, such as `{"chat_template_kwargs": {"enable_thinking": False}}`.

    Raises:
        ValueError: The URL is none, or the variable is not set.
    """

    base_url: str
    model: str
    key_env: str | None = None
    max_tokens: int | None = None
    temperature: float | None = None
    top_p: float | None = None
    timeout: float = 300.0
    patience: float = 600.0
    extra: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for name in ("base_url", "model"):
            if not isinstance(getattr(self, name), str):
                raise ValueError(f"an api has {name}={getattr(self, name)!r}, expected a text. Write {name}: ... .")
        for name in ("timeout", "patience"):
            if not getattr(self, name) > 0:
                raise ValueError(f"an api has {name}={getattr(self, name)!r}, expected seconds, more than 0. Mend it.")
        if self.key_env is not None and not re.fullmatch(r"[A-Z_][A-Z0-9_]*", str(self.key_env)):
            raise ValueError(
                "an api's key_env is not shown here, lest it be the key itself; expected the name of an environment "
                "variable, in capitals. Write key_env: MY_KEY, and give the key in the environment: MY_KEY=... ."
            )
        if self.key_env is not None and not os.environ.get(self.key_env):
            raise ValueError(
                f"an api has key_env={self.key_env!r}, but there is no such environment variable. Set it to the key, "
                "or leave key_env out for a server that wants none."
            )
        self._server()

    def __call__(self, messages: Sequence[Message]) -> str:
        """The reply; empty where the model said nothing.

        Raises:
            RuntimeError: The server stays away, refuses the request, or answers with something else.
        """
        given = {"max_tokens": self.max_tokens, "temperature": self.temperature, "top_p": self.top_p}
        body = {
            "model": self.model,
            "messages": [dict(message) for message in messages],
            **{name: value for name, value in given.items() if value is not None},
            **self.extra,
        }
        try:
            answer = self._server().post("/chat/completions", body)
        except (ServerRefused, ServerUnreachable) as error:
            raise RuntimeError(self._without_key(str(error))) from None  # its context has the server's words as well
        try:
            said = answer["choices"][0]["message"]["content"]
        except (KeyError, IndexError, TypeError):
            said = answer
        if said is not None and (said is answer or not isinstance(said, str)):
            shown = one_line(self._without_key(str(answer)))
            raise RuntimeError(
                f"{self.base_url} answered {shown!r}; expected a chat completion, with choices[0].message.content. "
                "See whether base_url is that of an OpenAI-compatible server (.../v1)."
            )
        return said or ""

    def _server(self) -> Server:
        key = self._key
        return Server(
            self.base_url,
            patience=self.patience,
            answer_within=self.timeout,
            headers={"Authorization": f"Bearer {key}"} if key else {},
            settings=("the api's base_url", "the api's patience"),
        )

    @property
    def _key(self) -> str:
        return os.environ.get(self.key_env, "") if self.key_env is not None else ""

    def _without_key(self, text: str) -> str:
        return text.replace(self._key, "***") if self._key else text


def ask(api: Api, request: Request) -> Sampled:
    """One reply to a request. It has no token ids, so nobody can be trained on it.

    Args:
        api: Gets a copy of the messages.
        request: `num_candidates` is not looked at.

    Raises:
        RuntimeError: The function raised, or returned no text; it names the agent that asked.
    """
    try:
        text = api([dict(message) for message in request.prompt])
    except Exception as error:  # a user's function may raise anything; it is told whose it was, and goes on
        raise RuntimeError(
            f"the API partner of agent {request.agent!r} raised {type(error).__name__}: {error}. Let the function "
            "retry what is worth retrying."
        ) from error
    if not isinstance(text, str):
        raise RuntimeError(
            f"the API partner of agent {request.agent!r} returned a {type(text).__name__}, expected a str: the "
            "reply's text. Return that."
        )
    return Sampled(prompt_ids=(), completions=(Completion(ids=(), text=text),))


class ApiEngine:
    """Asks APIs on threads, beside whatever else answers; see `pettingllms_trl.records.Engine`.

    Args:
        of_agent: The function of each agent.
        num_threads: Calls at once.
    """

    is_batched, is_remote = False, True

    def __init__(self, of_agent: Mapping[str, Api], *, num_threads: int) -> None:
        self._threads: RequestThreads[Sampled] = RequestThreads(num_threads, "api")
        self._of_agent = of_agent

    def rollout(self, name: str) -> AbstractContextManager[None]:
        """See `Engine`."""
        return self._threads.rollout()

    def submit(self, ticket: int, request: Request) -> None:
        """See `Engine`."""
        self._threads.send(ticket, ask, self._of_agent[request.agent], request, read=lambda sampled: sampled)

    def step(self, timeout: float = POLL_SECONDS) -> Sequence[tuple[int, Sampled]]:
        """See `Engine`."""
        return self._threads.answered(timeout)


def in_turn(of_agent: Mapping[str, Api], requests: Sequence[Request]) -> list[Sampled]:
    """Replies in the order of the requests, one call after another on the caller's thread."""
    return [ask(of_agent[request.agent], request) for request in requests]
