r"""The same training by one process and by two that share a device: final weights, tokens, memory, seconds.

    OMP_NUM_THREADS=1 PYTHONPATH=. python benchmarks/bench_two_processes.py [--json FILE] [--strict]
    PYTHONPATH=. python benchmarks/bench_two_processes.py --device cuda --size 0.6B
    PYTHONPATH=. python benchmarks/bench_two_processes.py --device cuda --size 0.6B --sampler generate

Plan-Path with a drafter and a planner, an adapter each. Two processes are started by torchrun. NCCL takes one process
a GPU, so that they talk by gloo, as on a CPU; and accelerate gives DistributedDataParallel the GPU of a process's
number, which only the first has, unless `ACCELERATE_BYPASS_DEVICE_MAP` is set.

With the scripted sampler, replies follow from the prompt alone: the two trainings are then the same, up to the order
of sums, and their weights are compared. With `generate` each process draws its own, and the weights say nothing. The
first step warms up, and its seconds do not count.
"""

from __future__ import annotations

import argparse
import math
import os
import random
import socket
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from accelerate import PartialState
from accelerate.utils import DistributedType
from bench_step import SIZES, letters, make_base, now, prompts
from datasets import Dataset
from figures import Figure, parser_of, write
from machine import process_memory
from peft import LoraConfig
from transformers import PrinterCallback, TrainerCallback

import pettingllms_envs
from pettingllms_trl import MultiAgentGRPOConfig, MultiAgentGRPOTrainer


GOAL = 1e-4
"""Largest difference of a weight between the two trainings, of the largest change of a weight by training."""
INSTANCES, CANDIDATES, LENGTH = 8, 4, 32
"""Of a step: instances of two decisions each, candidates of a decision, tokens of a candidate at most."""
MINUTES = 20
"""After which a training that still runs has failed."""


# ---- One process of a training --------------------------------------------------------------------------------------


class Steps(TrainerCallback):
    """Seconds and sampled tokens of each optimizer step, from its log."""

    def __init__(self) -> None:
        self.seconds, self.sampled = list[float](), 0.0

    def on_train_begin(self, *args: Any, **kwargs: Any) -> None:
        self._began = now()

    def on_log(self, args: Any, state: Any, control: Any, logs: Mapping[str, float], **kwargs: Any) -> None:
        if "loss" in logs:
            self.seconds.append(now() - self._began)
            self.sampled += logs["rollout/sampled_tokens"]
            self._began = now()


class Scripted(MultiAgentGRPOTrainer):
    """Replies follow from the prompt, and from how many were given to it, alone."""

    def _generate_single_turn(self, prompt_ids: Any, *rest: Any) -> Any:
        seen: Counter[tuple[int, ...]] = Counter()
        completions = []
        for ids in map(tuple, prompt_ids):
            rng = random.Random(f"{ids}/{seen[ids]}")
            seen[ids] += 1
            words = [rng.randrange(len(self.processing_class) // 2, len(self.processing_class)) for _ in range(LENGTH)]
            completions.append([*words[: rng.randint(1, LENGTH - 1)], *self.eos_token_ids[:1]])
        return completions, None


def train(given: argparse.Namespace) -> None:
    """One process of a training; leaves what is compared in `given.out`, by its number."""
    num_processes = int(os.environ.get("WORLD_SIZE", "1"))
    sequences = INSTANCES * 2 * CANDIDATES
    args = MultiAgentGRPOConfig(
        output_dir=str(given.out / f"outputs-{num_processes}"),
        num_generations=CANDIDATES,
        per_device_train_batch_size=sequences // 2 // num_processes,
        max_completion_length=LENGTH,
        max_turns=1,
        max_steps=given.steps + 1,
        learning_rate=0.1,
        lr_scheduler_type="constant",
        optim="sgd",  # whose steps are as large as the gradients: rounding stays rounding
        logging_steps=1,
        save_strategy="no",
        report_to="none",
        disable_tqdm=True,
        gradient_checkpointing=False,
        bf16=False,
        use_cpu=given.device == "cpu",
        ddp_backend="gloo" if num_processes > 1 else None,
    )
    if given.as_gpu and num_processes > 1:
        PartialState._shared_state["distributed_type"] = DistributedType.MULTI_GPU
    steps = Steps()
    trainer = (Scripted if given.sampler == "scripted" else MultiAgentGRPOTrainer)(
        str(given.base),
        lambda: pettingllms_envs.make("plan_path"),
        args,
        Dataset.from_dict({"seed": list(range(INSTANCES * (given.steps + 1)))}),
        policies="lora",
        peft_config=LoraConfig(r=8, target_modules="all-linear"),
        reward_funcs=letters,  # replies of random weights are all worth the same in the environment
        callbacks=[steps],
    )
    trainer.remove_callback(PrinterCallback)
    before = weights(trainer)
    trainer.train()
    found = {
        "before": before,
        "after": weights(trainer),
        "seconds": steps.seconds[1:],
        "sampled": steps.sampled,
        "trained": trainer.state.num_input_tokens_seen,
        "memory": peak(given.device),
        "device": str(trainer.accelerator.device),
        "kind": trainer.accelerator.distributed_type.value,
    }
    trainer.accelerator.wait_for_everyone()  # until nobody adds to what the card holds, and nobody has left
    found["card"] = card(given.device)
    torch.save(found, given.out / f"{num_processes}-{args.process_index}.pt")
    trainer.accelerator.wait_for_everyone()
    sys.stdout.flush()
    os._exit(0)  # not by way of Python's and C++'s end, where gloo's threads abort the process now and then


def weights(trainer: MultiAgentGRPOTrainer) -> dict[str, torch.Tensor]:
    """All that are trained."""
    model = trainer.accelerator.unwrap_model(trainer.model)
    return {name: p.detach().cpu().clone() for name, p in model.named_parameters() if "lora" in name}


def peak(device: str) -> int:
    """Bytes that this process held at most: on a GPU its tensors, without the context; else all of the process."""
    if device == "cuda":
        return torch.cuda.max_memory_allocated()
    return process_memory("VmHWM")


def card(device: str) -> int:
    """Bytes of the GPU in use by all processes, contexts and caches included; 0 without one."""
    if device == "cpu":
        return 0
    free, total = torch.cuda.mem_get_info()
    return total - free


# ---- The comparison -------------------------------------------------------------------------------------------------


def launched(given: argparse.Namespace, num_processes: int) -> list[dict[str, Any]]:
    """Train; what each process left.

    Raises:
        RuntimeError: A process failed.
    """
    command = [sys.executable, *launcher(num_processes), __file__, "--out", str(given.out), "--base", str(given.base)]
    command += ["--device", given.device, "--size", given.size, "--sampler", given.sampler]
    command += ["--steps", str(given.steps), *(["--as-gpu"] if given.as_gpu else [])]
    run = subprocess.run(
        command, env=environment(given.device), capture_output=True, text=True, timeout=60 * MINUTES, check=False
    )
    if run.returncode != 0:
        raise RuntimeError(
            f"{num_processes} processes on {given.device} ended with status {run.returncode}, expected 0:\n"
            + (run.stdout + run.stderr)[-4000:]
        )
    # What was written by a process of this machine's own user a moment ago.
    files = [given.out / f"{num_processes}-{number}.pt" for number in range(num_processes)]
    return [torch.load(file, weights_only=False) for file in files]


def launcher(num_processes: int) -> list[str]:
    """What stands between Python and the script."""
    if num_processes == 1:
        return []
    with socket.socket() as any_port:
        any_port.bind(("localhost", 0))
        port = any_port.getsockname()[1]
    return ["-m", "torch.distributed.run", f"--nproc_per_node={num_processes}", f"--master_port={port}"]


def environment(device: str) -> dict[str, str]:
    """Of both trainings: one GPU at most, which all processes see."""
    first = os.environ.get("CUDA_VISIBLE_DEVICES", "0").split(",")[0]
    own = {
        "CUDA_VISIBLE_DEVICES": first if device == "cuda" else "",
        "OMP_NUM_THREADS": "1",
        "ACCELERATE_BYPASS_DEVICE_MAP": "true",  # else the second process's DDP asks for a second GPU
        "NCCL_P2P_DISABLE": "1",  # accelerate asks for both on GeForce cards, though NCCL is not used
        "NCCL_IB_DISABLE": "1",
        "HF_HUB_OFFLINE": "1",
    }
    return {**os.environ, **own}


def difference(one: Mapping[str, torch.Tensor], other: Mapping[str, torch.Tensor]) -> float:
    """The largest of any weight.

    Raises:
        ValueError: They have different weights.
    """
    if one.keys() != other.keys():
        raise ValueError(f"weights {sorted(one.keys() ^ other.keys())} in one training alone, expected in both")
    return max(float((one[name] - other[name]).abs().max()) for name in one)


def compared(one: Mapping[str, Any], two: Sequence[Mapping[str, Any]]) -> dict[str, float]:
    """Differences of final weights, relative to the largest change: of two processes to one, and between the two."""
    moved = difference(one["before"], one["after"])
    whole = moved or math.nan
    return {
        "moved": moved,
        "start": difference(one["before"], two[0]["before"]) / whole,
        "difference": difference(one["after"], two[0]["after"]) / whole,
        "between": max(difference(two[0]["after"], each["after"]) for each in two) / whole,
    }


def figures(
    given: argparse.Namespace, one: Mapping[str, Any], two: Sequence[Mapping[str, Any]], found: Mapping[str, float]
) -> list[Figure]:
    """What is saved."""
    setting = f"{given.size}, {given.device}, {given.sampler}"
    beside = {"peer_name": "one process"}
    tokens = [
        ("sampled", two[0]["sampled"], one["sampled"]),
        ("read and trained on", two[0]["trained"], one["trained"]),
    ]
    saved = [
        Figure(name=f"two processes: a step, {setting}", unit="s", **beside, ours=tuple(two[0]["seconds"]),
               peer=tuple(one["seconds"])),
        Figure(name=f"two processes: peak memory of each, {setting}", unit="MB", **beside, better="neither",
               ours=(max(each["memory"] for each in two) / 1e6,), peer=(one["memory"] / 1e6,)),
        *(
            Figure(name=f"two processes: tokens {what}, {setting}", unit="", **beside, better="neither",
                   ours=(ours,), peer=(theirs,))
            for what, ours, theirs in tokens
        ),
    ]  # fmt: skip
    if one["card"]:
        values = {"ours": (two[0]["card"] / 1e6,), "peer": (one["card"] / 1e6,)}
        saved.append(
            Figure(name=f"two processes: the card in use, {setting}", unit="MB", **beside, better="neither", **values)
        )
    if given.sampler == "scripted":
        saved.append(
            Figure(
                name=f"two processes: weights' difference to one, of their change, {setting}",
                unit="",
                ours=(found["difference"],),
                better="neither",
                goal=f"<= {GOAL:g}",
                met=is_met(found),
            )
        )
    return saved


def is_met(found: Mapping[str, float]) -> bool:
    """Whether both trainings began and ended with the same weights, and both processes have the same."""
    return found["moved"] > 0 and max(found["start"], found["difference"], found["between"]) <= GOAL


def report(
    given: argparse.Namespace, one: Mapping[str, Any], two: Sequence[Mapping[str, Any]], found: Mapping[str, float]
) -> None:
    """Print a row for each process."""
    print(f"{given.size}, {given.sampler}, {INSTANCES} instances of two decisions x {CANDIDATES}, {given.steps} steps")
    print(f"{'':24s}{'device':>10s}{'s a step':>10s}{'peak MB':>10s}{'sampled':>10s}{'trained':>10s}")
    rows = [("one process", one), *((f"two processes, {number}", each) for number, each in enumerate(two))]
    for name, each in rows:
        seconds = sum(each["seconds"]) / len(each["seconds"])
        print(
            f"{name:24s}{each['device']:>10s}{seconds:10.2f}{each['memory'] / 1e6:10,.0f}"
            f"{each['sampled']:10,.0f}{each['trained']:10,.0f}"
        )
    if one["card"]:
        print(f"the card in use: {one['card'] / 1e6:,.0f} MB by one process, {two[0]['card'] / 1e6:,.0f} by two")
    print(f"the two processes differ by {found['between']:.1g} of the largest change of a weight", end="")
    if given.sampler == "scripted":
        verdict = "met" if is_met(found) else "MISSED"
        print(f", from one by {found['difference']:.1g}; the goal, {GOAL:g} at most, is {verdict}", end="")
    print(flush=True)


def main(arguments: Sequence[str] | None = None) -> None:
    """Train with one process and with two, and compare."""
    parser = parser_of(__doc__, is_strict=True)
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--size", choices=SIZES, default="0.4M")
    parser.add_argument("--sampler", choices=("scripted", "generate"), default="scripted")
    parser.add_argument("--steps", type=int, default=2, help="steps that are counted")
    # On a CPU: take accelerate's ways of a GPU.
    parser.add_argument("--as-gpu", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--out", type=Path, help=argparse.SUPPRESS)  # of a process of a training
    parser.add_argument("--base", type=Path, help=argparse.SUPPRESS)
    given = parser.parse_args(arguments)
    if given.steps < 1:
        parser.error(f"--steps is {given.steps}, expected 1 or more")
    if given.out:
        train(given)
    if given.device == "cuda" and not torch.cuda.is_available():
        parser.error("--device cuda, and torch finds no GPU here; leave it out, or install a torch with CUDA")
    with tempfile.TemporaryDirectory() as folder:
        given.out, given.base = Path(folder, "out"), Path(folder, "base")
        given.out.mkdir()
        make_base(given.base, [message["content"] for prompt in prompts(64) for message in prompt], given.size)
        (one,), two = launched(given, 1), launched(given, 2)
    found = compared(one, two)
    report(given, one, two, found)
    write(given.json, figures(given, one, two, found))
    if given.strict and given.sampler == "scripted" and not is_met(found):
        raise SystemExit("the goal is missed")


if __name__ == "__main__":
    main()
