"""vLLM on servers of its own: `vllm serve`, one or several, plain and unchanged, asked over HTTP.

    VLLM_ALLOW_RUNTIME_LORA_UPDATING=1 vllm serve Qwen/Qwen3-1.7B --port 8000 \\
        --logprobs-mode processed_logprobs --enable-lora --max-loras 2 --max-cpu-loras 4 --max-lora-rank 16

Each is one replica (`--data-parallel-size 1`: what loads an adapter reaches one replica only) and reads the folder
that adapters are written to. An update is a new adapter on every replica; an episode stays on its replica, where the
prefix of its prompts is known, and the candidates of a prompt are one request.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from peft import PeftConfig
from torch import Tensor
from trl import GRPOConfig

from pettingllms_trl.engine import Request, Sampled
from pettingllms_trl.http_json import Server, ServerRefused
from pettingllms_trl.records import Completion, Message
from pettingllms_trl.vllm_adapters import AdapterStore, AdapterVersion, StaleWeights, check_adapters
from pettingllms_trl.vllm_sampling import Sampling, SamplingOverrides, check_length


GLANCE = 0.02  # seconds that `step` waits for an answer before environments are seen to again


class ServerEngine:
    """Samples for every agent of a team on `vllm serve`; see `pettingllms_trl.engine.Engine`.

    Args:
        base_urls: Of the replicas, which serve one model with equal options.
        args: Sampling fields, `output_dir` and `vllm_server_timeout` of the trainer's configuration.
        of_agent: Name of the policy of each agent.
        adapters: Of each policy that is an adapter, its configuration as PEFT resolved it. Any other policy is the
            model as the servers loaded it.
        tokenize: A prompt's messages to token ids.
        decode: Sampled ids to the text that is the action.
        stop_token_ids: The trainer's `eos_token_ids`.
        overrides: Sampling parameters of single roles.
        folder: Where adapters are written for the servers to read. `None`: `args.output_dir`.
        max_requests: Requests in flight; the rest waits here.
        answer_within: Seconds that a completion may take.

    Raises:
        ValueError: An adapter that vLLM cannot serve, sampling options that cannot be met, or servers that serve
            different models or log-probabilities of another distribution than they sample from.
        ServerUnreachable: A replica does not answer within `args.vllm_server_timeout`.
    """

    in_waves = False

    def __init__(
        self,
        base_urls: Sequence[str],
        *,
        args: GRPOConfig,
        of_agent: Mapping[str, str],
        adapters: Mapping[str, PeftConfig],
        tokenize: Callable[[Sequence[Message]], Sequence[int]],
        decode: Callable[[Sequence[int]], str],
        stop_token_ids: Sequence[int] = (),
        overrides: Mapping[str, SamplingOverrides] | None = None,
        folder: Path | None = None,
        max_requests: int = 256,
        answer_within: float = 3600.0,
    ) -> None:
        if adapters:
            check_adapters(adapters)
        self._of_agent = of_agent
        self._adapters = adapters
        self._bases = tuple(policy for policy in dict.fromkeys(of_agent.values()) if policy not in adapters)
        self._sampling = Sampling(args, list(of_agent), overrides, stop_token_ids)
        self._tokenize, self._decode = tokenize, decode
        patience = args.vllm_server_timeout
        self._replicas = [Server(url, patience=patience, answer_within=answer_within) for url in base_urls]
        self._model, self._max_model_len = _same_model(self._replicas)
        for replica in self._replicas:
            _check_logprobs(replica, self._model)
        self._store = AdapterStore(Path(args.output_dir) if folder is None else folder)
        self._serving: dict[str, AdapterVersion] = {}
        self._threads = ThreadPoolExecutor(max_requests, "vllm")
        self._waiting: dict[Future[Sampled], int] = {}

    @property
    def versions(self) -> Mapping[str, int]:
        """How often each policy's weights were given. 0: the model as the servers loaded it."""
        serving = {policy: self._serving[policy].number for policy in self._serving if policy in self._adapters}
        return {policy: serving.get(policy, 0) for policy in dict.fromkeys(self._of_agent.values())}

    # ---- Weights --------------------------------------------------------------------------------------------------

    def sync(self, policy: str, state: Mapping[str, Tensor]) -> int:
        """Serve these weights from now on as a policy's, on every replica.

        Args:
            policy: Its name; an adapter.
            state: `peft.get_peft_model_state_dict(model, adapter_name=...)`.

        Returns:
            The number of the policy's version.

        Raises:
            StaleWeights: Requests are in flight; their answers would be of the old weights.
            ValueError: The policy is a whole model, or the servers do not take adapters.
        """
        if policy not in self._adapters:
            raise ValueError(
                f"weights of policy {policy!r} for a server, expected an adapter: a whole model would go over CUDA's "
                "own transfer (vLLM's weight transfer engine), which is not supported. Train adapters, or use "
                "vllm_mode='colocate'."
            )
        if self._waiting:
            raise StaleWeights(
                f"new weights of policy {policy!r} while {len(self._waiting)} requests are in flight, expected none: "
                "their tokens would come from the old ones. Sync before the rollout or after it."
            )
        version = self._store.write(policy, self._adapters[policy], state)
        self._serve(version)
        for base in self._bases:
            if base not in self._serving:
                self._serve(self._store.write_zero(base, self._adapters[policy], state))
        return version.number

    def _serve(self, version: AdapterVersion) -> None:
        """Load a version on every replica; then the one before goes, which nobody uses any more."""
        list(self._threads.map(lambda replica: self._load(replica, version), self._replicas))
        before = self._serving.get(version.policy)
        self._serving[version.policy] = version
        if before is not None:
            list(self._threads.map(lambda replica: self._unload(replica, before), self._replicas))
            self._store.remove(before)

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
            if refusal.status != 404:  # a replica that was started anew does not know it
                raise

    def _name(self, version: AdapterVersion) -> str:
        """On a server that other runs have used or use, whose adapters are named after the same roles."""
        return f"{version.path.parent.name}/{version.name}"

    # ---- Sampling -------------------------------------------------------------------------------------------------

    @contextmanager
    def rollout(self, name: str) -> Iterator[None]:
        """Requests are sampled between these two ends only: what is left when it ends is waited for, and dropped.

        Args:
            name: Seeds every request, together with its ticket.
        """
        self._sampling.begin(name)
        try:
            yield
        finally:
            for future in self._waiting:
                future.cancel()
            wait(self._waiting)
            self._waiting.clear()

    def submit(self, ticket: int, request: Request) -> None:
        """See `Engine`.

        Raises:
            StaleWeights: The policy was never given its weights.
            ValueError: The prompt leaves no room for a completion.
        """
        policy = self._of_agent[request.agent]
        if self._adapters and policy not in self._serving:
            raise StaleWeights(f"a request of policy {policy!r}, whose weights were never given. Call sync first.")
        prompt_ids = request.prompt_ids or tuple(self._tokenize(request.prompt))
        check_length(prompt_ids, request.agent, self._max_model_len)
        parameters = self._sampling.of(request.agent, ticket, request.num_candidates)
        replica = self._replicas[ticket % len(self._replicas)]
        future = self._threads.submit(self._complete, replica, self._serving.get(policy), prompt_ids, parameters)
        self._waiting[future] = ticket

    def step(self) -> Sequence[tuple[int, Sampled]]:
        """Look for a moment whether answers have come: see `Engine`.

        Raises:
            ServerUnreachable: A replica stays away; a rollout without it would not be the policy's.
            ServerRefused: A replica does not take a request.
            StaleWeights: A replica answered with other weights than the current ones.
        """
        done, _ = wait(self._waiting, timeout=GLANCE, return_when=FIRST_COMPLETED)
        finished = [future for future in self._waiting if future in done]
        return [(self._waiting.pop(future), future.result()) for future in finished]

    def _complete(
        self,
        replica: Server,
        version: AdapterVersion | None,
        prompt_ids: tuple[int, ...],
        parameters: Mapping[str, Any],
    ) -> Sampled:
        """On a thread of its own: nothing here but the request and its answer."""
        model = self._model if version is None else self._name(version)
        body = {**parameters, "model": model, "prompt": list(prompt_ids), "return_token_ids": True}
        try:
            answer = replica.post("/v1/completions", body)
        except ServerRefused as refusal:
            if refusal.status != 404 or version is None:
                raise
            self._load(replica, version)  # it was started anew, and has forgotten
            answer = replica.post("/v1/completions", body)
        if answer["model"] != model:
            raise StaleWeights(f"{replica.url} answered with {answer['model']!r}, expected {model!r}")
        choices = sorted(answer["choices"], key=lambda choice: choice["index"])
        assert len(choices) == parameters["n"], f"{replica.url}: {len(choices)} choices for n={parameters['n']}"
        return Sampled(prompt_ids, tuple(self._completion(replica, choice, prompt_ids) for choice in choices))

    def _completion(self, replica: Server, choice: Mapping[str, Any], prompt_ids: tuple[int, ...]) -> Completion:
        ids, logprobs = choice.get("token_ids"), choice["logprobs"]["token_logprobs"]
        if not ids or len(ids) != len(logprobs) or tuple(choice["prompt_token_ids"]) != prompt_ids:
            raise RuntimeError(
                f"{replica.url} gave {choice['finish_reason']!r} with the token ids {ids}, expected those that were "
                "sampled, a log-probability for each, after the prompt as it was sent. Use vLLM 0.22 or later."
            )
        return Completion(ids=tuple(ids), text=self._decode(ids), logprobs=tuple(logprobs))


def _same_model(replicas: Sequence[Server]) -> tuple[str, int]:
    """The name and the length of the model that all of them serve.

    Raises:
        ValueError: There is none.
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
    """Where one token alone is allowed its log-probability is 0, unless it is read before the others are ruled out.

    Raises:
        ValueError: It is.
    """
    body = {"model": model, "prompt": [0], "max_tokens": 1, "allowed_token_ids": [0], "logprobs": 0}
    (choice,) = replica.post("/v1/completions", body)["choices"]
    (logprob,) = choice["logprobs"]["token_logprobs"]
    if logprob != 0.0:
        raise ValueError(
            f"{replica.url} gives the only token allowed the log-probability {logprob:.3f}, expected 0: it does not "
            "report the distribution that it samples from. Start it with --logprobs-mode processed_logprobs."
        )
