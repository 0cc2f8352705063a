"""A fake of vLLM's engine: it samples made-up tokens, keeps the weights that `load` gave it, and scores with those."""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch
from datasets import Dataset
from peft import get_peft_model, set_peft_model_state_dict
from torch import nn
from transformers import Qwen3ForCausalLM

from pettingllms_trl import Completion, MultiAgentGRPOTrainer
from pettingllms_trl.records import NamedTensors, Prompt, Request, Sampled, Scored
from short_runs import settings
from third_party import Relay


class Shadow:
    """See the head of this file.

    Args:
        path: Of the model that it loads, as vLLM does.
        live: The trainer's model: what `rollout` compares its own weights with.
        adapters: Of each policy that is an adapter, its configuration.
        params: As for vLLM.
        dtype: Of the weights that it scores with.
    """

    is_batched, is_remote = False, False
    can_load_base = True

    def __init__(
        self, path: str, live: nn.Module, adapters: Mapping[str, Any], params: Any, dtype: torch.dtype
    ) -> None:
        self._live, self._adapters, self._params = live, adapters, params
        self._waiting: list[tuple[int, Any]] = []
        self.model: Any = Qwen3ForCausalLM.from_pretrained(path, dtype=dtype)
        for name, config in adapters.items():
            if hasattr(self.model, "peft_config"):
                self.model.add_adapter(name, config)
            else:
                self.model = get_peft_model(self.model, config, adapter_name=name)
        self.model.eval()
        self.deaf = False  # takes new weights for its own, and goes on with the old
        self.versions: dict[str, int] = {}
        self.given: list[str] = []
        """Policies whose weights were given, in order; "model" for the one that adapters stand on."""
        self.stale: dict[str, float] = {}
        """By rollout, the largest difference between a weight of the trainer's and of this."""

    def load(self, policy: str, state: NamedTensors, version: int) -> None:
        """See `ColocatedVllm`."""
        self.given.append(policy)
        self.versions[policy] = version
        if not self.deaf and policy in self._adapters:
            set_peft_model_state_dict(self.model, dict(state), adapter_name=policy)
        elif not self.deaf:
            self.model.load_state_dict(dict(state))

    def load_base(self, state: NamedTensors, version: int) -> None:
        """See `ColocatedVllm`."""
        self.given.append("model")
        own = self.model.get_base_model() if self._adapters else self.model
        tensors = {name.replace(".base_layer", ""): t for name, t in own.state_dict().items() if ".lora_" not in name}
        given = dict(state)
        with torch.no_grad():
            for name, tensor in tensors.items():
                tensor.copy_(given[name])

    @torch.no_grad()
    def score(self, policy: str, prompt: Prompt) -> Sequence[Scored]:
        """See `ColocatedVllm`."""
        if policy in self._adapters:
            self.model.set_adapter(policy)
        tokens = torch.tensor([prompt.ids])
        scores = self.model(tokens).logits[0, :-1].float().log_softmax(-1).gather(-1, tokens[0, 1:, None])
        return (Scored("this process", f"{policy}-v{self.given.count(policy)}", tuple(scores[:, 0].tolist())),)

    @contextmanager
    def rollout(self, name: str) -> Iterator[None]:
        """Whether the weights are the trainer's is looked at when a rollout begins."""
        self.stale[name] = self.distance()
        yield

    @torch.no_grad()
    def distance(self) -> float:
        """The largest difference between a weight of the trainer's and of this."""
        live = dict(self._live.named_parameters())
        return max(float((p - live[name]).abs().max()) for name, p in self.model.named_parameters())

    def submit(self, ticket: int, request: Request) -> None:
        """See `Engine`."""
        self._waiting.append((ticket, self._params.ask(ticket, request, 1024)))

    def step(self, timeout: float = 0.0) -> list[tuple[int, Sampled]]:
        """Any tokens, seeded as vLLM's."""
        ticket, asked = self._waiting.pop()
        completions: list[Completion] = []
        for k in range(asked.parameters["n"]):
            draw = random.Random(asked.parameters["seed"] + k)
            ids = [draw.randrange(5, 200) for _ in range(draw.randint(1, 8))]
            completions.append(self._params.completion(asked, ids, [-5.56] * len(ids)))
        return [(ticket, Sampled(asked.prompt, tuple(completions)))]


def shadowed(
    monkeypatch: pytest.MonkeyPatch,
    path: str,
    output_dir: Path,
    *,
    dtype: torch.dtype = torch.float32,
    compare_every: int | None = None,
    **options: Any,
) -> tuple[MultiAgentGRPOTrainer, list[Shadow]]:
    """A trainer of a relay's two agents, and its engines in the order of the models."""
    engines: list[Shadow] = []

    def colocated(
        group: Any,
        weights: Any,
        args: Any,
        tensor_parallel: None,
        *,
        memory_share: float,
        images: None,
        options: Mapping[str, Any],
    ) -> Shadow:
        engines.append(Shadow(path, weights, options["adapters"], options["params"], dtype))
        return engines[-1]

    monkeypatch.setattr("pettingllms_trl.engines.vllm.kind._colocated", colocated)
    if compare_every is not None:
        monkeypatch.setattr("pettingllms_trl.engines.synced_engines.CANARY_STEPS", compare_every)
    monkeypatch.setattr("pettingllms_trl.engines.factory.find_spec", lambda name: True)
    own = {name: options.pop(name) for name in ("policies", "peft_config", "callbacks", "model") if name in options}
    rows = Dataset.from_dict({"seed": range(8)})
    args = settings(output_dir, **{"use_vllm": True, "seed": 3, **options})
    trainer = MultiAgentGRPOTrainer(own.pop("model", path), Relay, args, rows, Dataset.from_dict({"seed": [1]}), **own)
    return trainer, engines
