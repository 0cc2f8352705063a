"""Creates the engines of a run, one for each group of policies, and decides when they get new weights.

| policy                                   | `use_vllm=True`                                           | without      |
|------------------------------------------|-----------------------------------------------------------|--------------|
| the trainer's model, adapters on it      | one engine for all of them, an adapter per request        | `generate`   |
| a full model                             | an engine of its own                                      | `generate`   |
| any of them, frozen                      | the same, given weights once, and again after a load      | `generate`   |
| an API                                   | its function, on threads beside the engines               | the same     |

An engine is in this process (`vllm_mode="colocate"`) or `vllm serve` (`"server"`, or if `vllm_server_urls` names the
policy). Each full model has its own engine: teams play asynchronously, so requests of all policies are in flight at
the same time, and a shared engine would have to be drained and given other weights whenever the acting agent changes.
The cost is memory for the weights, which is divided by model size.
"""

from __future__ import annotations

import warnings
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from importlib.util import find_spec
from itertools import count
from pathlib import Path
from typing import Any

import torch
from peft import PeftModel
from trl.trainer.utils import get_config_model_id

from pettingllms_envs.installing import install_command
from pettingllms_trl.config import MultiAgentGRPOConfig
from pettingllms_trl.engines.api import ApiEngine, ask_sequentially
from pettingllms_trl.engines.batched import BatchedEngine, context_of
from pettingllms_trl.engines.router import EngineRouter
from pettingllms_trl.engines.transformers import check_continuous_batching
from pettingllms_trl.engines.weight_store import ServedPolicies, WeightsVersion, check_one_version
from pettingllms_trl.policies import sampling
from pettingllms_trl.policies.routing import Policy, Routing
from pettingllms_trl.policies.weights import weights_of
from pettingllms_trl.processes.tensor_parallel import TensorParallelGroup, tensor_parallel_group
from pettingllms_trl.records import Engine, PolicyEngine, Sample, Scored
from pettingllms_trl.role_sampling import parse
from pettingllms_trl.vllm_engines.params import PromptCodec, VllmParams
from pettingllms_trl.vllm_engines.weight_transfer import NcclTransfer


def check_served(routing: Routing, args: MultiAgentGRPOConfig) -> None:
    """Validate the settings of the engines.

    Raises:
        ImportError: vLLM is not installed, and is needed in this process.
        ValueError: A policy has no server, sleep mode is set with several engines, TRL cannot correct the loss for the
            sampler, or a role's sampling is not supported.
    """
    sampling.check(args, parse(args.role_sampling), routing)
    if args.use_transformers_continuous_batching:
        check_continuous_batching(args)
    if not args.use_vllm:
        return
    groups = _groups(routing)
    _check_urls(groups, args)
    here = [group for group in groups if not _urls(group, args)]
    if not here and args.vllm_tensor_parallel_size > 1:
        size = args.vllm_tensor_parallel_size
        warnings.warn(
            f"vllm_tensor_parallel_size={size} has no effect, as all engines are on servers; expected "
            f"`vllm serve --tensor-parallel-size {size}` where they are started. Leave it out here.",
            stacklevel=2,
        )
    if args.vllm_weight_transfer == "nccl":
        _check_nccl(args, are_servers=len(here) < len(groups))
    if args.vllm_enable_sleep_mode and len(here) > 1:
        raise ValueError(
            f"vllm_enable_sleep_mode=True with an engine each for {', '.join(group.name for group in here)}, but vLLM "
            "lets one engine of a process sleep. Leave it False and share vllm_gpu_memory_utilization out, or put all "
            "but one on servers (vllm_server_urls)."
        )
    if args.loss_type == "vespo" and args.vllm_importance_sampling_correction:
        modes = ("token_truncate", "token_mask")
        if args.vllm_importance_sampling_mode not in modes:
            raise ValueError(
                f"loss_type='vespo' with vllm_importance_sampling_mode={args.vllm_importance_sampling_mode!r}; "
                f"expected one of {modes}. Set it, or vllm_importance_sampling_correction=False."
            )
    if here and find_spec("vllm") is None:
        raise ImportError(
            f"use_vllm=True, but vLLM is not installed. Run {install_command('vllm')}, take a server "
            "(vllm_mode='server'), or leave use_vllm out."
        )


class EngineSet:
    """All engines of a run, and their synchronization with the trainer's weights.

    Args:
        args: The trainer's.
        routing: The policy of each agent.
        model: The trainer's model.
        in_memory: Policies whose model was given as an object, which may differ from what vLLM loads by its name.
        sample: Answers requests by `generate`, for policies without another engine.
        codecs: Codec of each agent whose policy has weights here.

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
        codecs: Mapping[str, PromptCodec],
    ) -> None:
        self._served: list[ServedPolicies] = []
        self.tensor_parallel: TensorParallelGroup | None = None
        if args.use_vllm:
            overrides = sampling.of_agents(parse(args.role_sampling), list(routing.of_agent))
            params = VllmParams.of_config(args, codecs, overrides)
            groups = _groups(routing)
            ports = count(args.vllm_group_port)
            here = [group for group in groups if not _urls(group, args)]
            if here and args.world_size > 1 and args.vllm_tensor_parallel_size > 1:
                self.tensor_parallel = tensor_parallel_group(args, args.vllm_tensor_parallel_size)
            shares = _shares([weights_of(model, group.policies[0]) for group in here])
            engine: PolicyEngine
            for group in groups:
                weights = weights_of(model, group.policies[0])
                adapters = _adapters(group, weights)
                options: dict[str, Any] = {
                    "of_agent": {a: name for a, name in routing.of_agent.items() if name in group.names},
                    "adapters": {name: weights.peft_config[adapter] for name, adapter in adapters.items()},
                    "params": params,
                    "folder": Path(args.output_dir),
                }
                if urls := _urls(group, args):
                    engine = _on_servers(urls, group, args, ports=ports, options=options)
                else:
                    share = next(shares)
                    engine = _colocated(
                        group, weights, args, self.tensor_parallel, memory_share=share, options=options
                    )
                self._served.append(
                    ServedPolicies(group.policies, engine, adapters, is_in_memory=group.names[0] in in_memory)
                )
        batched = BatchedEngine(sample)
        of_policy = {policy.name: served.engine for served in self._served for policy in served.policies}
        of_agent = {agent: of_policy.get(name, batched) for agent, name in routing.of_agent.items()}
        self.engine: Engine = EngineRouter(of_agent | _asking(routing, args))

    @property
    def served(self) -> tuple[str, ...]:
        """Names of the policies that an engine samples for."""
        return tuple(policy.name for served in self._served for policy in served.policies)

    def given(self, policy: str) -> int:
        """The version of a policy's weights that its engine has. 0: those that it loaded itself."""
        return self._of(policy).version_of(policy)

    def sync_weights(self, model: Any, version: WeightsVersion) -> None:
        """Send the weights to the engines that have another version of them. All processes call it at one point.

        Args:
            model: The trainer's model.
            version: Version of its weights.
        """
        if self._served:
            check_one_version(version)
        for served in self._served:
            served.sync_weights(weights_of(model, served.policies[0]), version)

    def score(self, policy: str, ids: Sequence[int]) -> Sequence[Scored]:
        """A policy's log-probabilities of a text, on each replica of its engine. Only during a rollout.

        Args:
            policy: One of `served`.
            ids: Token ids; they are truncated to the engine's context.
        """
        return self._of(policy).engine.score(policy, ids)

    def _of(self, policy: str) -> ServedPolicies:
        return next(served for served in self._served if policy in {own.name for own in served.policies})


@dataclass(frozen=True, slots=True)
class _Group:
    """Policies that share an engine: a full model, or the trainer's model with all adapters on it."""

    policies: tuple[Policy, ...]

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(policy.name for policy in self.policies)

    @property
    def name(self) -> str:
        return " and ".join(map(repr, self.names))


def _groups(routing: Routing) -> list[_Group]:
    standing = tuple(policy for policy in routing.policies if policy.model is None and policy.api is None)
    return [_Group(group) for group in (standing, *((policy,) for policy in routing.full)) if group]


def _urls(group: _Group, args: MultiAgentGRPOConfig) -> list[str]:
    """URLs of the replicas that sample for a group; empty if this process does."""
    given = args.vllm_server_urls
    own = given.items() if isinstance(given, dict) else ()
    url = next((url for name, url in own if name in group.names), None)
    if url is None and args.vllm_mode == "server":
        url = args.vllm_server_base_url or f"http://{args.vllm_server_host}:{args.vllm_server_port}"
    return url.split(",") if url else []


def _check_urls(groups: Sequence[_Group], args: MultiAgentGRPOConfig) -> None:
    """Check that each server has the weights of only one group."""
    given = args.vllm_server_urls or {}
    if isinstance(given, str):
        raise ValueError(f"vllm_server_urls is {given!r}, expected a mapping. Write it in YAML, or as JSON.")
    names = [name for group in groups for name in group.names]
    for name in given:
        if name not in names:
            raise ValueError(
                f"vllm_server_urls names {name!r}, expected policies with weights here: {', '.join(names) or 'none'}. "
                "Name one of them."
            )
    taken: dict[str, _Group] = {}
    for group in groups:
        if len({given[name] for name in group.names if name in given}) > 1:
            raise ValueError(
                f"vllm_server_urls gives {group.name} different servers, but they stand on one model, which one "
                "server has. Give all of them the same."
            )
        for url in _urls(group, args):
            if url in taken:
                raise ValueError(
                    f"the policies {taken[url].name} and {group.name} would be on one server, {url}, but are models "
                    "of their own, and a server has one. Start one for each, and say where: vllm_server_urls={policy: "
                    "url}."
                )
            taken[url] = group


def _check_nccl(args: MultiAgentGRPOConfig, *, are_servers: bool) -> None:
    if not are_servers:
        raise ValueError(
            "vllm_weight_transfer='nccl' with all engines in the trainer's processes, which are given weights there. "
            "Leave it out, or say where the servers are: vllm_mode='server', vllm_server_base_url='http://...'."
        )
    if args.device.type != "cuda":
        raise ValueError(
            f"vllm_weight_transfer='nccl' with the trainer on {args.device}, expected a CUDA device. Leave it out: "
            "with 'files' the servers read the weights from output_dir."
        )


def _on_servers(
    urls: Sequence[str], group: _Group, args: MultiAgentGRPOConfig, *, ports: Iterator[int], options: Mapping[str, Any]
) -> PolicyEngine:
    from pettingllms_trl.vllm_engines.server import VllmServer

    open_transfer = None
    if args.vllm_weight_transfer == "nccl" and _trains_whole_model(group, options["adapters"]):
        open_transfer = partial(NcclTransfer, device=args.device, ports=ports, patience=args.vllm_server_timeout)
    return VllmServer(urls, patience=args.vllm_server_timeout, open_transfer=open_transfer, **options)


def _trains_whole_model(group: _Group, adapters: Collection[str]) -> bool:
    return any(policy.is_trained and policy.name not in adapters for policy in group.policies)


def _colocated(
    group: _Group,
    weights: Any,
    args: MultiAgentGRPOConfig,
    tensor_parallel: TensorParallelGroup | None,
    *,
    memory_share: float,
    options: Mapping[str, Any],
) -> PolicyEngine:
    name = get_config_model_id(weights.config)
    if not name:
        raise ValueError(
            f"use_vllm=True with a model of {group.name} that was not loaded from a folder or the Hub; vLLM loads it "
            "itself from there. Save it (model.save_pretrained) and give the folder."
        )
    _check_max_length(args.vllm_max_model_length, context_of(weights.config.get_text_config()), name)
    from pettingllms_trl.vllm_engines.colocated import ColocatedVllm, engine_arguments  # takes seconds to import

    dtype = "auto" if args.bf16 or args.fp16 else "float32"
    quantization = {"quantization": "bitsandbytes"} if _in_4_bit(weights) else {}
    arguments = {"model": name, "dtype": dtype, **engine_arguments(args, memory_share=memory_share), **quantization}
    if tensor_parallel is None:
        return ColocatedVllm(arguments, **options)
    from pettingllms_trl.vllm_engines.tensor_parallel import TensorParallelVllm

    return TensorParallelVllm(arguments, group=tensor_parallel, **options)


def _check_max_length(given: int | None, context: int | None, name: str) -> None:
    if given is not None and context is not None and given > context:
        raise ValueError(
            f"vllm_max_model_length is {given:,}, but {name} takes {context:,} tokens at most; vLLM does not start. "
            f"Set {context} or less."
        )


def _in_4_bit(weights: Any) -> bool:
    base = weights.get_base_model() if isinstance(weights, PeftModel) else weights
    return bool(getattr(base, "is_loaded_in_4bit", False))  # transformers sets it where it is true


def _shares(models: Sequence[torch.nn.Module]) -> Iterator[float]:
    """Each engine's share of vLLM's memory, by the size of its model: equal shares might not fit the largest."""
    sizes = [sum(_numel(parameter) for parameter in model.parameters()) for model in models]
    return (size / sum(sizes) for size in sizes)


def _numel(parameter: torch.nn.Parameter) -> int:
    """The number of elements, of which ZeRO-3 leaves none in a parameter that it has partitioned."""
    numel: int = parameter.ds_numel if hasattr(parameter, "ds_numel") else parameter.numel()
    return numel


def _adapters(group: _Group, weights: Any) -> dict[str, str]:
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
    asking: Engine = (
        ApiEngine(of_agent, num_threads=args.num_threads)
        if args.num_threads
        else BatchedEngine(partial(ask_sequentially, of_agent))
    )
    return dict.fromkeys(of_agent, asking)
