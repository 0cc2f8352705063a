"""Base class of vLLM engines in this process and on servers: maps policies to adapters, and updates weights.

A policy is the engine's own model, or a LoRA adapter on it, chosen for each request. An adapter's weights are written
to a folder and loaded from it, each version under a new name; a full model's weights replace the engine's.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from functools import cached_property
from pathlib import Path

from peft import PeftConfig

from pettingllms_trl.engines.vllm.adapters import check_adapters
from pettingllms_trl.engines.vllm.params import VllmParams, VllmRequest
from pettingllms_trl.engines.weight_store import AdapterVersion, StaleWeights, WeightStore, in_host_memory
from pettingllms_trl.records import NamedTensors, Request


class VllmEngine(ABC):
    """See `pettingllms_trl.records.PolicyEngine`.

    Args:
        adapters: Configuration, as PEFT resolved it, of each policy that is an adapter; others are the model itself.
        folder: Folder to which weights are written for vLLM to read.
    """

    is_batched = False
    max_model_len: int
    """Most tokens of prompt and completion together."""

    def __init__(
        self, *, of_agent: Mapping[str, str], adapters: Mapping[str, PeftConfig], params: VllmParams, folder: Path
    ) -> None:
        if adapters:
            check_adapters(adapters)
        self._of_agent, self._adapters, self._params, self._folder = of_agent, adapters, params, folder
        self._bases = tuple(policy for policy in dict.fromkeys(of_agent.values()) if policy not in adapters)
        self._serving: dict[str, AdapterVersion] = {}
        self._versions: dict[str, int] = {}

    @cached_property
    def _store(self) -> WeightStore:
        """Made when it is first needed: of the processes that share servers, the main one alone writes weights."""
        return WeightStore(self._folder)

    @property
    def versions(self) -> Mapping[str, int]:
        return self._versions

    def load(self, policy: str, state: NamedTensors, version: int) -> None:
        """See `WeightSync`.

        Raises:
            StaleWeights: Requests are in flight; their answers would be of the old weights, or of both.
            ValueError: Weights of a model that several policies share, that vLLM does not take, or of a version no
                higher than the last.
        """
        self._check_idle(f"new weights of policy {policy!r}")
        last = self._versions.get(policy)
        if last is not None and version <= last:
            raise ValueError(
                f"version {version} of policy {policy!r} after version {last}, expected a higher one: vLLM keeps what "
                "it computed under a name, and would serve it again."
            )
        if policy in self._adapters:
            config, tensors = self._adapters[policy], in_host_memory(state)
            self._serve(self._store.write(policy, version, config, tensors))
            for base in self._bases:
                if base not in self._serving:
                    self._serve(self._store.write_zero(base, config, tensors))
        elif self._bases != (policy,):
            raise ValueError(
                f"weights of policy {policy!r}, but the engine's own are those of {self._bases}: one set can be "
                "trained for one policy. Give each an adapter, or an engine of its own."
            )
        else:
            self._replace_model(policy, state, version)
        self._versions[policy] = version

    def load_base(self, state: NamedTensors, version: int) -> None:
        """See `WeightSync`; `StaleWeights` if requests are in flight."""
        self._check_idle("new weights of the model")
        self._replace_model("model", state, version)

    def _serve(self, version: AdapterVersion) -> None:
        """Replace the previous version, which is no longer used, by a new one."""
        before = self._serving.get(version.policy)
        self._exchange(before, version)
        self._serving[version.policy] = version
        if before is not None:
            self._store.remove(before)

    def _check_idle(self, what: str) -> None:
        if self.num_in_flight:
            raise StaleWeights(
                f"{what} while {self.num_in_flight} requests are in flight, expected none: their tokens would come "
                "from the old weights. Load and score before the rollout or after it."
            )

    def submit(self, ticket: int, request: Request) -> None:
        """See `Engine`.

        Raises:
            StaleWeights: The policy was never given its weights.
            ValueError: The prompt leaves no room for a completion.
        """
        policy = self._of_agent[request.agent]
        if self._adapters and policy not in self._serving:
            raise StaleWeights(f"a request of policy {policy!r}, whose weights were never given. Call load first.")
        asked = self._params.ask(ticket, request, self.max_model_len)
        self._send(asked, self._serving.get(policy))

    def _agent_of(self, policy: str) -> str:
        return next(agent for agent, name in self._of_agent.items() if name == policy)

    # ---- What each does in its own way ------------------------------------------------------------------------------

    @property
    @abstractmethod
    def num_in_flight(self) -> int:
        """Requests that were taken and not answered."""

    @abstractmethod
    def _exchange(self, before: AdapterVersion | None, version: AdapterVersion) -> None:
        """Load an adapter, and unload the one that it replaces."""

    @abstractmethod
    def _replace_model(self, name: str, state: NamedTensors, version: int) -> None:
        """Replace the engine's own weights by those of a full model."""

    @abstractmethod
    def _send(self, asked: VllmRequest, served: AdapterVersion | None) -> None:
        """Start a request, with an adapter or with the model itself."""
