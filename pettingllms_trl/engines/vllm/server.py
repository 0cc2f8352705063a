"""Samples from vLLM on servers: one or several unmodified `vllm serve`, over HTTP.

    VLLM_ALLOW_RUNTIME_LORA_UPDATING=1 vllm serve Qwen/Qwen3-1.7B --port 8000 \\
        --logprobs-mode processed_logprobs --enable-lora --max-loras 2 --max-cpu-loras 4 --max-lora-rank 16

Each is one replica (`--data-parallel-size 1`: a request to load an adapter reaches only one replica) and reads the
folder that weights are written to. An update is a new adapter on every replica. An episode stays on its replica, where
the prefix of its prompts is cached, and all candidates of a prompt are one request.

A full model is read from that folder, too, by an endpoint that exists only in vLLM's development mode:

    VLLM_SERVER_DEV_MODE=1 vllm serve Qwen/Qwen3-1.7B --port 8000 --logprobs-mode processed_logprobs

Anyone who can reach such a server can call any method of its workers: keep it private.

Several trainer processes share the servers:

| when                      | the main process                                   | the others               |
|---------------------------|----------------------------------------------------|--------------------------|
| there are new weights     | writes them, and loads them on every replica       | are told their names     |
| a rollout begins          | gives a restarted replica its whole model again    | wait                     |
| the canary compares       | compares every replica                             | wait                     |
| instances are played      | sends its own requests                             | send their own           |
| a replica lost an adapter | loads it again if its own request misses it        | the same                 |
| a rollout ends            | checks that no replica has had other weights       | wait                     |

So weights are written once, and each version is loaded once on each replica, whatever the number of processes: vLLM
loads an adapter once for its name, however many ask.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import httpx2
from accelerate import PartialState
from peft import PeftConfig

from pettingllms_envs.agents.server import Server, ServerFailing
from pettingllms_trl.engines.router import RequestThreads
from pettingllms_trl.engines.vllm.adapters import check_adapters
from pettingllms_trl.engines.vllm.engine import VllmEngine
from pettingllms_trl.engines.vllm.params import VllmParams, VllmRequest
from pettingllms_trl.engines.vllm.replica import AS_LOADED, VllmReplica, served_name
from pettingllms_trl.engines.vllm.weight_transfer import FileTransfer, WeightTransfer
from pettingllms_trl.engines.weight_store import AdapterVersion, StaleWeights
from pettingllms_trl.processes.on_all import on_all, on_main
from pettingllms_trl.records import POLL_SECONDS, Answer, NamedTensors, Prompt, Sampled, SamplingFailure, Scored


Choices = Sequence[Mapping[str, Any]]
T = TypeVar("T")


class VllmServer(VllmEngine):
    """Samples for every agent of a team on `vllm serve`; see `pettingllms_trl.records.PolicyEngine`.

    Args:
        base_urls: URLs of the replicas, which serve one model with equal options.
        of_agent, adapters, params: As for `VllmEngine`.
        folder: Folder to which weights are written for the servers to read.
        patience: Seconds for which a server that does not answer is retried.
        max_requests: Most requests in flight, of all processes together; the others wait here.
        open_transfer: Opens another way to the replicas for the weights of a whole model than files; see
            `engines/vllm/weight_transfer.py`. It is called in the main process alone.
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
        open_transfer: Callable[[Sequence[VllmReplica]], WeightTransfer] | None = None,
    ) -> None:
        super().__init__(of_agent=of_agent, adapters=adapters, params=params, folder=folder.absolute())
        process = PartialState()
        self._is_main = process.is_main_process
        self._threads: RequestThreads[Choices] = RequestThreads(max(1, max_requests // process.num_processes), "vllm")
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
        on_all(lambda: self._connect([server(url=url) for url in base_urls]))
        self._transfer: WeightTransfer  # of the main process alone
        on_main(partial(self._open, open_transfer))

    def _connect(self, servers: Sequence[Server]) -> None:
        options = ""
        if self._adapters:
            number, rank = len(self._adapters) + len(self._bases), check_adapters(self._adapters)
            options = f"--max-loras {number} and --max-lora-rank {rank}"
        self._replicas = [VllmReplica(server, lora_options=options) for server in servers]
        self._model, self.max_model_len = _same_model(self._replicas)

    def _open(self, open_transfer: Callable[[Sequence[VllmReplica]], WeightTransfer] | None) -> None:
        if open_transfer is None:
            self._transfer = FileTransfer(self._store, self._on_each)
        else:
            self._transfer = open_transfer(self._replicas)

    @property
    def num_in_flight(self) -> int:
        return len(self._threads)

    def _on_each(self, do: Callable[[VllmReplica], T]) -> list[T]:
        return list(self._threads.executor.map(do, self._replicas))

    # ---- Weights --------------------------------------------------------------------------------------------------

    def load(self, policy: str, state: NamedTensors, version: int) -> None:
        """See `WeightSync`. The main process loads the weights on every replica, and tells the others what they have.

        Raises:
            StaleWeights, ValueError: As for `VllmEngine`.
            RuntimeError: The main process raised one of these, or a process has requests in flight.
        """
        # The caller, too, waits for all processes: nothing outside of these two lines may fail on one of them alone.
        on_all(partial(self._check_idle, f"new weights of policy {policy!r}"))  # the old version is removed below
        pairs = iter(state)
        self._serving, self._versions = on_main(partial(self._load, policy, pairs, version), pairs)

    def _load(
        self, policy: str, state: NamedTensors, version: int
    ) -> tuple[dict[str, AdapterVersion], dict[str, int]]:
        super().load(policy, state, version)
        return self._serving, self._versions

    def _exchange(self, before: AdapterVersion | None, version: AdapterVersion) -> None:
        self._on_each(lambda replica: replica.load(version))
        if before is not None:
            self._on_each(lambda replica: replica.unload(before))

    def _replace_model(self, name: str, state: NamedTensors, version: int) -> None:
        self._transfer.send(name, version, state)

    # ---- Sampling -------------------------------------------------------------------------------------------------

    @contextmanager
    def rollout(self, name: str) -> Iterator[None]:
        """See `Engine`. Several processes enter and leave it together.

        Raises:
            StaleWeights: A replica has other weights at the start or the end of the rollout.
        """
        self._params.begin(name)
        if self._is_main:
            self._restore_weights()
            self._check_weights()
        with self._threads.rollout():
            yield
        if self._is_main:
            self._check_weights()

    def _restore_weights(self) -> None:
        expected = self._transfer.name
        for replica in self._replicas:
            if expected is not None and replica.weights() != expected:
                self._transfer.restore(replica)

    def _check_weights(self) -> None:
        """Raise `StaleWeights` if a server has other weights: it was restarted, or another run uses it."""
        expected = self._transfer.name or AS_LOADED
        for replica in self._replicas:
            if (found := replica.weights()) != expected:
                raise StaleWeights(
                    f"{replica.url} has the weights {found!r}, expected {expected!r}: it was restarted, or is or "
                    "was another run's. Let no other run use it; restart it, and resume from the last checkpoint."
                )

    def _send(self, asked: VllmRequest, served: AdapterVersion | None) -> None:
        replica = self._replicas[asked.ticket % len(self._replicas)]
        read = partial(self._read, replica, asked)
        ids = self._params.given_ids(asked.agent, asked.prompt)
        self._threads.send(asked.ticket, _complete, replica, served, asked, ids, read=read)

    def step(self, timeout: float = POLL_SECONDS) -> Sequence[tuple[int, Answer]]:
        """See `Engine`. Raises what a request raised."""
        return self._threads.answered(timeout)

    def score(self, policy: str, prompt: Prompt) -> Sequence[Scored]:
        """See `WeightSync`. The main process scores on every replica; the others share them, and score on none.

        Raises:
            ServerUnreachable, ServerRefused, StaleWeights: See `VllmReplica.complete`.
            ValueError: A replica's ids of a prompt with pictures are others than the trainer's, or it takes none.
        """
        if not self._is_main:  # vLLM on CPUs with adapters dies of two requests with `prompt_logprobs` in one batch
            return ()
        prompt, agent = replace(prompt, ids=prompt.ids[: self.max_model_len - 1]), self._agent_of(policy)
        ids, version = self._params.given_ids(agent, prompt), self._serving.get(policy)
        body = {"prompt": ids, "max_tokens": 1, "temperature": 0.0, "prompt_logprobs": 0}

        def ask(replica: VllmReplica) -> Scored:
            (choice,) = replica.complete(version, body, prompt.images)["choices"]
            self._check_ids(replica, agent, prompt, choice)
            found = choice["prompt_logprobs"][1:]  # of the first token there is none
            logprobs = tuple(
                float(each[str(token)]["logprob"]) for token, each in zip(prompt.ids[1:], found, strict=True)
            )
            return Scored(replica.url, replica.weights() if version is None else served_name(version), logprobs)

        return tuple(self._on_each(ask))

    def _read(self, replica: VllmReplica, asked: VllmRequest, choices: Choices) -> Sampled:
        completions = []
        for choice in choices:
            self._check_ids(replica, asked.agent, asked.prompt, choice)
            ids, logprobs = choice.get("token_ids"), choice["logprobs"]["token_logprobs"]
            if not ids or len(ids) != len(logprobs) or tuple(choice["prompt_token_ids"]) != asked.prompt.ids:
                raise RuntimeError(
                    f"{replica.url} gave {choice['finish_reason']!r} with the token ids {ids}, expected those that "
                    "were sampled, a log-probability for each, after the prompt as it was sent. Use vLLM 0.32 or "
                    "later."
                )
            completions.append(self._params.completion(asked, ids, logprobs, choice["finish_reason"]))
        return Sampled(asked.prompt, tuple(completions))

    def _check_ids(self, replica: VllmReplica, agent: str, prompt: Prompt, choice: Mapping[str, Any]) -> None:
        if prompt.images:
            limits = f"--mm-processor-kwargs of {replica.url}, or else its model's folder"
            self._params.check_ids(agent, prompt, choice["prompt_token_ids"], limits)


def _complete(replica: VllmReplica, version: AdapterVersion | None, asked: VllmRequest, ids: Sequence[int]) -> Choices:
    """Send a request and wait for its answer, on a separate thread. Raises what `VllmReplica.complete` raises, but
    `SamplingFailure` where the server answers until the end that it failed.
    """
    body = {**asked.parameters, "prompt": ids, "return_token_ids": True}
    try:
        answer = replica.complete(version, body, asked.prompt.images)
    except ServerFailing as failing:
        raise SamplingFailure(str(failing)) from failing
    choices = sorted(answer["choices"], key=lambda choice: choice["index"])
    number = asked.parameters["n"]
    assert len(choices) == number, f"{replica.url}: {len(choices)} choices for n={number}"
    return choices


def _connections() -> httpx2.Client:
    """An HTTP client that drops idle connections before vLLM closes them after 5 s, and uses no proxy."""
    unlimited = httpx2.Limits(max_connections=None, max_keepalive_connections=None, keepalive_expiry=2.0)
    return httpx2.Client(limits=unlimited, trust_env=False)


def _same_model(replicas: Sequence[VllmReplica]) -> tuple[str, int]:
    """The name and the length of the model that all of them serve; `ValueError` if they serve different ones."""
    served = {replica.url: (replica.model, replica.max_model_len) for replica in replicas}
    if len({*served.values()}) != 1:
        raise ValueError(
            f"the servers serve {served}, expected one model with one --max-model-len. Start all of them alike, and "
            "name at least one in vllm_server_base_url."
        )
    return next(iter(served.values()))
