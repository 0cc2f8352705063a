"""What a run would take, without a GPU: `pettingllms train --config run.yaml --estimate`.

    pettingllms train --config examples/configs/plan_path_L2_8B.yaml --estimate --gpu h100 --num_gpus 8

A child process creates the trainer on a simulated GPU (`estimate/simulated_shapes.py`), at its real size, and runs a
generation and an optimizer step. The options of a run are those of `pettingllms train`, and some more are of the
estimate. Of a model its config.json is enough, and a tokenizer and data that are not on this machine are made up. Exit
status 2 and a line that begins with "error:" say that the run does not fit, cannot be created, or fails in its step.
"""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from importlib.metadata import version
from pathlib import Path
from typing import Any

from packaging.version import Version
from transformers.trainer_utils import IntervalStrategy, SaveStrategy
from trl import ModelConfig, ScriptArguments

from pettingllms_envs.suggestions import did_you_mean
from pettingllms_trl.cli import arguments, train
from pettingllms_trl.cli.datasets import makers
from pettingllms_trl.cli.train import TrainArguments
from pettingllms_trl.config import MultiAgentGRPOConfig, with_help
from pettingllms_trl.engines.batched import context_of
from pettingllms_trl.engines.factory import kind_of, processes_of_engine
from pettingllms_trl.engines.kinds import Place, groups_of, setting
from pettingllms_trl.estimate import planning, speed
from pettingllms_trl.estimate.gpus import find_gpu
from pettingllms_trl.estimate.memory import SHARDINGS
from pettingllms_trl.estimate.planning import Sampled
from pettingllms_trl.estimate.report import report
from pettingllms_trl.estimate.step import Lengths, run_step
from pettingllms_trl.policies.routing import route
from pettingllms_trl.processes.distributed import check_processes
from pettingllms_trl.rollout.env_checks import agents_of, make_envs
from pettingllms_trl.rollout.prompts import agents_with_history
from pettingllms_trl.trainer.dataloading import several_rollouts


RELEASE = "2.13"
"""Of torch, from which on the simulated device is there."""
CHILD = """
import sys
from pettingllms_trl.estimate.simulated_shapes import ShapesDevice
device = ShapesDevice.install()  # before transformers
from pettingllms_trl.cli import estimate
estimate.main(device, *sys.argv[1:])
"""
FAILS = "a step of this training fails on the simulated GPU: {}; expected it to run. Change what the error names."


@with_help
@dataclass
class EstimatedConfig(MultiAgentGRPOConfig):
    r"""
    The configuration of a run on GPUs that are not here.

    Args:
        estimate (`bool`, *optional*, defaults to `False`):
            Run a step on a simulated GPU, print what it takes, and train nothing.
        gpu (`str`, *optional*, defaults to `"h100"`):
            With --estimate: which GPU, a100 or h100 of 80 GB, h200, l40s or rtx4090.
        num_gpus (`int`, *optional*, defaults to `1`):
            With --estimate: trainer processes, one for each GPU: `num_processes` of the configuration of accelerate.
        sharding (`str`, *optional*, defaults to `"ddp"`):
            With --estimate: which of `examples/accelerate_configs` it is launched with, ddp, zero2, zero3 or fsdp2.
        prompt_tokens (`int`, *optional*, defaults to `500`):
            With --estimate: tokens of the longest prompt; in a conversation, of its first.
    """

    estimate: bool = False
    gpu: str = "h100"
    num_gpus: int = 1
    sharding: str = "ddp"
    prompt_tokens: int = 500

    def __post_init__(self) -> None:
        for name in ("num_gpus", "prompt_tokens"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name}={getattr(self, name)}; expected 1 or more. Set --{name} 8, say.")
        find_gpu(self.gpu)
        if self.sharding not in SHARDINGS:
            hint = did_you_mean(self.sharding, SHARDINGS) or " Choose one."
            raise ValueError(f"sharding={self.sharding!r}; expected one of {', '.join(SHARDINGS)}.{hint}")
        if self.use_cpu:
            raise ValueError(
                "use_cpu is True, so the run would be on a CPU; expected one on GPUs, of which the estimate is. Add "
                "--use_cpu false to see what it would take there, or leave --estimate out."
            )
        super().__post_init__()

    @property
    def world_size(self) -> int:
        """The processes of the run, not of this command; TRL and this package divide batches by it."""
        return self.num_gpus


KINDS = (TrainArguments, ScriptArguments, EstimatedConfig, arguments.TeamModelConfig)


# ---- The command ----------------------------------------------------------------------------------------------------


def prepare(argv: Sequence[str]) -> Callable[[], None]:
    """Estimate, and return a function that prints it; printed here, before the `ValueError`, if it does not fit."""
    if {"--help", "--help-all", "-h", "--show"} & {*argv}:
        arguments.parse(argv, KINDS, prog="pettingllms train", description=train.__doc__)
    if Version(version("torch")) < Version(RELEASE):
        raise ImportError(
            f"torch {version('torch')} is installed; --estimate expects {RELEASE} or later, which has devices in "
            f"Python. pip install 'torch>={RELEASE}'."
        )
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "estimate.json")
        command = [sys.executable, "-c", CHILD, str(file), *argv]
        run = subprocess.run(command, env=os.environ, capture_output=True, text=True, check=False)
        if not file.exists():
            said = run.stderr.strip().splitlines() or [f"it ended with status {run.returncode}"]
            raise ValueError(FAILS.format(said[-1]))
        found = json.loads(file.read_text("utf-8"))
    if found["text"]:
        print(found["text"], flush=True)  # noqa: T201  # what the command is for
    if found["problems"]:
        raise ValueError(" ".join(found["problems"]))
    return lambda: print("\nIt fits.")  # noqa: T201


# ---- Its child ------------------------------------------------------------------------------------------------------


def main(device: Any, file: str, *argv: str) -> None:
    """Write the estimate of a run of these arguments, or why there is none."""
    try:
        found = estimated(device, argv)
        text, problems = report(found), list(found.problems)
    except (ValueError, TypeError, OSError, ImportError) as error:
        text, problems = "", [str(error)]
    except RuntimeError as error:  # of PyTorch
        text, problems = "", [FAILS.format(error)]
    Path(file).write_text(json.dumps({"text": text, "problems": problems}), "utf-8")


def estimated(device: Any, argv: Sequence[str]) -> Any:
    """The estimate of a run of these arguments, in a process that has the simulated device."""
    given, data, args, config = arguments.parse(argv, KINDS, prog="pettingllms train", description=train.__doc__)
    _check(args, config)
    arguments.import_packages(given.imports)
    made_up = _rows_that_are_here(given, data)
    gpu = find_gpu(args.gpu)
    device.flops_a_second, device.bytes_a_second = speed.PRODUCTS * gpu.flops, gpu.bandwidth
    device.launch = speed.LAUNCH
    envs = {name: [env] for name, env in make_envs(makers(given)).items()}
    routing = route(given.policies, agents_of(envs), model=config.model_name_or_path)
    check_processes(routing, args)
    parallel, kind, waits = processes_of_engine(routing, args), kind_of(args), several_rollouts(args)
    if not routing.trained:
        raise ValueError("no policy is trained; expected one with weights here. Remove trainable: false from one.")
    sampler: Place = next(iter(kind.places(routing, args) - {"server"}), "server")
    most = setting(args, kind.options.max_length) if sampler != "generate" else None
    with tempfile.TemporaryDirectory() as folder:
        batches = _alone(given, args, config, folder, parallel)
        step = run_step(
            lambda: train.make_trainer(given, data, args, config),
            device,
            lambda trainer: _lengths(trainer, args, given, most),
            samples=sampler == "generate",
        )
    run = planning.Run(
        gpu=gpu,
        sharding=next(each for each in SHARDINGS if each == args.sharding),
        models=_models(step.trainer, args),
        sampler=sampler,
        engine=kind.options,
        utilization=setting(args, kind.options.memory_share, 0.0),
        sleeps=setting(args, kind.options.sleeps, False),
        tensor_parallel=parallel,
        max_length=setting(args, kind.options.max_length),
        agents=sum(name in step.trainer.team.profiles for name in routing.of_agent.values()),
        prompt=args.prompt_tokens,
        completion=step.completion,
        turns=step.turns,
        **batches,
    )
    found = planning.estimate(run, step)
    step.notes += made_up
    return replace(found, notes=(*([f"Careful: {waits}"] if waits else []), *found.notes))


def _check(args: EstimatedConfig, config: ModelConfig) -> None:
    """Raise `ValueError` for what the simulated device does not know."""
    arguments.check_model(config)
    if config.load_in_4bit or config.load_in_8bit:
        raise ValueError("load_in_4bit or load_in_8bit is set; expected neither: their memory is not known here.")
    optim = str(getattr(args.optim, "value", args.optim))
    if any(word in optim for word in ("8bit", "4bit", "bnb", "paged", "torchao")):
        raise ValueError(
            f"optim is {optim!r}, whose states of 8 bits and less the simulated GPU does not have; expected one of "
            "PyTorch's, such as adamw_torch. Set it, or leave --estimate out."
        )


def _rows_that_are_here(given: TrainArguments, data: ScriptArguments) -> list[str]:
    """Put an environment's own rows in the place of data that are not on this machine; returns what is said of it."""
    names = []
    assert isinstance(given.env_kwargs, dict)
    assert isinstance(given.environments, dict)
    for settings in (given.env_kwargs, *(each.env_kwargs for each in given.environments.values())):
        name = str(settings.get("data", ""))
        if name and not name.startswith("own:") and not Path(name).expanduser().exists():
            names.append(name)
            settings["data"] = None  # the environment's own
    if data.dataset_name is not None and not Path(data.dataset_name).exists():
        names.append(data.dataset_name)
        data.dataset_name, given.train_seeds = None, [0, 6400]
    return [f"The data {name} are not on this machine: other rows stand in." for name in names]


def _models(trainer: Any, args: EstimatedConfig) -> tuple[Sampled, ...]:
    """What samples for each group of policies: the trainer's model and the adapters on it, then each policy's own."""
    found = []
    for group in groups_of(trainer.routing):
        model = trainer.team.weights_of(group.names[0])
        text = model.config.get_text_config()
        head = getattr(text, "head_dim", None) or text.hidden_size // text.num_attention_heads
        key_heads = getattr(text, "num_key_value_heads", None) or text.num_attention_heads
        name = model.config.name_or_path
        found.append(
            Sampled(
                name=name if group.policies[0].model is None else f"{name} of {group.names[0]!r}",
                parameters=sum(each.numel() for each in model.parameters()),
                kv_values=2 * text.num_hidden_layers * key_heads * head,
                context=context_of(text) or text.max_position_embeddings,
                servers=len(kind_of(args).servers_of(group, args)),
            )
        )
    return tuple(found)


def _alone(given: TrainArguments, args: EstimatedConfig, config: ModelConfig, folder: str, parallel: int) -> Any:
    """Make of the arguments those of one process's share, and of one step; returns the batches of the whole run."""
    assert args.generation_batch_size is not None
    players = args.num_gpus // parallel
    instances = max(-(-args.generation_batch_size // (args.num_generations * players)), 1)
    dtype = {"auto": 2, "bfloat16": 2, "float16": 2}.get(str(config.dtype), 4)
    whole = {
        "num_gpus": args.num_gpus,
        "width": dtype,
        "pass_width": 2 if args.bf16 or args.fp16 else 4,
        "sequences": min(args.max_envs or instances, instances) * args.num_generations,
        "generation_batch": args.generation_batch_size,
        "mini_batch": args.gradient_accumulation_steps * args.per_device_train_batch_size * args.num_gpus,
        "num_passes": args.gradient_accumulation_steps,
        "num_iterations": args.num_iterations,
        "num_candidates": args.num_generations,
        "max_steps": max(args.max_steps, 0),
    }
    assert given.policies is not None
    share = args.generation_batch_size // args.num_gpus
    args.generation_batch_size = math.lcm(share, args.num_generations)
    args.steps_per_generation = args.generation_batch_size // args.per_device_train_batch_size
    args.num_gpus, args.max_steps, args.output_dir, args.report_to = 1, 1, folder, []
    args.save_strategy, args.eval_strategy, args.disable_tqdm = SaveStrategy.NO, IntervalStrategy.NO, True
    args.log_completions = args.log_rollouts = args.push_to_hub = args.load_best_model_at_end = False
    given.num_trees = 0
    if args.sharding != "ddp" and args.bf16 and not arguments.has_adapters(given.policies):
        config.dtype = "bfloat16"  # in which DeepSpeed and FSDP2 pass weights; autocast would copy them
    return whole


def _lengths(trainer: Any, args: EstimatedConfig, given: TrainArguments, most: int | None) -> Lengths:
    """Of what is made up; a conversation has as many turns as the environment's `num_turns`, or 4.

    Args:
        most: Tokens that an engine takes; `None`: as many as the models.
    """
    limit, name = min((each.context, each.name) for each in _models(trainer, args))
    if args.prompt_tokens >= (limit := most or limit):
        raise ValueError(
            f"a prompt of {args.prompt_tokens:,} tokens leaves {name} no room for a completion: both together are "
            f"{limit:,} tokens at most. Set --prompt_tokens."
        )
    assert isinstance(given.env_kwargs, dict)
    talks = agents_with_history(args.history, list(trainer.routing.of_agent))
    turns = (given.env_kwargs.get("num_turns") or 4) if talks else 1
    return Lengths(prompt=args.prompt_tokens, limit=limit, turns=turns)
