"""A server of the standard library that speaks as much of vLLM's protocol as our client uses, and keeps count."""

from __future__ import annotations

import json
import os
import socket
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Lock, Thread
from typing import Any

import torch
from peft import LoraConfig
from safetensors.torch import load_file

from pettingllms_trl import MultiAgentGRPOConfig
from pettingllms_trl.engines.kinds import PromptCodec
from pettingllms_trl.engines.vllm.params import VllmParams
from pettingllms_trl.engines.vllm.server import VllmServer
from pettingllms_trl.records import Request, Sampled


LORA = LoraConfig(r=4, target_modules=["q_proj"], task_type="CAUSAL_LM")
WHOLE = {"embed": torch.ones(2, 2), "head": torch.ones(2, 2)}
ADAPTER = {"base_model.model.q_proj.lora_A.weight": torch.ones(4, 2)}
TEAM = {"opener_0": "opener", "closer_0": "closer"}
TRANSFER: dict[str, Any] = {
    "/health": {},
    "/server_info?config_format=json": {"vllm_config": {"weight_transfer_config": {"backend": "nccl"}}},
    "/get_world_size": {"world_size": 1},
    "/init_weight_transfer_engine": {},
    "/start_weight_update": {},
    "/update_weights": {},
    "/finish_weight_update": {},
}
"""What vLLM's own weight transfer is asked, and answers."""
RENEWING = (
    *("/collective_rpc", "/reset_encoder_cache", "/reset_prefix_cache"),
    *("/update_weight_version", "/weight_info"),
)
"""What a server in development mode is asked when it is given new weights."""
PLACE = 5
"""The token of a picture's place, as of the processor of `tiny_vlms`."""
HELLO = [{"role": "user", "content": "abc"}]  # to the fake: the tokens 97, 98, 99


class FakeVLLM(ThreadingHTTPServer):
    """Speaks as much of vLLM's protocol as the client uses. Samples `[seed + i, seed + i + 1]` modulo 90, plus 32.

    Args:
        logprob: Of the sampled tokens: -0.5 and -1, and of the only one allowed this.
        takes_adapters: It was started with adapters.
        reloads: It runs in development mode, and takes a whole model's weights.
        restarts_after: It restarts once, after so many completions.

    Attributes:
        log: Requests to load or unload an adapter.
        loaded: How often each adapter was loaded, which a request for one that it has does not do.
        weights: Folders of the whole models that it read.
        transfer: Requests that give it a whole model.
        drops, drops_loads: So many completions, or loads, are cut off before their answer.
        refuses_loads: So many loads are refused.
        changes: Of the first completions, each makes status and answer of the answer that is right.
        sees, num_places: Whether it takes pictures, and how many tokens each has to it.
        seen: Requests with pictures.
        serves_as: The name under which it answers, if it answers with another model than was asked for.
    """

    daemon_threads = True
    request_queue_size = 64

    def __init__(
        self,
        *,
        model: str = "base",
        logprob: float = 0.0,
        takes_adapters: bool = True,
        reloads: bool = True,
        restarts_after: int | None = None,
    ) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.model, self.logprob, self.takes_adapters = model, logprob, takes_adapters
        self.reloads, self.restarts_after = reloads, restarts_after
        self.folder = Path()  # that of the run whose weights it was given last
        self.weights: list[str] = []
        self.weight_version = "default"
        self.drops = self.drops_loads = self.refuses_loads = 0
        self.serves_as: str | None = None
        self.changes: list[Callable[[dict[str, Any]], tuple[int, Any]]] = []
        self.sees, self.num_places = True, 4
        self.seen: list[dict[str, Any]] = []
        self.adapters: dict[str, str] = {}
        self.completions: list[dict[str, Any]] = []
        self.log: list[tuple[str, str]] = []
        self.loaded: Counter[str] = Counter()
        self.transfer: list[tuple[str, Any]] = []
        self.lock = Lock()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"

    def restart(self) -> None:
        """Forget all that it was given."""
        self.adapters.clear()
        self.weight_version = "default"

    def reply(self, path: str, body: dict[str, Any]) -> tuple[int, Any] | None:
        """`None`: the connection is cut."""
        if path == "/v1/models":
            adapters = [{"id": name, "parent": self.model} for name in self.adapters]
            return 200, {"data": [{"id": self.model, "parent": None, "max_model_len": 4096}, *adapters]}
        if path == "/v1/completions":
            return self.complete(body)
        if path == "/inference/v1/generate":
            return self.generate(body) if self.sees else (403, "Restart vllm serve with --enable-scale-out.")
        if path == "/restart":  # of the tests alone
            return 200, self.restart()
        if path in TRANSFER:
            self.transfer.append((path, body))
            return 200, TRANSFER[path]
        if path in RENEWING:
            return self.renew(path, body) if self.reloads else (404, {"detail": "Not Found"})
        if not self.takes_adapters:
            return 404, {"detail": "Not Found"}
        name = body["lora_name"]
        self.log.append((path.removeprefix("/v1/"), name))
        if path == "/v1/unload_lora_adapter":
            return (200, "Success") if self.adapters.pop(name, None) else (404, "cannot be found")
        if name in self.adapters:
            return 400, f"The lora adapter '{name}' has already been loaded."
        if self.refuses_loads:
            self.refuses_loads -= 1
            return 400, "No adapter found"
        assert sorted(os.listdir(body["lora_path"])) == ["adapter_config.json", "adapter_model.safetensors"]
        self.adapters[name] = body["lora_path"]
        self.loaded[Path(name).name] += 1
        self.folder = Path(body["lora_path"]).parent
        if self.drops_loads:
            self.drops_loads -= 1
            return None
        return 200, "Success"

    def generate(self, body: dict[str, Any]) -> tuple[int, Any]:
        """As `complete`; of a picture's place it makes as many as it is told by `num_places`."""
        self.seen.append(body)
        counts = [self.num_places if token == PLACE else 1 for token in body["token_ids"]]
        ids = [token for token, count in zip(body["token_ids"], counts, strict=True) for _ in range(count)]
        reply = self.complete({"prompt": ids, "model": body["model"], **body["sampling_params"]})
        assert reply is not None
        status, answer = reply
        answer |= {"prompt_token_ids": ids, "prompt_logprobs": answer["choices"][0].get("prompt_logprobs")}
        for choice in answer["choices"]:
            sampled = choice.get("logprobs")
            choice["logprobs"] = sampled and {"content": [{"logprob": one} for one in sampled["token_logprobs"]]}
        return status, answer

    def renew(self, path: str, body: dict[str, Any] | None) -> tuple[int, Any]:
        if path == "/weight_info":
            return 200, {"weight_version": self.weight_version}
        self.transfer.append((path, body))
        if path == "/collective_rpc":
            assert body is not None
            assert body["method"] == "reload_weights"
            folder = Path(body["kwargs"]["weights_path"])
            assert sorted(load_file(folder / "model-00001.safetensors")) == sorted(WHOLE)
            self.weights.append(folder.name)
            self.folder = folder.parent
        elif path == "/update_weight_version":
            assert body is not None
            self.weight_version = body["new_version"]
        return 200, {"success": True}

    def complete(self, body: dict[str, Any]) -> tuple[int, Any] | None:
        if len(self.completions) == self.restarts_after:
            self.restarts_after = None
            self.restart()
        if body["model"] != self.model and body["model"] not in self.adapters:
            return 404, {"error": {"message": f"The model `{body['model']}` does not exist."}}
        if body.get("allowed_token_ids"):  # the client's question about log-probabilities
            return 200, {"choices": [{"logprobs": {"token_logprobs": [self.logprob]}}]}
        if self.drops:
            self.drops -= 1
            return None
        if "prompt_logprobs" in body:  # of each token a 1000th of its id
            ids = body["prompt"]
            logprobs = [None, *({str(token): {"logprob": -token / 1000, "rank": 7}} for token in ids[1:])]
            return 200, {"model": self.serves_as or body["model"], "choices": [{"prompt_logprobs": logprobs}]}
        self.completions.append(body)
        choices = [
            {
                "index": i,
                "token_ids": [32 + (body["seed"] + i + k) % 90 for k in range(2)],
                "prompt_token_ids": body["prompt"],
                "logprobs": {"token_logprobs": [-0.5, -1.0]},
                "finish_reason": "stop",
            }
            for i in reversed(range(body["n"]))  # in no order
        ]
        answer = {"model": self.serves_as or body["model"], "choices": choices}
        return self.changes.pop(0)(answer) if self.changes else (200, answer)


class Handler(BaseHTTPRequestHandler):
    server: FakeVLLM

    def do_GET(self) -> None:
        self.answer({})

    def do_POST(self) -> None:
        self.answer(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))

    def answer(self, body: dict[str, Any]) -> None:
        with self.server.lock:
            reply = self.server.reply(self.path, body)
        if reply is None:
            self.connection.shutdown(socket.SHUT_RDWR)
            return
        status, content = reply
        self.send_response(status)
        self.end_headers()
        self.wfile.write((content if isinstance(content, str) else json.dumps(content)).encode())

    def log_message(self, *_: Any) -> None: ...


@contextmanager
def fakes() -> Iterator[Callable[..., FakeVLLM]]:
    """Starts servers, and stops them at the end of the block."""
    servers: list[FakeVLLM] = []

    def fake(**options: Any) -> FakeVLLM:
        server = FakeVLLM(**options)
        servers.append(server)
        Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        return server

    try:
        yield fake
    finally:
        for server in servers:
            server.shutdown()
            server.server_close()


def engine_on(
    urls: Sequence[str],
    folder: Path,
    of_agent: Mapping[str, str] = TEAM,
    adapters: Mapping[str, LoraConfig] | None = None,
    **options: Any,
) -> VllmServer:
    """An engine on these servers; to it a token is the number of a letter.

    Args:
        urls: Of the servers.
        folder: For weights.
        of_agent: The policy of each agent.
        adapters: Policies that are adapters; both of `TEAM` by default.
        options: Of the configuration, of `VllmServer` its `max_requests` and `open_transfer`, and `images` of codecs.
    """
    own = {name: options.pop(name) for name in ("max_requests", "open_transfer") if name in options}
    images = options.pop("images", None)
    options = {"vllm_server_timeout": 5.0, "max_completion_length": 8, **options}
    args = MultiAgentGRPOConfig(str(folder), use_cpu=True, bf16=False, **options)
    codec = PromptCodec(
        tokenize=lambda prompt: [ord(letter) for letter in prompt.messages[-1]["content"]],
        decode=lambda ids: "".join(map(chr, ids)),
        stop_token_ids=[7],
        images=images,
    )
    return VllmServer(
        urls,
        of_agent=of_agent,
        adapters={"opener": LORA, "closer": LORA} if adapters is None else adapters,
        params=VllmParams.of_config(args, dict.fromkeys(of_agent, codec)),
        folder=folder,
        patience=args.vllm_server_timeout,
        **own,
    )


def answers_of(engine: VllmServer, requests: Mapping[int, Request]) -> dict[int, Sampled]:
    """The answers to requests by ticket, within a rollout."""
    answers: dict[int, Sampled] = {}
    for ticket, request in requests.items():
        engine.submit(ticket, request)
    while len(answers) < len(requests):
        answers.update(engine.step())
    return answers
