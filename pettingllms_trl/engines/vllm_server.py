"""Samples from vLLM on servers: one or several unmodified `vllm serve`, over HTTP.

    VLLM_ALLOW_RUNTIME_LORA_UPDATING=1 vllm serve Qwen/Qwen3-1.7B --port 8000 \\
        --logprobs-mode processed_logprobs --enable-lora --max-loras 2 --max-cpu-loras 4 --max-lora-rank 16

Each is one replica (`--data-parallel-size 1`: a request to load an adapter reaches only one replica) and reads the
folder that weights are written to. An update is a new adapter on every replica. An episode stays on its replica, where
the prefix of its prompts is cached, and all candidates of a prompt are one request.

A full model is read from that folder, too, by an endpoint that exists only in vLLM's development mode:

    VLLM_SERVER_DEV_MODE=1 vllm serve Qwen/Qwen3-1.7B --port 8000 --logprobs-mode processed_logprobs

Anyone who can reach such a server can call any method of its workers: keep it private.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import httpx2
from peft import PeftConfig

from pettingllms_envs.agents.server import Server, ServerRefused
from pettingllms_trl.engines.router import RequestThreads
from pettingllms_trl.engines.vllm_engine import VllmEngine
from pettingllms_trl.engines.vllm_params import VllmParams, VllmRequest
from pettingllms_trl.engines.weight_store import AdapterVersion, StaleWeights, check_adapters
from pettingllms_trl.records import POLL_SECONDS, NamedTensors, Sampled, Scored


AS_LOADED = "default"
"""vLLM's name for the weights that a server was started with."""
Choices = Sequence[Mapping[str, Any]]
Result = TypeVar("Result")


class VllmServer(VllmEngine):
    """Samples for every agent of a team on `vllm serve`; see `pettingllms_trl.records.PolicyEngine`.

    Args:
        base_urls: URLs of the replicas, which serve one model with equal options.
        of_agent, adapters, params: As for `VllmEngine`.
        folder: Folder to which weights are written for the servers to read.
        patience: Seconds for which a server that does not answer is retried.
        max_requests: Most requests in flight; the others wait here.
        timeout: Timeout of a completion in seconds.

    Raises:
        ValueError: vLLM cannot serve an adapter, or the servers have different models, or return log-probabilities of
            another distribution than they sample from.
        ServerUnreachable: A replica does not answer for `patience` seconds.
    """

    is_remote = True
    can_load_base = False
    """A server can replace its own model only in development mode, which is not required for a frozen model."""

    def __init__(
        self,
        base_urls: Sequence[str],
        *,
        of_agent: Mapping[str, str],
        adapters: Mapping[str, PeftConfig],
        params: VllmParams,
        folder: Path,
        patience: float,
        max_requests: int = 256,
        timeout: float = 3600.0,
    ) -> None:
        super().__init__(of_agent=of_agent, adapters=adapters, params=params, folder=folder)
        self._threads: RequestThreads[Choices] = RequestThreads(max_requests, "vllm")
        client = _connections()
        weakref.finalize(self, client.close)
        server = partial(
            Server,
            client=client,
            timeout=timeout,
            patience=patience,
            longest_pause=5.0,
            most_bytes=2**32,  # many long completions, with log-probabilities
            advice="See that it runs; vllm_server_timeout says how long it is waited for.",
        )
        self._replicas = [server(url=url) for url in base_urls]
        self._model, self.max_model_len = _same_model(self._replicas)
        for replica in self._replicas:
            _check_logprobs(replica, self._model)
        self._whole: AdapterVersion | None = None

    @property
    def num_in_flight(self) -> int:
        """Requests that were taken and not answered."""
        return len(self._threads)

    # ---- Weights --------------------------------------------------------------------------------------------------

    def _on_all(self, do: Callable[[Server], Result]) -> list[Result]:
        return list(self._threads.executor.map(do, self._replicas))

    def _replace_model(self, name: str, state: NamedTensors, version: int) -> None:
        before, self._whole = self._whole, self._store.write_whole(name, version, state)
        self._on_all(partial(self._reload, version=self._whole))
        if before not in (None, self._whole):  # which an attempt that failed has left
            self._store.remove(before)

    def _reload(self, replica: Server, version: AdapterVersion) -> None:
        call = {"method": "reload_weights", "kwargs": {"weights_path": str(version.path.absolute())}}
        try:
            replica.post("/collective_rpc", call)
            if not replica.post("/reset_prefix_cache", {})["success"]:  # as while it has requests
                raise StaleWeights(f"{replica.url} keeps what it computed with old weights. Let no other run use it.")
            replica.post("/update_weight_version", {"new_version": self._name(version)})
        except ServerRefused as refusal:
            raise ValueError(
                f"{refusal}. Expected a server that reads {version.path.parent} and new weights at any time: start it "
                "with VLLM_SERVER_DEV_MODE=1 in its environment, or train adapters."
            ) from refusal

    def _exchange(self, before: AdapterVersion | None, version: AdapterVersion) -> None:
        self._on_all(partial(self._load, version=version))
        if before is not None:
            self._on_all(partial(self._unload, version=before))

    def _load(self, replica: Server, version: AdapterVersion) -> None:
        body = {"lora_name": self._name(version), "lora_path": str(version.path.absolute())}
        try:
            replica.post("/v1/load_lora_adapter", body)
        except ServerRefused as refusal:
            if "already been loaded" in refusal.message:  # by us, whose name it is: the first answer was lost
                return
            raise ValueError(
                f"{refusal}. Expected a server that takes adapters at any time and reads {version.path.parent}: start "
                "it with VLLM_ALLOW_RUNTIME_LORA_UPDATING=1 in its environment, --enable-lora, --max-loras "
                f"{len(self._adapters) + len(self._bases)} and --max-lora-rank {check_adapters(self._adapters)}."
            ) from refusal

    def _unload(self, replica: Server, version: AdapterVersion) -> None:
        try:
            replica.post("/v1/unload_lora_adapter", {"lora_name": self._name(version)})
        except ServerRefused as refusal:
            if refusal.status != 404:  # a replica that was restarted does not know it
                raise

    def _name(self, version: AdapterVersion) -> str:
        """A unique name on the server, which other runs may use with adapters of the same roles."""
        return f"{version.path.parent.name}/{version.name}"

    # ---- Sampling -------------------------------------------------------------------------------------------------

    @contextmanager
    def rollout(self, name: str) -> Iterator[None]:
        """See `Engine`.

        Raises:
            StaleWeights: A replica has other weights at the start or the end of the rollout.
        """
        self._params.begin(name)
        whole = self._whole
        for replica in self._replicas:
            if whole is not None and _weights(replica) != self._name(whole):
                self._reload(replica, whole)
        self._check_weights()
        with self._threads.rollout():
            yield
        self._check_weights()

    def _check_weights(self) -> None:
        """Raise `StaleWeights` if a server has other weights: it was restarted, or another run uses it."""
        expected = AS_LOADED if self._whole is None else self._name(self._whole)
        for replica in self._replicas:
            if (found := _weights(replica)) != expected:
                raise StaleWeights(
                    f"{replica.url} has the weights {found!r}, expected {expected!r}: it was restarted, or is or "
                    "was another run's. Let no other run use it; restart it, and resume from the last checkpoint."
                )

    def _send(self, asked: VllmRequest, served: AdapterVersion | None) -> None:
        replica = self._replicas[asked.ticket % len(self._replicas)]
        read = partial(self._read, replica, asked)
        self._threads.send(asked.ticket, self._complete, replica, served, asked, read=read)

    def step(self, timeout: float = POLL_SECONDS) -> Sequence[tuple[int, Sampled]]:
        """See `Engine`. Raises what a request raised."""
        return self._threads.answered(timeout)

    def _complete(self, replica: Server, version: AdapterVersion | None, asked: VllmRequest) -> Choices:
        """Send a request and wait for its answer, on a separate thread.

        Raises:
            ServerUnreachable: The replica does not answer; the rollout would not be complete without it.
            ServerRefused: It rejects the request.
            StaleWeights: It answered with other weights than the current ones.
        """
        body = {**asked.parameters, "prompt": list(asked.prompt_ids), "return_token_ids": True}
        answer = self._post(replica, version, body)
        choices = sorted(answer["choices"], key=lambda choice: choice["index"])
        number = asked.parameters["n"]
        assert len(choices) == number, f"{replica.url}: {len(choices)} choices for n={number}"
        return choices

    def _post(self, replica: Server, version: AdapterVersion | None, body: Mapping[str, Any]) -> Any:
        """A replica's answer to a request of its completions endpoint, of these weights and no others."""
        model = self._model if version is None else self._name(version)
        body = {**body, "model": model}
        try:
            answer = replica.post("/v1/completions", body)
        except ServerRefused as refusal:
            if refusal.status != 404 or version is None:
                raise
            self._load(replica, version)  # it was restarted, and has forgotten
            answer = replica.post("/v1/completions", body)
        if answer["model"] != model:
            raise StaleWeights(f"{replica.url} answered with {answer['model']!r}, expected {model!r}")
        return answer

    def score(self, policy: str, ids: Sequence[int]) -> Sequence[Scored]:
        """See `WeightSync`.

        Raises:
            ServerUnreachable, ServerRefused, StaleWeights: As for requests.
        """
        ids = list(ids[: self.max_model_len - 1])
        body = {"prompt": ids, "max_tokens": 1, "temperature": 0.0, "prompt_logprobs": 0}
        version = self._serving.get(policy)

        def ask(replica: Server) -> Scored:
            (choice,) = self._post(replica, version, body)["choices"]
            found = choice["prompt_logprobs"][1:]  # of the first token there is none
            logprobs = tuple(float(each[str(token)]["logprob"]) for token, each in zip(ids[1:], found, strict=True))
            return Scored(replica.url, _weights(replica) if version is None else self._name(version), logprobs)

        return tuple(self._on_all(ask))

    def _read(self, replica: Server, asked: VllmRequest, choices: Choices) -> Sampled:
        completions = []
        for choice in choices:
            ids, logprobs = choice.get("token_ids"), choice["logprobs"]["token_logprobs"]
            if not ids or len(ids) != len(logprobs) or tuple(choice["prompt_token_ids"]) != asked.prompt_ids:
                raise RuntimeError(
                    f"{replica.url} gave {choice['finish_reason']!r} with the token ids {ids}, expected those that "
                    "were sampled, a log-probability for each, after the prompt as it was sent. Use vLLM 0.22 or "
                    "later."
                )
            completions.append(self._params.completion(asked.agent, ids, logprobs, choice["finish_reason"]))
        return Sampled(asked.prompt_ids, tuple(completions))


def _connections() -> httpx2.Client:
    """An HTTP client that drops idle connections before vLLM closes them after 5 s, and uses no proxy."""
    unlimited = httpx2.Limits(max_connections=None, max_keepalive_connections=None, keepalive_expiry=2.0)
    return httpx2.Client(limits=unlimited, trust_env=False)


def _weights(replica: Server) -> str:
    """The name of a replica's own weights, which only a server in development mode may have exchanged."""
    try:
        return str(replica.get("/weight_info")["weight_version"])
    except ServerRefused:
        return AS_LOADED


def _same_model(replicas: Sequence[Server]) -> tuple[str, int]:
    """The name and the length of the model that all of them serve.

    Raises:
        ValueError: They serve different models.
    """
    served = {}
    for replica in replicas:
        base = next(card for card in replica.get("/v1/models")["data"] if card["parent"] is None)
        served[replica.url] = (str(base["id"]), int(base["max_model_len"]))
    if len({*served.values()}) != 1:
        raise ValueError(
            f"the servers serve {served}, expected one model with one --max-model-len. Start all of them alike, and "
            "name at least one in vllm_server_base_url."
        )
    return next(iter(served.values()))


def _check_logprobs(replica: Server, model: str) -> None:
    """Check that log-probabilities are those of the sampling distribution.

    If only one token is allowed, its log-probability must be 0.

    Raises:
        ValueError: It is not: the server returns raw log-probabilities.
    """
    body = {"model": model, "prompt": [0], "max_tokens": 1, "allowed_token_ids": [0], "logprobs": 0}
    (choice,) = replica.post("/v1/completions", body)["choices"]
    (logprob,) = choice["logprobs"]["token_logprobs"]
    if logprob != 0.0:
        raise ValueError(
            f"{replica.url} gives the only token allowed the log-probability {logprob:.3f}, expected 0: it does not "
            "report the distribution that it samples from. Start it with --logprobs-mode processed_logprobs."
        )
