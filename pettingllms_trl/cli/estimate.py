"""What a run would take, without running it: `pettingllms train --config run.yaml --estimate`.

    pettingllms train --config examples/configs/plan_path_L2_8B.yaml --estimate --gpu h100 --num_gpus 8

The options of a run are those of `pettingllms train`, and four more are of the estimate. Only the model's
configuration is read, no weights; no GPU is needed. Exit status 2 and a line that begins with "error:" say that it
does not fit.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial
from typing import Any

import torch
from peft import PeftConfig
from transformers import AutoConfig, PretrainedConfig
from trl import ModelConfig, ScriptArguments

from pettingllms_trl.cli import arguments, train
from pettingllms_trl.cli.datasets import makers
from pettingllms_trl.cli.train import TrainArguments
from pettingllms_trl.config import MultiAgentGRPOConfig, with_help
from pettingllms_trl.credit.delayed_rewards import choose_credit, delayed_agents
from pettingllms_trl.engines.factory import kind_of, processes_of_engine
from pettingllms_trl.engines.kinds import groups_of, setting
from pettingllms_trl.estimate.activations import PassBytes, pass_bytes
from pettingllms_trl.estimate.engine_options import Place
from pettingllms_trl.estimate.gpus import find_gpu
from pettingllms_trl.estimate.memory import MOMENTS, find_sharding
from pettingllms_trl.estimate.planning import Estimate
from pettingllms_trl.estimate.remedies import advise
from pettingllms_trl.estimate.report import report
from pettingllms_trl.estimate.runs import ModelPlan, Passes, RunPlan
from pettingllms_trl.estimate.shapes import Shape, shape_of
from pettingllms_trl.estimate.speed import PROMPT
from pettingllms_trl.policies.routing import Routing, route
from pettingllms_trl.processes.distributed import check_processes
from pettingllms_trl.rollout.env_checks import agents_of, make_envs
from pettingllms_trl.trainer.dataloading import several_rollouts


@with_help
@dataclass
class EstimatedConfig(MultiAgentGRPOConfig):
    r"""
    The configuration of a run on GPUs that are not here.

    Args:
        estimate (`bool`, *optional*, defaults to `False`):
            Print what the run would take of GPUs that are not here, and train nothing.
        gpu (`str`, *optional*, defaults to `"h100"`):
            With --estimate: which GPU, a100 or h100 of 80 GB, h200, l40s or rtx4090.
        num_gpus (`int`, *optional*, defaults to `1`):
            With --estimate: trainer processes, one for each GPU: `num_processes` of the configuration of accelerate.
        sharding (`str`, *optional*, defaults to `"ddp"`):
            With --estimate: which of `examples/accelerate_configs` it is launched with, ddp, zero2, zero3 or fsdp2.
        prompt_tokens (`int`, *optional*, defaults to `500`):
            With --estimate: tokens of the longest prompt, those of its images included.
        image_tokens (`int`, *optional*, defaults to `0`):
            With --estimate: of these, tokens of images: of Qwen2.5-VL one for each 28 x 28 pixels.
    """

    estimate: bool = False
    gpu: str = "h100"
    num_gpus: int = 1
    sharding: str = "ddp"
    prompt_tokens: int = PROMPT
    image_tokens: int = 0

    def __post_init__(self) -> None:
        for name in ("num_gpus", "prompt_tokens"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name}={getattr(self, name)}; expected 1 or more. Set --{name} 8, say.")
        find_gpu(self.gpu)
        find_sharding(self.sharding)
        if self.use_cpu:
            raise ValueError(
                "use_cpu is True, so the run would be on a CPU; expected one on GPUs, of which the estimate is. Add "
                "--use_cpu false to see what it would take there, or leave --estimate out."
            )
        self.use_cpu: bool = True  # transformers looks for a GPU that computes in bfloat16
        super().__post_init__()

    @property
    def world_size(self) -> int:
        """The processes of the run, not of this command; TRL and this package divide batches by it."""
        return self.num_gpus


KINDS = (TrainArguments, ScriptArguments, EstimatedConfig, arguments.TeamModelConfig)


def prepare(argv: Sequence[str]) -> Callable[[], None]:
    """Estimate, and return a function that prints it; printed here, before the `ValueError`, if it does not fit."""
    found = estimated(argv)
    if found.problems:
        print(report(found), end="\n\n", flush=True)  # noqa: T201  # what the command is for
        raise ValueError(" ".join(found.problems))

    def show() -> None:
        print(report(found), end="\n\nIt fits.\n")  # noqa: T201

    return show


def estimated(argv: Sequence[str]) -> Estimate:
    """The estimate of a run whose arguments these are. Raises as `prepare` does."""
    given, _, args, config = arguments.parse(argv, KINDS, prog="pettingllms train", description=train.__doc__)
    arguments.check_model(config)
    arguments.import_packages(given.imports)
    found = advise(plan_of(given, args, config))
    waits = several_rollouts(args)
    return replace(found, notes=(*([f"Careful: {waits}"] if waits else []), *found.notes))


def plan_of(given: TrainArguments, args: EstimatedConfig, config: ModelConfig) -> RunPlan:
    """What of the arguments memory and speed depend on."""
    if config.load_in_4bit or config.load_in_8bit:
        raise ValueError("load_in_4bit or load_in_8bit is set; expected neither: their memory is not known here.")
    if (optim := str(getattr(args.optim, "value", args.optim))) not in MOMENTS:
        raise ValueError(f"optim is {optim!r}; expected one whose states are known: {', '.join(MOMENTS)}. Set it.")
    assert given.policies is not None
    envs = {name: [env] for name, env in make_envs(makers(given)).items()}
    routing = route(given.policies, agents_of(envs), model=config.model_name_or_path)
    delayed = [agent for agent in delayed_agents(envs) if agent not in routing.partners]
    check_processes(routing, args)
    kind = kind_of(args)
    sampler: Place = next(iter(kind.places(routing, args) - {"server"}), "server")
    return RunPlan(
        gpu=find_gpu(args.gpu),
        num_gpus=args.num_gpus,
        sharding=find_sharding(args.sharding),
        moments=MOMENTS[optim],
        models=_models(routing, args, config, arguments.peft_config(config, given.policies)),
        sampler=sampler,
        engine=kind.options,
        utilization=setting(args, kind.options.memory_share, 0.0),
        sleeps=setting(args, kind.options.sleeps, False),
        tensor_parallel=processes_of_engine(routing, args),
        max_model_length=setting(args, kind.options.max_length),
        generation_batch=args.generation_batch_size,
        num_candidates=args.num_generations,
        max_envs=args.max_envs,
        is_parallel=choose_credit(given.credit, args, delayed).sampling == "parallel",
        prompt=args.prompt_tokens,
        completion=args.max_completion_length or PROMPT,
        rows=args.per_device_train_batch_size,
        accumulation=args.gradient_accumulation_steps,
        num_iterations=args.num_iterations,
        sampling_width=2 if args.bf16 or args.fp16 else 4,
        max_steps=max(args.max_steps, 0),
        image_tokens=args.image_tokens,
    )


def _models(
    routing: Routing, args: EstimatedConfig, config: ModelConfig, peft_config: PeftConfig | None
) -> tuple[ModelPlan, ...]:
    """The trainer's model with the policies that stand on it, then each policy's own model."""
    count = cache(partial(_counted, args, config, peft_config))
    found = []
    for group in groups_of(routing):
        first, is_standing = group.policies[0], group.policies[0].model is None
        source = first.model or config.model_name_or_path
        adapters = [policy for policy in group.policies if policy.adapter is not None]
        if is_standing and not adapters and peft_config is not None:  # `policies="shared"` with use_peft
            adapters = [first]
        num_trained = sum(policy.is_trained for policy in adapters)
        is_trained = not adapters and first.is_trained
        shape, passes, width = count(source, bool(adapters))
        found.append(
            ModelPlan(
                name=str(source) if is_standing else f"{source} of {first.name!r}",
                shape=shape,
                width=width,
                is_trained=is_trained,
                passes=passes,
                num_adapters=num_trained,
                num_frozen_adapters=len(adapters) - num_trained,
                num_references=int(is_trained and (args.beta if first.beta is None else first.beta) > 0),
                on_server=kind_of(args).place_of(group, args) == "server",
            )
        )
    if not any(model.trained for model in found):
        raise ValueError("no policy is trained; expected one with weights here. Remove trainable: false from one.")
    return tuple(found)


def _counted(
    args: EstimatedConfig, config: ModelConfig, adapter: PeftConfig | None, source: str, has_adapter: bool
) -> tuple[Shape, Passes, int]:
    """A model's shape, what measures a pass of the update, and the bytes of a weight in the trainer."""
    peft_config = adapter if has_adapter else None
    own = {"revision": config.model_revision} if source == config.model_name_or_path else {}
    try:
        model = AutoConfig.from_pretrained(source, trust_remote_code=args.trust_remote_code, **own)
    except OSError as error:
        raise OSError(
            f"the configuration of {source!r} cannot be loaded: {error} Without a network, give a folder that has the "
            "model's config.json as model_name_or_path; the estimate reads nothing else."
        ) from error
    dtype, shape = _dtype(config, model), shape_of(model, peft_config)

    @cache
    def passes(rows: int, length: int, is_sharded: bool) -> PassBytes:
        return pass_bytes(
            model,
            rows=rows,
            length=length,
            # DeepSpeed and FSDP2 pass weights that are in bfloat16 already; autocast copies them.
            dtype=torch.bfloat16 if args.bf16 and is_sharded else dtype,
            in_bfloat16=args.bf16,
            checkpointing=args.gradient_checkpointing,
            peft_config=peft_config,
            patches=args.image_tokens * shape.patches,
        )

    return shape, passes, dtype.itemsize


def _dtype(config: ModelConfig, model: PretrainedConfig) -> torch.dtype:
    """Of the trainer's weights: float32 unless the configuration says otherwise, as in TRL."""
    named = config.dtype or "float32"
    found: Any = model.dtype or torch.float32 if named == "auto" else getattr(torch, named, None)
    if not isinstance(found, torch.dtype):
        raise ValueError(f"dtype is {named!r}; expected auto, bfloat16, float16 or float32.")
    return found
