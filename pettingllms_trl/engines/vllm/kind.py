"""vLLM as a kind of engine: where it samples for a group of policies, its options, and how its engines are made.

An engine is in this process (`vllm_mode="colocate"`) or `vllm serve` (`"server"`, or if `vllm_server_urls` names the
policy).
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any

import torch
from peft import PeftModel
from trl.trainer.utils import get_config_model_id

from pettingllms_trl.config import MultiAgentGRPOConfig
from pettingllms_trl.engines.batched import context_of
from pettingllms_trl.engines.kinds import EngineKind, EngineOptions, Group, GroupOfTrainer, Place, PromptCodec
from pettingllms_trl.pixels import ImageInputs
from pettingllms_trl.processes.tensor_parallel import TensorParallelGroup
from pettingllms_trl.records import PolicyEngine


def place_of(group: Group, args: MultiAgentGRPOConfig) -> Place:
    """See `EngineKind`."""
    return "server" if _urls(group, args) else "colocate"


def check(groups: Sequence[Group], args: MultiAgentGRPOConfig) -> None:
    """See `EngineKind`.

    Raises:
        ValueError: A policy has no server, sleep mode is set with several engines, or TRL cannot correct the loss for
            the sampler.
    """
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


def make(
    groups: Sequence[GroupOfTrainer],
    args: MultiAgentGRPOConfig,
    codecs: Mapping[str, PromptCodec],
    tensor_parallel: TensorParallelGroup | None,
) -> list[PolicyEngine]:
    """See `EngineKind`."""
    from pettingllms_trl.engines.vllm.params import VllmParams  # only runs with vLLM pay for it

    params = VllmParams.of_config(args, codecs)
    ports = count(args.vllm_group_port)
    shares = _shares([each.weights for each in groups if not _urls(each.group, args)])
    engines: list[PolicyEngine] = []
    for each in groups:
        options: dict[str, Any] = {
            "of_agent": each.of_agent,
            "adapters": {name: each.weights.peft_config[adapter] for name, adapter in each.adapters.items()},
            "params": params,
            "folder": Path(args.output_dir),
        }
        if urls := _urls(each.group, args):
            engines.append(_on_servers(urls, each.group, args, ports=ports, options=options))
        else:
            share = next(shares)
            images = next((codecs[agent].images for agent in each.of_agent if codecs[agent].images is not None), None)
            engines.append(
                _colocated(
                    each.group, each.weights, args, tensor_parallel, memory_share=share, images=images, options=options
                )
            )
    return engines


def _urls(group: Group, args: MultiAgentGRPOConfig) -> list[str]:
    """URLs of the replicas that sample for a group; empty if this process does."""
    given = args.vllm_server_urls
    own = given.items() if isinstance(given, dict) else ()
    url = next((url for name, url in own if name in group.names), None)
    if url is None and args.vllm_mode == "server":
        url = args.vllm_server_base_url or f"http://{args.vllm_server_host}:{args.vllm_server_port}"
    return url.split(",") if url else []


def _check_urls(groups: Sequence[Group], args: MultiAgentGRPOConfig) -> None:
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
    taken: dict[str, Group] = {}
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
    urls: Sequence[str], group: Group, args: MultiAgentGRPOConfig, *, ports: Iterator[int], options: Mapping[str, Any]
) -> PolicyEngine:
    from pettingllms_trl.engines.vllm.server import VllmServer

    open_transfer = None
    trains_whole = any(each.is_trained and each.name not in options["adapters"] for each in group.policies)
    if args.vllm_weight_transfer == "nccl" and trains_whole:
        from pettingllms_trl.engines.vllm.weight_transfer import NcclTransfer

        open_transfer = partial(NcclTransfer, device=args.device, ports=ports, patience=args.vllm_server_timeout)
    return VllmServer(urls, patience=args.vllm_server_timeout, open_transfer=open_transfer, **options)


def _colocated(
    group: Group,
    weights: Any,
    args: MultiAgentGRPOConfig,
    tensor_parallel: TensorParallelGroup | None,
    *,
    memory_share: float,
    images: ImageInputs | None,
    options: Mapping[str, Any],
) -> PolicyEngine:
    name = get_config_model_id(weights.config)
    if not name:
        raise ValueError(
            f"use_vllm=True with a model of {group.name} that was not loaded from a folder or the Hub; vLLM loads it "
            "itself from there. Save it (model.save_pretrained) and give the folder."
        )
    _check_max_length(args.vllm_max_model_length, context_of(weights.config.get_text_config()), name)
    from pettingllms_trl.engines.vllm.colocated import (
        ColocatedVllm,
        engine_arguments,
        image_arguments,
    )  # takes seconds to import

    dtype = "auto" if args.bf16 or args.fp16 else "float32"
    quantization = {"quantization": "bitsandbytes"} if _in_4_bit(weights) else {}
    arguments = {"model": name, "dtype": dtype, **engine_arguments(args, memory_share=memory_share), **quantization}
    if commit := getattr(weights.config, "_commit_hash", None):  # of the Hub, where `main` may be another model
        arguments |= {"revision": commit, "tokenizer_revision": commit}
    if images is not None:
        arguments |= image_arguments(images, adapts_vision=_adapts_vision(weights))
    if tensor_parallel is None:
        return ColocatedVllm(arguments, **options)
    from pettingllms_trl.engines.vllm.tensor_parallel import TensorParallelVllm

    return TensorParallelVllm(arguments, group=tensor_parallel, **options)


def _adapts_vision(weights: Any) -> bool:
    """Whether an adapter is on more than the language part of a model with vision."""
    if not isinstance(weights, PeftModel):
        return False
    language = {id(parameter) for parameter in weights.get_base_model().get_decoder().parameters()}
    return any(".lora_" in name and id(parameter) not in language for name, parameter in weights.named_parameters())


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


VLLM = EngineKind(
    is_chosen=lambda args: bool(args.use_vllm),
    place_of=place_of,
    check=check,
    make=make,
    servers_of=_urls,
    options=EngineOptions(
        name="vLLM",
        max_length="vllm_max_model_length",
        processes="vllm_tensor_parallel_size",
        memory_share="vllm_gpu_memory_utilization",
        sleeps="vllm_enable_sleep_mode",
        server_processes="vllm serve --tensor-parallel-size",
    ),
    recorded=("use_vllm",),
    is_seeded=True,
    package="vllm",
    instead="take a server (vllm_mode='server'), or leave use_vllm out",
)
