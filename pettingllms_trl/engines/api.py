"""Frozen agents behind an API: a user's function from chat messages to a reply.

`ChatApi` is such a function, for an OpenAI-compatible chat endpoint: a hosted model, or your own `vllm serve`.

    policies={"drafter": "drafter", "planner": Policy(api=ChatApi("https://host/v1", "big-model", key_env="HOST_KEY"))}

and in a configuration `planner: {api: {base_url: https://host/v1, model: big-model, key_env: HOST_KEY}}`. The key
itself is read from the environment variable when it is sent, and kept nowhere: in no configuration, checkpoint or log.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import httpx2

from pettingllms_envs.agents import AgentFailed, AgentRefused, openai
from pettingllms_envs.agents.chat_form import ServerForm
from pettingllms_envs.agents.server import Notices, connections
from pettingllms_envs.observations import Limits
from pettingllms_trl.engines.batched import before_stop
from pettingllms_trl.engines.router import RequestThreads
from pettingllms_trl.policies.routing import Api
from pettingllms_trl.records import POLL_SECONDS, Answer, Completion, Message, Request, Sampled, SamplingFailure, Tools


@dataclass(frozen=True, slots=True)
class ChatApi:
    """Requests replies from `<base_url>/chat/completions`.

    Args:
        base_url: URL up to and including the version: `https://host/v1`.
        key_env: Name of the environment variable with the key. `None`: no key is sent.
        max_tokens: Most tokens of a reply. `None`, here and below: the server's default.
        timeout: Timeout of a request in seconds.
        patience: Seconds for which a server that does not answer, fails, or has too many requests is retried.
        extra: Further fields of the request, such as `{"chat_template_kwargs": {"enable_thinking": False}}`.
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
        self._endpoint()

    def __call__(self, messages: Sequence[Message], tools: Tools = (), max_tokens: int | None = None) -> str:
        """The reply, which may be empty. Calls of the tools are a part of it, as `<tool_call>` blocks.

        Args:
            max_tokens: Most tokens of this reply, if fewer than those of all.

        Raises:
            SamplingFailure: The server does not answer this prompt, or gives no valid answer.
            RuntimeError: It answers none: the key or the model is wrong.
        """
        endpoint = self._endpoint()
        client, notices, form = _connections(endpoint.base_url, endpoint.model, endpoint.key_env)
        try:
            partner = openai.ChatApi(endpoint, client, form=form, notices=notices)
            return partner.ask(messages, tools=tools, limits=Limits(max_tokens)).text
        except AgentFailed as error:
            raise SamplingFailure(str(error)) from None
        except AgentRefused as error:
            raise RuntimeError(str(error)) from None  # its context has the server's words as well, and the key perhaps

    def _endpoint(self) -> openai.Endpoint:
        given = {"max_tokens": self.max_tokens, "temperature": self.temperature, "top_p": self.top_p}
        return openai.Endpoint(
            base_url=self.base_url,
            model=self.model,
            key_env=self.key_env,
            sampling={name: value for name, value in given.items() if value is not None},
            extra=self.extra,
            send_seed=False,
            timeout=self.timeout,
            patience=self.patience,
        )


@cache
def _connections(base_url: str, model: str, key_env: str | None) -> tuple[httpx2.Client, Notices, ServerForm]:
    """What all `ChatApi` of a process share that ask for a model."""
    unlimited = httpx2.Limits(max_connections=None, max_keepalive_connections=None)
    return connections([base_url], unlimited), Notices(), ServerForm()


def check_tools(api: Api, agent: str) -> None:
    """Raise `ValueError` for a function that takes no tools, in the place of an agent that observes some."""
    try:
        inspect.signature(api).bind([], tools=[])
    except TypeError:
        raise ValueError(
            f"agent {agent!r} observes tools, and the function behind its API takes none. Expected a function "
            "api(messages, tools=()), such as ChatApi. Give it the argument, or make the environment with "
            "tool_calls='text'."
        ) from None


def ask(api: Api, request: Request) -> Sampled:
    """One reply to a request. It has no token ids, so it cannot be trained on.

    Args:
        api: The function; it gets a copy of the messages, the argument `tools` if the prompt has tools, and the
            prompt's `max_tokens`, if it has any and the function takes them.

    Raises:
        SamplingFailure: The function has no reply to this prompt, and raised that.
        RuntimeError: It raised something else, or did not return a `str`. Messages name the agent.
    """
    try:
        more: dict[str, Any] = {"tools": list(request.prompt.tools)} if request.prompt.tools else {}
        if request.limits.max_tokens is not None and "max_tokens" in inspect.signature(api).parameters:
            more["max_tokens"] = request.limits.max_tokens
        text = api([dict(message) for message in request.prompt.messages], **more)
    except SamplingFailure as failure:
        raise SamplingFailure(f"the API partner of agent {request.agent!r}: {failure}") from None
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
    return Sampled(request.prompt, (Completion(ids=(), text=before_stop(text, request.limits.stop)),))


class ApiEngine:
    """Calls APIs on threads, concurrently with other engines; see `pettingllms_trl.records.Engine`."""

    is_batched, is_remote = False, True

    def __init__(self, of_agent: Mapping[str, Api], *, num_threads: int) -> None:
        self._threads: RequestThreads[Sampled] = RequestThreads(num_threads, "api")
        self._of_agent = of_agent

    def rollout(self, name: str) -> AbstractContextManager[None]:
        return self._threads.rollout()

    def submit(self, ticket: int, request: Request) -> None:
        self._threads.send(ticket, ask, self._of_agent[request.agent], request, read=lambda sampled: sampled)

    def step(self, timeout: float = POLL_SECONDS) -> Sequence[tuple[int, Answer]]:
        return self._threads.answered(timeout)


def ask_sequentially(of_agent: Mapping[str, Api], requests: Sequence[Request]) -> list[Answer]:
    """Replies in the order of the requests, one call after another on the caller's thread."""

    def answer(request: Request) -> Answer:
        try:
            return ask(of_agent[request.agent], request)
        except SamplingFailure as failure:
            return failure

    return [answer(request) for request in requests]
