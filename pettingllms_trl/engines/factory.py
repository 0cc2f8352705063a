"""Chooses the kind of engine of a run, creates its engines, one for each group of policies, and decides when they get
new weights.

| policy                                   | a kind with weights of its own (`use_vllm=True`)          | without      |
|------------------------------------------|-----------------------------------------------------------|--------------|
| the trainer's model, adapters on it      | one engine for all of them, an adapter per request        | `generate`   |
| a full model                             | an engine of its own                                      | `generate`   |
| any of them, frozen                      | the same, given weights once, and again after a load      | `generate`   |
| an API                                   | its function, on threads beside the engines               | the same     |

Each full model has its own engine: teams play asynchronously, so requests of all policies are in flight at
the same time, and a shared engine would have to be drained and given other weights whenever the acting agent changes.
The cost is memory for the weights, which is divided by model size.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from contextlib import AbstractContextManager
from functools import partial
from importlib.util import find_spec
from typing import Any

from peft import PeftModel

from pettingllms_trl.config import MultiAgentGRPOConfig
from pettingllms_trl.engines import kinds
from pettingllms_trl.engines.batched import BatchedEngine
from pettingllms_trl.engines.transformers import check_continuous_batching
from pettingllms_trl.engines.vllm.kind import VLLM
from pettingllms_trl.engines.weight_store import ServedPolicies, WeightsVersion, check_one_version
from pettingllms_trl.policies import sampling
from pettingllms_trl.policies.routing import Routing
from pettingllms_trl.policies.weights import weights_of
from pettingllms_trl.processes.tensor_parallel import TensorParallelGroup, tensor_parallel_group
from pettingllms_trl.records import Engine, Prompt, Sample, Scored
from pettingllms_trl.role_sampling import parse


TRANSFORMERS = kinds.EngineKind(
    is_chosen=lambda args: True,
    place_of=lambda group, args: "generate",
    check=lambda groups, args: check_continuous_batching(args) if args.use_transformers_continuous_batching else None,
    options=kinds.EngineOptions(max_length=VLLM.options.max_length),  # conversations end there with `generate`, too
)
KINDS = (VLLM, TRANSFORMERS)
"""The kinds of engines, of which the first that the configuration asks for is taken."""


def kind_of(args: MultiAgentGRPOConfig) -> kinds.EngineKind:
    """The kind of engine that a configuration asks for."""
    return next(kind for kind in KINDS if kind.is_chosen(args))


def recorded_fields() -> list[str]:
    """The fields of the configuration by which any kind of engine decides what is sampled, for checkpoints."""
    return [name for kind in KINDS for name in kind.recorded]


def processes_of_engine(routing: Routing, args: MultiAgentGRPOConfig) -> int:
    """The number of the trainer's processes that an engine in them is split over; 1: each has whole engines."""
    kind = kind_of(args)
    if args.world_size == 1 or "colocate" not in kind.places(routing, args):
        return 1
    size: int = kinds.setting(args, kind.options.processes, 1)
    if args.world_size % size:
        raise ValueError(
            f"{kind.options.processes}={size} with {args.world_size} processes; expected a divisor of their number, "
            "since an engine is split over that many of them. Set another, or 1 for an engine in each."
        )
    return size


def check_served(routing: Routing, args: MultiAgentGRPOConfig) -> None:
    """Validate the settings of the engines, and that what is needed of their packages in this process is installed."""
    sampling.check(parse(args.role_sampling), routing, args.temperature)
    sampling.check_evaluation(parse(args.role_sampling_eval, "role_sampling_eval"), routing)
    kind = kind_of(args)
    kind.check(kinds.groups_of(routing), args)
    processes_of_engine(routing, args)
    if kind.package and "colocate" in kind.places(routing, args) and find_spec(kind.package) is None:
        from pettingllms_envs.installing import install_command

        raise ImportError(
            f"{kind.package} is to sample in this process, but is not installed. Run {install_command(kind.package)}, "
            f"{kind.instead}."
        )


class EngineSet:
    """All engines of a run, and their synchronization with the trainer's weights.

    Args:
        in_memory: Policies whose model was given as an object, which may differ from what its name loads.
        sample: Answers requests by `generate`, for policies without another engine.

    Attributes:
        tensor_parallel: The processes over which the engines are split; None if each process has whole ones.
    """

    def __init__(
        self,
        args: MultiAgentGRPOConfig,
        routing: Routing,
        model: Any,
        *,
        in_memory: Collection[str],
        sample: Sample,
        codecs: Mapping[str, kinds.PromptCodec],
        rollout: AbstractContextManager[Any] | None = None,
    ) -> None:
        from pettingllms_trl.engines.router import EngineRouter

        self._served: list[ServedPolicies] = []
        self.tensor_parallel: TensorParallelGroup | None = None
        kind = kind_of(args)
        if kind.make is not None:
            groups = [_group_of_trainer(group, routing, model) for group in kinds.groups_of(routing)]
            if (size := processes_of_engine(routing, args)) > 1:
                self.tensor_parallel = tensor_parallel_group(args, size)
            engines = kind.make(groups, args, codecs, self.tensor_parallel)
            self._served = [
                ServedPolicies(
                    each.group.policies, engine, each.adapters, is_in_memory=each.group.names[0] in in_memory
                )
                for each, engine in zip(groups, engines, strict=True)
            ]
        batched = BatchedEngine(sample, rollout)
        of_policy = {policy.name: served.engine for served in self._served for policy in served.policies}
        of_agent = {agent: of_policy.get(name, batched) for agent, name in routing.of_agent.items()}
        self.engine = EngineRouter(of_agent | _asking(routing, args))

    @property
    def served(self) -> tuple[str, ...]:
        """Names of the policies that an engine samples for."""
        return tuple(policy.name for served in self._served for policy in served.policies)

    def given(self, policy: str) -> int:
        """The version of a policy's weights that its engine has. 0: those that it loaded itself."""
        return self._of(policy).version_of(policy)

    def sync_weights(self, model: Any, version: WeightsVersion) -> None:
        """Send the weights to the engines that have another version of them. All processes call it at one point."""
        if self._served:
            check_one_version(version)
        for served in self._served:
            served.sync_weights(weights_of(model, served.policies[0]), version)

    def score(self, policy: str, prompt: Prompt) -> Sequence[Scored]:
        """A policy's log-probabilities of a text, on each replica of its engine. Only during a rollout.

        Its ids are truncated to the engine's context.
        """
        return self._of(policy).engine.score(policy, prompt)

    def _of(self, policy: str) -> ServedPolicies:
        return next(served for served in self._served if policy in {own.name for own in served.policies})


def _group_of_trainer(group: kinds.Group, routing: Routing, model: Any) -> kinds.GroupOfTrainer:
    weights = weights_of(model, group.policies[0])
    return kinds.GroupOfTrainer(
        group=group,
        weights=weights,
        of_agent={agent: name for agent, name in routing.of_agent.items() if name in group.names},
        adapters=_adapters(group, weights),
    )


def _adapters(group: kinds.Group, weights: Any) -> dict[str, str]:
    """The adapter's name in the model, for each policy that is an adapter; a shared model with a `peft_config` has
    PEFT's default name."""
    if not isinstance(weights, PeftModel):
        return {}
    if not any(policy.adapter for policy in group.policies):
        return dict.fromkeys(group.names, weights.active_adapter)
    return {policy.name: policy.adapter for policy in group.policies if policy.adapter is not None}


def _asking(routing: Routing, args: MultiAgentGRPOConfig) -> dict[str, Engine]:
    """The engine of each agent behind an API: on threads or, without threads, sequentially on the caller's."""
    apis = {policy.name: policy.api for policy in routing.policies if policy.api is not None}
    of_agent = {agent: apis[name] for agent, name in routing.of_agent.items() if name in apis}
    if not of_agent:
        return {}
    from pettingllms_trl.engines.api import ApiEngine, ask_sequentially  # only runs with an API pay for its client

    asking: Engine = (
        ApiEngine(of_agent, num_threads=args.num_threads)
        if args.num_threads
        else BatchedEngine(partial(ask_sequentially, of_agent))
    )
    return dict.fromkeys(of_agent, asking)
