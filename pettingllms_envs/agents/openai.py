"""Client of an OpenAI-compatible server: vLLM, SGLang, Ollama, llama.cpp, or a hosted one.

It requests `<base_url>/chat/completions` with the retries of `server.py`, and reads what comes by `answers.py`. What
is refused (a prompt that is too long, or that a filter stops) fails only that prompt; a wrong key or model stops the
run, unless the server has answered before. The seed is sent with each request, so a retry asks for the same reply.
Before the first prompt the server is contacted once (`server_probe.py`): one that is down stops the run in seconds.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import httpx2

from pettingllms_envs.agents.answers import is_refused, read_chat
from pettingllms_envs.agents.base import CARRIES, AgentFailed, AgentRefused, Reply, Request
from pettingllms_envs.agents.chat_form import LIMIT_NAMES, ServerForm, messages_for_server
from pettingllms_envs.agents.server import Notices, Server, ServerRefused, ServerUnreachable, connections
from pettingllms_envs.agents.server_probe import FirstContact
from pettingllms_envs.agents.spec import NON_IDENTITY_OPTIONS, AgentPool, AgentSpec
from pettingllms_envs.observations import Limits, Message


PATH = "/chat/completions"
NO_ACCESS = (401, 402)
"""A wrong key, or a quota that is used up."""
UNSURE = (403, 404)
"""A wrong key or model, or a prompt that is not let through."""
SECONDS_TO_BE_SURE = 30.0
_URL, _VARIABLE, _KEY = re.compile(r"\s*https?://[^/]"), re.compile("[A-Z_][A-Z0-9_]*"), re.compile("[!-~]*")
_URL_WITH_KEY = re.compile(r"^https?://[^/?#]*@|[?&][^?=&]*(?:key|token|secret|sig)[^?=&]*=", re.I)
SENT = ("temperature", "top_p", "max_tokens", "stop", "top_k", "min_p", "repetition_penalty")
OPTIONS = (*SENT, "base_url", "key_env", "timeout", "patience", "send_seed", "extra")

_PATHS = re.compile(r"(?<!/)/+(?:(?:chat/)?(?:completions|responses|models)/*)?(?=\?|$)")


@dataclass(frozen=True, slots=True, kw_only=True)
class Endpoint:
    """A model on a server, and the settings of its requests.

    Args:
        base_url: URL up to and including the version: `http://localhost:8000/v1`; it may have a query, and what is
            asked there (`/chat/completions`) is taken off its end.
        key_env: Name of the environment variable with the key, or None. The key is read for each request.
        sampling: Sampling fields of the request, such as `temperature`; the server's defaults hold for the others.
        send_seed: Whether each request has a `seed`. Without it, two runs may differ.
        patience: Seconds of retries after which a prompt fails.
        first_patience: Seconds to the server's first answer, at most, if more than `server_probe.SECONDS`.
    """

    base_url: str
    model: str
    key_env: str | None = None
    sampling: Mapping[str, Any] = field(default_factory=dict)
    extra: Mapping[str, Any] = field(default_factory=dict)
    send_seed: bool = True
    timeout: float = 600.0
    patience: float = 1200.0
    first_patience: float = 0.0

    def __post_init__(self) -> None:
        for name in ("base_url", "model"):
            if not isinstance(getattr(self, name), str):
                raise ValueError(f"{name} is {getattr(self, name)!r}; expected a text. Give the {name}.")
        if not _URL.match(self.base_url):
            raise ValueError(f"base_url is {self.base_url!r}; expected a URL such as http://localhost:8000/v1.")
        for name in ("timeout", "patience"):
            if not getattr(self, name) > 0:
                raise ValueError(f"{name} is {getattr(self, name)!r}; expected seconds, more than 0. Raise it.")
        if self.key_env is not None and not _VARIABLE.fullmatch(str(self.key_env)):
            raise ValueError(
                "key_env is not shown here, since it may be the key itself; expected the name of an environment "
                "variable, in capitals. Give key_env=MY_KEY (--key-env MY_KEY), and the key in the "
                "environment: MY_KEY=... ."
            )
        object.__setattr__(self, "base_url", _PATHS.sub("", self.base_url.strip()))
        if _URL_WITH_KEY.search(self.base_url):
            raise ValueError(
                "base_url, which is not shown here, has a user name, a password or a key; expected none, for it "
                "is written into the records. Give key_env=MY_KEY (--key-env MY_KEY), and set MY_KEY in the "
                "environment."
            )
        try:
            httpx2.URL(self.base_url)
        except httpx2.InvalidURL as error:
            raise ValueError(
                f"base_url is {self.base_url!r} ({error}); expected http://localhost:8000/v1, say."
            ) from None
        if not _KEY.fullmatch(self.key):
            raise ValueError(
                f"the key in {self.key_env} has characters that no key has; expected printable ASCII without spaces. "
                "Set it anew."
            )
        if self.key_env is not None and not self.key:
            raise ValueError(
                f"key_env is {self.key_env!r}, but there is no such environment variable; expected one with the key. "
                "Set it, or leave key_env out for a server that wants none."
            )

    @property
    def key(self) -> str:
        return os.environ.get(self.key_env, "").strip() if self.key_env is not None else ""

    @property
    def headers(self) -> dict[str, str]:
        return {"Authorization": f"Bearer {self.key}"} if self.key else {}

    def without_key(self, text: str) -> str:
        """The text with the key masked by stars."""
        return text.replace(self.key, "***") if self.key else text


class ChatApi:
    """An agent that asks a server; see `pettingllms_envs.agents.base.Agent`.

    Args:
        contact: Contacts the server before the first prompt; may be shared. None: no such check.
        form: What the server is known to take; shared by all that ask for the model.
    """

    carries = CARRIES  # a server whose model reads no images says so, and that is the error

    def __init__(
        self,
        endpoint: Endpoint,
        client: httpx2.Client,
        *,
        contact: FirstContact | None = None,
        form: ServerForm | None = None,
        notices: Notices | None = None,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._endpoint, self._client, self._sleep = endpoint, client, sleep
        self._contact = contact
        self._form = ServerForm() if form is None else form
        self._notices = Notices() if notices is None else notices

    def reply(self, request: Request) -> Reply:
        """See `Agent`; fails as `ask` does."""
        return self.ask(request.messages, request.seed, request.tools, request.limits)

    def ask(
        self,
        messages: Sequence[Message],
        seed: int | None = None,
        tools: Sequence[Mapping[str, Any]] = (),
        limits: Limits = Limits(),  # noqa: B008  # frozen
    ) -> Reply:
        """The model's reply to messages.

        Args:
            seed: Seed of the reply, if the endpoint sends one, and of the pauses between tries.
            tools: Tools that the model may call. Its calls are then a part of the reply's text.

        Raises:
            AgentFailed: `unreachable` after `patience` seconds; `refused`, this prompt or the reply to it; `denied`,
                an access that there was before.
            AgentRefused: The server cannot be reached, or the key or the model is wrong.
        """
        endpoint, form = self._endpoint, self._form
        if self._contact is not None:
            self._contact.make(endpoint.model)
        wanted = {
            "model": endpoint.model,
            "messages": messages_for_server(messages),
            **({"tools": [dict(tool) for tool in tools]} if tools else {}),
            **endpoint.sampling,
            **_limited(endpoint.sampling, limits),
            **({"seed": seed} if endpoint.send_seed else {}),
            **endpoint.extra,
        }
        server = Server(
            url=endpoint.base_url,
            client=self._client,
            timeout=endpoint.timeout,
            patience=endpoint.patience,
            headers=endpoint.headers,
            secret=endpoint.key,
            notices=self._notices,
            sleep=self._sleep,
        )
        told = None
        while told is None:
            body = form.applied(wanted)
            limit = next((body[name] for name in LIMIT_NAMES if name in body), None)
            read = partial(read_chat, with_calls=bool(tools), limit=limit)
            try:
                told = server.ask("POST", PATH, body, read=read, expected="chat completion", seed=seed)
            except ServerUnreachable as error:
                raise AgentFailed("unreachable", str(error)) from None
            except ServerRefused as refusal:
                if not form.learn(refusal.message, body):
                    raise self._refusal(refusal, server, body) from None
        form.has_answered = True
        if is_refused(told.value):
            raise AgentFailed("refused", f"{endpoint.model} gave no text: its reply ended with {told.value.finish!r}.")
        return replace(told.value, tries=told.tries)

    def _refusal(self, refusal: ServerRefused, server: Server, body: Mapping[str, Any]) -> AgentFailed | AgentRefused:
        """What a refusal of a request is: an error of this prompt, or one that stops the run."""
        has_access = refusal.status not in UNSURE or self._answers_another(server, body)
        if has_access and (refusal.status not in NO_ACCESS or self._form.has_answered):
            kind = "denied" if refusal.status in NO_ACCESS else "refused"
            return AgentFailed(kind, f"{refusal}{self._served()}")
        return AgentRefused(
            f"{refusal.url} refused ({refusal.status}) the model {self._endpoint.model!r}: {refusal.message}. Check "
            f"the base URL, the model and the key.{self._served()}"
        )

    def _answers_another(self, server: Server, body: Mapping[str, Any]) -> bool:
        """Whether the key and the model are accepted: the server has answered a prompt, or answers a short one now."""
        with self._form.lock:
            if not (self._form.has_answered or self._form.is_closed):
                sure = replace(server, patience=min(server.patience, SECONDS_TO_BE_SURE))
                try:
                    sure.ask("POST", PATH, {**body, "messages": [{"role": "user", "content": "Hello"}]})
                except ServerRefused as other:
                    self._form.is_closed = other.status in (*NO_ACCESS, *UNSURE)
                except ServerUnreachable:
                    pass  # which says nothing of the access
                else:
                    self._form.has_answered = True
            return not self._form.is_closed

    def _served(self) -> str:
        """The server's models, if it lists some and this one is not among them."""
        contact = self._contact
        return "" if contact is None or contact.lists(self._endpoint.model) else contact.served()


def _limited(sampling: Mapping[str, Any], limits: Limits) -> dict[str, Any]:
    """The fields of a request that a prompt's limits change."""
    found: dict[str, Any] = {}
    if limits.max_tokens is not None:
        found["max_tokens"] = min(limits.max_tokens, sampling.get("max_tokens", limits.max_tokens))
    if limits.stop:
        found["stop"] = [*sampling.get("stop", ()), *limits.stop]
    return found


def open_apis(specs: Mapping[str, AgentSpec], concurrency: int) -> AgentPool:
    """An `AgentFactory`: agents of the kind `api` that share a pool of connections."""
    endpoints = {agent: endpoint_of(spec) for agent, spec in specs.items()}
    limits = httpx2.Limits(max_connections=concurrency, max_keepalive_connections=concurrency)
    client = connections((endpoint.base_url for endpoint in endpoints.values()), limits)
    notices = Notices()
    forms: dict[tuple[Any, ...], ServerForm] = {}
    contacts: dict[tuple[Any, ...], FirstContact] = {}
    agents = {}
    for agent, endpoint in endpoints.items():
        server = (endpoint.base_url, endpoint.key_env, endpoint.first_patience)
        contact = contacts.setdefault(server, FirstContact(endpoint, client, endpoint.first_patience))
        form = forms.setdefault((*server, endpoint.model), ServerForm())
        agents[agent] = ChatApi(endpoint, client, contact=contact, form=form, notices=notices)
    return _Apis(agents, client)


def endpoint_of(spec: AgentSpec) -> Endpoint:
    """The endpoint of a spec; `ValueError` if it has no model or no URL, or unknown options."""
    if spec.target is None or "base_url" not in spec.options:
        missing = "model (--model MODEL)" if spec.target is None else "server (--base-url http://localhost:8000/v1)"
        raise ValueError(
            f"an agent of the kind 'api' has no {missing}; expected a model and a server. Give both, "
            "or the server as OPENAI_BASE_URL."
        )
    spec.refuse_unknown(OPTIONS, target="MODEL")
    options = dict(spec.options)
    if str(options.get("send_seed", True)).lower() not in ("true", "false"):
        raise ValueError(f"send_seed is {options['send_seed']!r}; expected true or false.")
    return Endpoint(
        base_url=options["base_url"],
        model=spec.target,
        key_env=options.get("key_env"),
        sampling={name: options[name] for name in SENT if name in options},
        extra=options.get("extra", {}),
        send_seed=str(options.get("send_seed", True)).lower() == "true",
        first_patience=options.get("patience", 0.0),
        **{name: options[name] for name in NON_IDENTITY_OPTIONS if name in options},
    )


@dataclass(frozen=True, slots=True)
class _Apis:
    """Agents, and the connections that they share."""

    agents: Mapping[str, ChatApi]
    client: httpx2.Client
    versions: Mapping[str, str] = field(default_factory=lambda: {"httpx2": httpx2.__version__})

    def close(self) -> None:
        self.client.close()
