"""Coordinates several processes; all of them must call each function here.

| when                 | what                                                                                       |
|----------------------|--------------------------------------------------------------------------------------------|
| at construction      | settings that are not supported with several processes raise an error                      |
| a rollout            | each plays at its own pace, with sharded weights gathered once, or an engine with weights  |
|                      | of its own; then all have all episodes                                                     |
| a micro-step         | gradients are not synchronized until an optimizer step's last pass is over                 |
| before the optimizer | the gradients of the policies that had a pass are averaged                                 |

With one process all of this is a no-op.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import torch
from accelerate import Accelerator
from accelerate.utils import DistributedType
from peft import PeftModel
from torch import distributed, nn
from torch.distributed.fsdp import FSDPModule, StateDictType
from transformers import PreTrainedModel
from trl.models.utils import add_hooks, remove_hooks

from pettingllms_trl.config import MultiAgentGRPOConfig
from pettingllms_trl.policies.multi_model import MultiPolicyModel
from pettingllms_trl.policies.routing import Routing


GATHERS_TO_SAVE = "stage3_gather_16bit_weights_on_model_save"
BUCKET = 1 << 26
"""Number of gradient elements averaged in one message."""


def check_processes(routing: Routing, args: MultiAgentGRPOConfig, *, takes_turns: bool = False) -> None:
    """Validate settings for several processes and DeepSpeed.

    `takes_turns`: whether some policies are not trained on every generation.
    """
    kind = args.distributed_state.distributed_type
    if args.world_size > 1 and args.accelerator_config.split_batches:
        raise ValueError(
            f"accelerator_config.split_batches=True with {args.world_size} processes; expected False: every process "
            "is given a generation's rows and plays its share of them. Leave it out."
        )
    if takes_turns and kind == DistributedType.DEEPSPEED:
        raise ValueError(
            "a schedule (or alternate_every) with DeepSpeed, which steps all policies together: those whose turn it "
            "is not would be moved by weight decay and momentum. Leave it out, or use DDP or FSDP2."
        )
    for policy in routing.trained:
        if policy.max_grad_norm is not None and kind == DistributedType.DEEPSPEED:
            raise ValueError(
                f"policy {policy.name!r} has max_grad_norm={policy.max_grad_norm}, but DeepSpeed clips by the common "
                "norm of all policies, inside its step. Leave it out, or use DDP or FSDP2."
            )


def check_sharding(routing: Routing, accelerator: Accelerator, *, gathers: bool = True) -> None:
    """Validate that a configuration of FSDP or DeepSpeed trains and saves what it should.

    `gathers` is `ds3_gather_for_generation`.
    """
    fsdp = accelerator.state.fsdp_plugin if accelerator.distributed_type == DistributedType.FSDP else None
    deepspeed = accelerator.state.deepspeed_plugin
    if fsdp is not None and fsdp.fsdp_version != 2:
        raise ValueError(
            f"fsdp_version={fsdp.fsdp_version}, expected 2: the older one flattens the parameters of several policies "
            "into one tensor. Set fsdp_version: 2, as examples/accelerate_configs/fsdp2.yaml does."
        )
    if fsdp is not None and fsdp.state_dict_type != StateDictType.FULL_STATE_DICT:
        raise ValueError(
            f"fsdp_state_dict_type is {fsdp.state_dict_type.name}, expected FULL_STATE_DICT: of several adapters the "
            "others save one. Set fsdp_state_dict_type: FULL_STATE_DICT."
        )
    zero = {} if deepspeed is None else deepspeed.deepspeed_config.get("zero_optimization", {})
    if zero.get("stage") == 3 and not gathers:
        raise ValueError(
            "ds3_gather_for_generation=False with ZeRO-3, expected True: weights are gathered once for all batches "
            "that a rollout samples. Leave it out; where they do not fit on a GPU, sample with vLLM on a server "
            "(use_vllm=True, vllm_mode='server')."
        )
    if zero.get("stage") == 3 and (routing.full or routing.base) and not zero.get(GATHERS_TO_SAVE):
        raise ValueError(
            f"{GATHERS_TO_SAVE}=False with ZeRO-3, expected True: whole models would be saved without weights. Set "
            "zero3_save_16bit_model: true, as examples/accelerate_configs/zero3.yaml does."
        )
    offload = zero.get("offload_optimizer", {}).get("device", "none")
    if offload != "none" and len(routing.trained) > 1:
        raise ValueError(
            f"DeepSpeed's optimizer is offloaded to {offload!r} with {len(routing.trained)} trained policies, "
            "expected offload_optimizer_device: none, for gradients were wrong there without a word. Set that."
        )
    own_rates = [policy.name for policy in routing.trained if policy.learning_rate is not None]
    if deepspeed is not None and own_rates and "optimizer" in deepspeed.deepspeed_config:
        raise ValueError(
            f"policy {own_rates[0]!r} has a learning_rate of its own, but DeepSpeed's configuration has an optimizer, "
            "which gives all the same. Leave the optimizer out of that configuration."
        )


def is_deepspeed(accelerator: Accelerator) -> bool:
    """Whether DeepSpeed trains, which takes its optimizer steps itself."""
    return getattr(accelerator.state, "deepspeed_plugin", None) is not None


def is_fsdp(accelerator: Accelerator) -> bool:
    """Whether FSDP shards the weights."""
    return getattr(accelerator.state, "fsdp_plugin", None) is not None


def shards_weights(accelerator: Accelerator) -> bool:
    """Whether each process holds a part of the weights: FSDP, ZeRO-3."""
    return is_fsdp(accelerator) or (is_deepspeed(accelerator) and accelerator.state.deepspeed_plugin.zero_stage == 3)


def place(model: Any, accelerator: Accelerator) -> None:
    """Move a model to its device where transformers leaves it on the CPU until training begins, as with ZeRO-1 and
    ZeRO-2: it scores and samples before. Sharded weights stay, and what a device map has placed."""
    for each in model.models.values() if isinstance(model, MultiPolicyModel) else [model]:
        if not shards_weights(accelerator) and {p.device.type for p in each.parameters()} == {"cpu"}:
            each.to(accelerator.device)


@contextmanager
def accumulating(model: Any, accelerator: Accelerator) -> Iterator[None]:
    """Accumulate the gradients of backward passes inside the block, without an optimizer step.

    With DDP gradients are not sent (`average_gradients` does that); with sharded weights each pass sends its own,
    because otherwise every process would keep the gradients of the whole model.
    """
    if isinstance(model, FSDPModule):
        model.set_requires_gradient_sync(True)  # transformers switches it off in all micro-steps but the last
        yield
    elif accelerator.distributed_type == DistributedType.DEEPSPEED:
        state = accelerator.gradient_state
        before = state.sync_gradients
        state._set_sync_gradients(False)
        try:
            yield
        finally:
            state._set_sync_gradients(before)
    else:
        with accelerator.no_sync(model):
            yield


def average_gradients(parameters: Iterable[nn.Parameter]) -> None:
    """Average every gradient over the processes; a missing gradient counts as zero.

    This replaces DistributedDataParallel's own averaging, which happens during the last backward pass: with several
    policies that pass concerns only one of them, and a micro-step without rows has none.
    """
    parameters = list(parameters)
    if not parameters:
        return
    used = torch.tensor([p.grad is not None for p in parameters], dtype=torch.int32, device=parameters[0].device)
    distributed.all_reduce(used, distributed.ReduceOp.MAX)
    moved: dict[torch.dtype, list[torch.Tensor]] = {}
    for parameter, somewhere in zip(parameters, used.tolist(), strict=True):
        if somewhere:
            if parameter.grad is None:  # an expert that no token of this process was sent to
                parameter.grad = torch.zeros_like(parameter)
            moved.setdefault(parameter.grad.dtype, []).append(parameter.grad)
    for gradients in moved.values():
        for bucket in _buckets(gradients):
            flat = torch.cat([gradient.reshape(-1) for gradient in bucket])
            flat /= distributed.get_world_size()  # before the sum, which could overflow in float16; as DDP does
            distributed.all_reduce(flat)
            for gradient, mean in zip(bucket, torch.split(flat, [g.numel() for g in bucket]), strict=True):
                gradient.copy_(mean.view_as(gradient))


def _buckets(gradients: list[torch.Tensor]) -> Iterator[list[torch.Tensor]]:
    bucket: list[torch.Tensor] = []
    size = 0
    for gradient in gradients:
        if bucket and size + gradient.numel() > BUCKET:
            yield bucket
            bucket, size = [], 0
        bucket.append(gradient)
        size += gradient.numel()
    yield bucket


@contextmanager
def gathered(model: Any, accelerator: Accelerator) -> Iterator[None]:
    """Gather the sharded weights of a model prepared by `accelerator` on each process, so that each samples at its own
    pace.

    Otherwise every forward pass would gather them again, and a process that has finished would block the others.
    """
    plugin = accelerator.state.deepspeed_plugin
    if isinstance(model, FSDPModule):
        with _unsharded(model), replaced_generate(model, synced_gpus=False):
            yield
    elif plugin is not None and plugin.zero_stage == 3:
        import deepspeed

        whole = deepspeed.zero.GatheredParameters(list(model.parameters()))
        with whole, replaced_generate(accelerator.unwrap_model(model), synced_gpus=False):
            remove_hooks(model)
            try:
                yield
            finally:
                add_hooks(model)
    else:
        yield


@contextmanager
def scoring(model: Any, accelerator: Accelerator) -> Iterator[None]:
    """All processes can run the same forward pass inside the block, which gathers sharded weights layer by layer.

    What ZeRO-3 has partitioned nothing gathers until DeepSpeed has wrapped the model, when training or evaluation
    begins; before that all of it is gathered at once.
    """
    plugin = accelerator.state.deepspeed_plugin
    is_bare = isinstance(model, PreTrainedModel | PeftModel)
    if plugin is not None and plugin.zero_stage == 3 and is_bare:
        with gathered(model, accelerator):
            yield
    else:
        yield


def check_is_loaded(model: Any, accelerator: Accelerator) -> None:
    """Check that the weights are there. All processes raise, or none.

    With `fsdp_cpu_ram_efficient_loading` transformers reads them on the main process alone; the others have
    uninitialized memory until training or evaluation wraps the model, which sends them the weights.
    """
    if accelerator.distributed_type != DistributedType.FSDP or accelerator.num_processes == 1:
        return
    if not accelerator.state.fsdp_plugin.cpu_ram_efficient_loading:
        return
    if not any(isinstance(module, FSDPModule) for module in model.modules()):
        raise RuntimeError(
            "play() before train(), with fsdp_cpu_ram_efficient_loading: true, expected after it: until then only the "
            "main process has the weights. Call it later, or set it to false."
        )


@contextmanager
def _unsharded(model: Any) -> Iterator[None]:
    modules = [module for module in model.modules() if isinstance(module, FSDPModule)]
    # torch can set whether a module shards its weights again after a forward pass, but does not say what was set.
    groups = [group for module in modules for group in module._get_fsdp_state()._fsdp_param_groups]
    before = [group.post_forward_mesh_info for group in groups]
    for module in modules:
        module.set_reshard_after_forward(False, recurse=False)
        module.unshard()
    try:
        yield
    finally:
        for group, mesh_info in zip(groups, before, strict=True):
            group.post_forward_mesh_info = mesh_info
        for module in modules:
            module.reshard()


@contextmanager
def replaced_generate(model: Any, generate: Callable[..., Any] | None = None, **options: Any) -> Iterator[None]:
    """Within, `model.generate` is another function, or its own with these options. `synced_gpus=False` disables the
    empty passes with which it waits for other processes."""
    before = vars(model).get("generate")  # FSDP2 has put its own there
    model.generate = partial(generate or model.generate, **options)
    try:
        yield
    finally:
        if before is None:
            del model.generate
        else:
            model.generate = before
