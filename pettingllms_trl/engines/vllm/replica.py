"""One unmodified `vllm serve`, over HTTP: what it answers, the adapters that it has, and the version of its weights.

A server that was restarted has forgotten its adapters and has the weights on disk. An adapter is loaded again by the
request that misses it, in whichever process: vLLM loads an adapter once per name and refuses a second time, so that it
is given again once, however many ask. A whole model is not given again here; see `weight_transfer.py`.
"""

from __future__ import annotations

import base64
import io
from collections import Counter
from collections.abc import Mapping, Sequence
from threading import Lock
from typing import Any

from pettingllms_envs.agents.answers import read_checked
from pettingllms_envs.agents.server import Server, ServerRefused
from pettingllms_envs.observations import Image
from pettingllms_envs.pictures import opened
from pettingllms_trl.engines.weight_store import AdapterVersion, StaleWeights


AS_LOADED = "default"
"""vLLM's name for the weights that a server was started with."""
SEEING = "/inference/v1/generate"
"""The endpoint that takes pictures beside token ids, which that of completions does not."""


class VllmReplica:
    """One of the servers of an engine. Safe to use from many threads."""

    def __init__(self, server: Server, *, lora_options: str = "") -> None:
        self._server, self._lora_options = server, lora_options
        self._lock, self._num_loads = Lock(), Counter[str]()
        base = next(card for card in server.get("/v1/models")["data"] if card["parent"] is None)
        self.model, self.max_model_len = str(base["id"]), int(base["max_model_len"])
        self._check_logprobs()

    @property
    def url(self) -> str:
        return self._server.url

    def complete(self, version: AdapterVersion | None, body: Mapping[str, Any], images: Sequence[Image] = ()) -> Any:
        """The answer to a request of the completions endpoint, of these weights and no others.

        Args:
            version: An adapter that was loaded. `None`: the model itself.
            images: Of the prompt, whose token ids have one place for each. They go to an endpoint of their own.

        Raises:
            ServerUnreachable: The server does not answer; the rollout would not be complete without it.
            ServerRefused: It rejects the request.
            StaleWeights: It answered with other weights than the current ones.
            ValueError: It was started without the endpoint that takes images.
        """
        path, body = ("/v1/completions", body) if not images else (SEEING, _seeing(body, images))
        model = self.model if version is None else served_name(version)
        body = {**body, "model": model}
        num_loads = self._num_loads[model]
        try:
            answer = self._server.ask("POST", path, body, read=read_checked, expected="completion").value
        except ServerRefused as refusal:
            if refusal.status == 403 and images:
                raise ValueError(
                    f"{refusal}. Expected a server that takes pictures beside token ids: start it with "
                    "--enable-scale-out."
                ) from refusal
            if refusal.status != 404 or version is None:
                raise
            self._load_again(version, num_loads)
            answer = self._server.ask("POST", path, body, read=read_checked, expected="completion").value
        if answer["model"] != model:
            raise StaleWeights(f"{self.url} answered with {answer['model']!r}, expected {model!r}")
        return _as_completions(answer) if images else answer

    # ---- Adapters -------------------------------------------------------------------------------------------------

    def load(self, version: AdapterVersion) -> None:
        """Load an adapter, unless the server has it; `ValueError` if it takes none, or cannot read the folder."""
        name = served_name(version)
        try:
            self._server.post("/v1/load_lora_adapter", {"lora_name": name, "lora_path": str(version.path.absolute())})
        except ServerRefused as refusal:
            # By us, whose name it is: an answer was lost, or another thread or process was quicker.
            if "already been loaded" not in refusal.message:
                raise ValueError(
                    f"{refusal}. Expected a server that takes adapters at any time and reads {version.path.parent}: "
                    "start it with VLLM_ALLOW_RUNTIME_LORA_UPDATING=1 in its environment, --enable-lora, "
                    f"{self._lora_options}."
                ) from refusal
        self._num_loads[name] += 1

    def _load_again(self, version: AdapterVersion, num_loads: int) -> None:
        """Load an adapter that the server has forgotten, unless another thread has done so since `num_loads`."""
        with self._lock:
            if self._num_loads[served_name(version)] == num_loads:
                self.load(version)

    def unload(self, version: AdapterVersion) -> None:
        """Unload an adapter, which the server may have forgotten."""
        try:
            self._server.post("/v1/unload_lora_adapter", {"lora_name": served_name(version)})
        except ServerRefused as refusal:
            if refusal.status != 404:
                raise

    # ---- The model's own weights ----------------------------------------------------------------------------------

    def weights(self) -> str:
        """The name of the weights that it has, which only a server in development mode may have exchanged."""
        try:
            return str(self._server.get("/weight_info")["weight_version"])
        except ServerRefused:
            return AS_LOADED

    def reload(self, version: AdapterVersion) -> None:
        """Replace its weights by those of a folder.

        Raises:
            ValueError: It is not in development mode, or cannot read the folder.
            StaleWeights: It keeps what it computed with the old weights.
        """
        call = {"method": "reload_weights", "kwargs": {"weights_path": str(version.path.absolute())}}
        try:
            self._server.post("/collective_rpc", call)
            self.name_weights(served_name(version))
        except ServerRefused as refusal:
            raise ValueError(
                f"{refusal}. Expected a server that reads {version.path.parent} and new weights at any time: start it "
                "with VLLM_SERVER_DEV_MODE=1 in its environment, or train adapters."
            ) from refusal

    def name_weights(self, name: str) -> None:
        """Empty the cache of what was computed with the old weights, and name the new ones.

        Raises:
            ServerRefused: It is not in development mode.
            StaleWeights: It keeps what it computed with the old weights.
        """
        self._server.post("/reset_encoder_cache", {})  # of pictures
        if not self._server.post("/reset_prefix_cache", {})["success"]:  # as while it has requests
            raise StaleWeights(f"{self.url} keeps what it computed with old weights. Let no other run use it.")
        self._server.post("/update_weight_version", {"new_version": name})

    # ---- What is checked once -------------------------------------------------------------------------------------

    def _check_logprobs(self) -> None:
        """Check that log-probabilities are those of the sampling distribution, and not raw ones.

        If only one token is allowed, its log-probability must be 0.
        """
        body = {"model": self.model, "prompt": [0], "max_tokens": 1, "allowed_token_ids": [0], "logprobs": 0}
        (choice,) = self._server.post("/v1/completions", body)["choices"]
        (logprob,) = choice["logprobs"]["token_logprobs"]
        if logprob != 0.0:
            raise ValueError(
                f"{self.url} gives the only token allowed the log-probability {logprob:.3f}, expected 0: it does not "
                "report the distribution that it samples from. Start it with --logprobs-mode processed_logprobs."
            )


def _seeing(body: Mapping[str, Any], images: Sequence[Image]) -> dict[str, Any]:
    """A request of the completions endpoint as the one that takes pictures has it."""
    return {
        "token_ids": body["prompt"],
        "content_parts": [{"type": "image_url", "url": _data_url(image)} for image in images],
        "sampling_params": {name: body[name] for name in body if name not in ("prompt", "return_token_ids")},
        "return_token_ids": True,
    }


def _data_url(image: Image) -> str:
    """An image with the pixels that the trainer has: vLLM would convert palettes and transparency in its own way."""
    file = io.BytesIO()
    opened(image).save(file, "PNG")
    return f"data:image/png;base64,{base64.b64encode(file.getvalue()).decode('ascii')}"


def _as_completions(answer: Mapping[str, Any]) -> dict[str, Any]:
    """An answer of the endpoint that takes pictures as the completions endpoint has it."""
    of_prompt = {name: answer[name] for name in ("prompt_token_ids", "prompt_logprobs")}

    def as_completion(choice: Mapping[str, Any]) -> dict[str, Any]:
        sampled = (choice["logprobs"] or {}).get("content") or ()  # of a text that is scored there are none
        return {**choice, **of_prompt, "logprobs": {"token_logprobs": [token["logprob"] for token in sampled]}}

    return {**answer, "choices": [as_completion(choice) for choice in answer["choices"]]}


def served_name(version: AdapterVersion) -> str:
    """A unique name on the server, which other runs may use with adapters of the same roles."""
    return f"{version.path.parent.name}/{version.name}"
