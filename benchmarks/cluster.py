"""A training step on many GPUs, computed: rollouts on simulated engines, updates by their operations, a network. Pure.

Nothing here was measured on a GPU. What is assumed, and why, is in `ASSUMPTIONS`; the numbers are those of
`pettingllms train --estimate` (`pettingllms_trl/estimate/speed.py`).

Data-parallel and colocated, as the trainer runs with `accelerate`: each GPU plays instances on an engine of its own
(`shared_rows.py`), all wait for the slowest, sequences are assigned anew by the trainer's own function, each GPU
computes gradients of its own and waits for the others after each forward pass, gradients are averaged, and the new
weights go to the engines.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

from shared_rows import ENV_THREADS, rollout_seconds
from simulation import Speed, Workload

from pettingllms_trl.estimate.speed import BETWEEN, INSIDE, PER_NODE, PROMPT
from pettingllms_trl.update.assignment import Assignment, assign_by_tokens, cost
from pettingllms_trl.update.packing.conversations import Size
from pettingllms_trl.update.packing.cost import token_price_of


UPDATE_FLOPS = 0.4e15
"""Operations a second that an update reaches on an H100: 40% of the published."""
FLOPS_OF_TOKEN = 8
"""Operations for each parameter and token of the update: forward, backward, and a second forward for checkpoints."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Model:
    """What is trained.

    Args:
        speed: Its engine on one GPU.
        parameters: All of them.
        trained: Those with a gradient: all, or an adapter's.
    """

    speed: Speed
    parameters: float
    trained: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Cluster:
    """GPUs and what is between them.

    Args:
        flops: Of one GPU, as reached in an update.
        per_node: GPUs of a node.
        inside: Bytes a second that a GPU reaches to others of its node, one way.
        between: The same to other nodes.
        latency_s: Of one hop of a collective.
        step_s: A step's seconds outside all of that, on every GPU, however many there are.
    """

    flops: float = UPDATE_FLOPS
    per_node: int = PER_NODE
    inside: float = INSIDE
    between: float = BETWEEN
    latency_s: float = 20e-6
    step_s: float = 0.5

    def all_reduce(self, num_bytes: float, num_gpus: int) -> float:
        """Seconds of a ring, whose slowest link is between nodes where there are several."""
        if num_gpus == 1:
            return 0.0
        link = self.inside if num_gpus <= self.per_node else self.between
        return 2 * (num_gpus - 1) / num_gpus * num_bytes / link + 2 * (num_gpus - 1) * self.latency_s


ASSUMPTIONS: Sequence[tuple[str, str, str]] = (
    (
        "a decoding step of B sequences, 8B",
        "6 ms + 0.03 ms B",
        "16 GB of bf16 weights at 3.35 TB/s are 4.8 ms, the rest is launches; a guess",
    ),
    ("... 1.7B", "2.5 ms + 0.01 ms B", "3.4 GB are 1.0 ms; launches weigh more"),
    ("a prompt's prefill, 8B and 1.7B", "20 ms and 4 ms", "2 N FLOP a token, 500 tokens, at 0.4 PFLOP/s"),
    ("sequences at a time", "256", "vLLM's usual max_num_seqs"),
    ("operations reached in an update", "0.4 PFLOP/s", "40% of an H100's 989 TFLOP/s (dense bf16)"),
    ("operations of a trained token", "8 N", "forward, backward, and a second forward for checkpoints"),
    ("links of a GPU inside a node", "300 GB/s", "two thirds of an H100 SXM's NVLink, 450 GB/s one way (NVIDIA)"),
    ("... between nodes", "35 GB/s", "70% of 400 Gbit/s per GPU"),
    ("rows of a forward pass", "8 of the longest on a GPU, by tokens", "TRL's default `per_device_train_batch_size`"),
    ("prompts", "500 tokens", "read once for the K of a decision, in prefill and update"),
    ("completions", "300 tokens on average, 2,048 at most", "simulation.py, lognormal with a deviation as large"),
    ("environment", "30 ms to 2 s, on 64 threads a GPU", "simulation.py; a sandbox running tests"),
    ("all else in a step", "0.5 s", "a guess: data, logging, a barrier; the loop's own is 0.1 ms a decision"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """Seconds of a generation and its updates on so many GPUs, by what they are for.

    Args:
        num_gpus: G.
        tokens: Sampled by all, and trained on.
        rollout: Of the GPU that ends last.
        mean_rollout: Of all GPUs; what is above it was waited.
        update: Forward passes, each of the GPU with the most tokens.
        network: Averaging of gradients, and new weights for the engines.
        fixed: All else.
        updates: Optimizer steps.
    """

    num_gpus: int
    tokens: int
    rollout: float
    mean_rollout: float
    update: float
    network: float
    fixed: float
    updates: int = 1

    @property
    def seconds(self) -> float:
        """Of all of it."""
        return self.rollout + self.update + self.network + self.fixed

    @property
    def rate(self) -> float:
        """Tokens trained per second, by all GPUs."""
        return self.tokens / self.seconds


ROWS = 8
"""Rows of a forward pass on a GPU; see `ASSUMPTIONS`."""


def step(
    model: Model,
    cluster: Cluster,
    workload: Workload,
    num_gpus: int,
    *,
    updates: int = 1,
    env_threads: int = ENV_THREADS,
) -> Step:
    """A generation of the workload's instances, and the optimizer steps taken with it, on so many GPUs."""
    rollouts = rollout_seconds(model.speed, workload, num_gpus, env_threads=env_threads)
    gradients = 4.0 * model.trained  # float32
    # Each engine reads the weights that its own GPU holds: bf16, at the links' pace inside a node, an upper bound.
    renewal = 2.0 * model.trained / cluster.inside
    return Step(
        num_gpus=num_gpus,
        tokens=sum(completion_tokens(workload)),
        rollout=max(rollouts),
        mean_rollout=sum(rollouts) / num_gpus,
        update=tokens_of_passes(workload, num_gpus, updates) * FLOPS_OF_TOKEN * model.parameters / cluster.flops,
        network=updates * cluster.all_reduce(gradients, num_gpus) + renewal,
        fixed=updates * cluster.step_s,
        updates=updates,
    )


def completion_tokens(workload: Workload) -> list[int]:
    """Of every decision, all its candidates together."""
    places = (place for instance in range(workload.instances) for place in workload.places(instance))
    return [sum(workload.num_tokens(place, k) for k in range(workload.candidates)) for place in places]


@cache
def tokens_of_passes(workload: Workload, num_gpus: int, updates: int = 1) -> int:
    """Tokens of all forward passes, each counted on the GPU with the most; a prompt once for the K of a decision."""
    sizes, assignment = assigned(workload, num_gpus, updates)
    total = 0
    for rows, passes in zip(assignment.rows, assignment.passes or (), strict=True):
        start = 0
        for number in passes:
            of_gpu = ([row for row in part[start : start + number] if row is not None] for part in rows)
            total += max(cost(each, sizes, token_price=token_price_of("cuda", 4096)) for each in of_gpu)
            start += number
    return total


def assigned(workload: Workload, num_gpus: int, updates: int = 1) -> tuple[list[Size], Assignment]:
    """The sequences, and where the trainer would train on each of them."""
    sizes = [
        Size(place, PROMPT, workload.num_tokens(place, k))
        for instance in range(workload.instances)
        for place in workload.places(instance)
        for k in range(workload.candidates)
    ]
    order = list(range(len(sizes)))
    random.Random(f"deal/{workload.seed}").shuffle(order)
    per_step = updates * num_gpus * ROWS
    assignment = assign_by_tokens(
        sizes,
        order,
        budget=ROWS * (PROMPT + max(size.completion for size in sizes)),
        token_price=token_price_of("cuda", 4096),
        num_steps=updates * max(1, workload.instances * workload.candidates // per_step),
        num_updates=updates,
        num_processes=num_gpus,
    )
    return sizes, assignment
